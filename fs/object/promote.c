/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promotion: the copy in dram of an object that was used again on the ssd.
 *
 * It takes free room and frames of colder objects that have copies; it never costs an object. Who has it
 * open reads on from the ssd frame; the first open after the last close uses the dram frame.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs.h"
#include "object/object.h"
#include "object/space.h"
#include "object/verify.h"
#include "object/writeback.h"

/* The bytes of an ssd frame, compared with the record's checksums. */
static int fill(struct fs *fs, struct object *o, struct frame *f, struct copies_fd *source)
{
	size_t n = (size_t)((o->size + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	autofree uint32_t *crc = malloc(n * sizeof(*crc));
	uint64_t frame = o->ssd_frame;
	struct object_record r;

	if (!crc)
		return -ENOMEM;
	int rc = catalog_object_get(fs->catalog, o->id, &r);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc; /* unlinked or replaced */
	source->limits.failed_out = &source->failed;
	source->failed = FRAME_COPY_NONE;
	rc = frame_copy(f->fd, source->fd, o->size, crc, &source->limits);
	f->size_bytes = o->size;
	bool is_wrong = !rc && !verify_agrees(&r, crc, n);
	object_record_fini(&r);
	if (source->failed == FRAME_COPY_SRC)
		tier_call(fs->ssd, report_error, frame, rc);
	if (is_wrong || source->failed == FRAME_COPY_SRC) {
		verify_report_bad(fs, o, fs->ssd, frame, is_wrong ? 0 : -rc);
		return -ENOENT;
	}
	if (!rc)
		o->is_ssd_checked = true;
	return rc;
}

int promote_copy(struct fs *fs, struct object *o, struct copies_fd *source, struct copy_change *c)
{
	struct frame f = FRAME_NONE;

	source->fd = verify_open(fs, o, fs->ssd, NULL);
	if (source->fd < 0)
		return source->fd;
	int rc = space_take_spare_frame(fs, o->size, &f);
	if (!rc)
		rc = fill(fs, o, &f, source);
	close(source->fd);
	uint64_t id = f.id;
	if (!rc)
		rc = tier_call(fs->dram, seal, &f, &c->charged_bytes);
	if (rc && f.id)
		tier_call(fs->dram, discard, &f);
	if (!rc) {
		c->o = o;
		c->is_dram = true;
		c->frame = id;
	}
	return rc;
}
