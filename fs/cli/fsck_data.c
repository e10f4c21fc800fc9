/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fsck.h"

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/pread_full.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* 0 right, 1 wrong. A part that cannot be read is wrong. */
static int compare(const struct object_record *r, int fd, uint8_t *buf)
{
	for (uint32_t k = 0; k < r->n_crc; k++) {
		uint64_t off = (uint64_t)k * CATALOG_CRC_CHUNK, left = r->size - off;
		size_t len = left < CATALOG_CRC_CHUNK ? (size_t)left : CATALOG_CRC_CHUNK;
		if (pread_full(fd, buf, len, off) != (ssize_t)len || crc32c(0, buf, len) != r->crc[k])
			return 1;
	}
	return 0;
}

static int check_frame(struct fsck *f, struct fsck_frame *frame, uint64_t object_id, uint8_t *buf)
{
	struct object_record r;
	int rc = catalog_object_get(f->catalog, object_id, &r);

	if (rc)
		return rc;
	autoclose int fd = fsck_frame_open(&f->ssd, frame);
	if (fd >= 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (fd < 0 || compare(&r, fd, buf)) {
		frame->is_bad = true;
		fsck_found(f, FSCK_FRAME_BYTES, "ssd frame %016" PRIx64 " of object %016" PRIx64 " (\"%s\")",
			   frame->id, r.object_id, r.name);
	}
	f->checked_bytes += r.size;
	object_record_fini(&r);
	return 0;
}

int fsck_check_data(struct fsck *f)
{
	autofree uint8_t *buf = malloc(CATALOG_CRC_CHUNK);
	int rc = buf ? 0 : -ENOMEM;

	if (rc)
		cli_error("out of memory");
	for (size_t k = 0; !rc && k < f->n_objects; k++) {
		const struct fsck_object *o = &f->objects[k];
		struct fsck_frame *frame = o->ssd_frame ? fsck_frame(&f->ssd, o->ssd_frame) : NULL;
		if (frame && !frame->is_bad)
			rc = check_frame(f, frame, o->id, buf);
		bar_update(&f->bar, "bytes", f->checked_bytes, f->ssd.bytes);
	}
	return rc;
}
