/* SPDX-License-Identifier: Apache-2.0 */
#include "object/verify.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/crc.h"
#include "base/log.h"
#include "base/pread_full.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/copies.h"
#include "object/object.h"
#include "object/space.h"

#define STEP_BYTES CATALOG_CRC_CHUNK
/* Another waiter's interrupt is noticed within this time. */
#define WAIT_SLICE_NS (20ll * 1000 * 1000)
/* Bad copies met before the housekeeper comes; those beyond are met again. */
#define MAX_BAD 256u

struct bad_copy {
	uint64_t object_id, frame;
	bool is_dram;
};

struct verifier {
	pthread_mutex_t lock;
	/* A ring; what has been dropped stays for a while, so that who meets it late does not count it anew. */
	struct bad_copy bad[MAX_BAD];
	uint32_t n_added, n_dropped;
};

struct verifier *verifier_create(void)
{
	struct verifier *v = xcalloc(1, sizeof(*v));

	pthread_mutex_init(&v->lock, NULL);
	return v;
}

void verifier_destroy(struct verifier *v)
{
	if (!v)
		return;
	pthread_mutex_destroy(&v->lock);
	free(v);
}

/* ---- stamps ---- */

/* Whole seconds, which every file system keeps; in the past, so that no clock gives them by chance. */
static time_t stamp_of(uint64_t frame_id)
{
	return (time_t)((frame_id * 0x9e3779b97f4a7c15ull) >> 35) + 1; /* 29 bits: until 1987 */
}

void verify_stamp(int fd, uint64_t frame_id)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = stamp_of(frame_id) } };

	if (futimens(fd, ts))
		log_debug("frame %016llx: cannot be stamped: %m", (unsigned long long)frame_id);
}

/* ---- bad copies ---- */

/* False: somebody has met it before. */
static bool add_bad(struct verifier *v, const struct bad_copy *bad)
{
	guard_lock(&v->lock);
	for (uint32_t k = 0; k < MAX_BAD; k++)
		if (v->bad[k].frame == bad->frame && v->bad[k].is_dram == bad->is_dram)
			return false;
	if (v->n_added - v->n_dropped < MAX_BAD)
		v->bad[v->n_added++ % MAX_BAD] = *bad;
	return true;
}

void verify_report_bad(struct fs *fs, const struct object *o, const struct tier *t, uint64_t frame,
		       int err)
{
	struct bad_copy bad = { o->id, frame, t == fs->dram };
	struct object_record r = { .name_len = 0 };

	if (!add_bad(fs->verifier, &bad))
		return;
	if (err)
		counter_inc(lost);
	else
		counter_inc(corrupt);
	bool has_record = !catalog_object_get(fs->catalog, o->id, &r);
	log_error("object %016llx (\"%s\" in directory %llu): frame %016llx of %s %s%s",
		  (unsigned long long)o->id, has_record && r.name_len ? r.name : "?",
		  (unsigned long long)r.parent, (unsigned long long)frame,
		  bad.is_dram ? "dram" : "ssd",
		  err == ENOENT ? "is missing" : err ? "cannot be read: " : "is corrupt",
		  err && err != ENOENT ? strerror(err) : "");
	if (has_record)
		object_record_fini(&r);
}

void verify_drop_bad(struct fs *fs)
{
	struct verifier *v = fs->verifier;

	for (;;) {
		pthread_mutex_lock(&v->lock);
		bool has_one = v->n_dropped != v->n_added;
		struct bad_copy *at = &v->bad[v->n_dropped % MAX_BAD], bad = *at;
		v->n_dropped += has_one;
		pthread_mutex_unlock(&v->lock);
		if (!has_one)
			return;
		if (!copies_lose(fs, bad.object_id, bad.is_dram ? fs->dram : fs->ssd, bad.frame))
			continue;
		guard_lock(&v->lock);
		if (at->frame == bad.frame)
			at->frame = 0; /* who meets it next tells of it again */
	}
}

/* ---- checks ---- */

bool verify_agrees(const struct object_record *r, const uint32_t *crc, size_t n_crc)
{
	return !r->n_crc || (r->n_crc == n_crc && !memcmp(r->crc, crc, n_crc * sizeof(*crc)));
}

static int read_step(int fd, char *buf, size_t len, uint64_t off)
{
	ssize_t n = pread_full(fd, buf, len, off);

	return n < 0 ? (int)n : (size_t)n < len ? -EBADMSG : 0;
}

static bool is_interrupted(const struct space_wait *w)
{
	return w && w->is_interrupted && w->is_interrupted(w->arg);
}

/* 0, -EBADMSG: wrong bytes; -EINTR; an error of the disk. */
static int check_bytes(int fd, const struct object_record *r, const struct space_wait *w)
{
	size_t len = r->size < STEP_BYTES ? r->size : STEP_BYTES;
	autofree char *buf = malloc(len + 1);
	int rc = buf ? 0 : -ENOMEM;

	for (uint32_t k = 0; !rc && k < r->n_crc; k++) {
		uint64_t off = (uint64_t)k * STEP_BYTES;
		size_t n = r->size - off < len ? (size_t)(r->size - off) : len;
		rc = is_interrupted(w) ? -EINTR : read_step(fd, buf, n, off);
		if (!rc && crc32c(0, buf, n) != r->crc[k])
			rc = -EBADMSG;
	}
	return rc;
}

static int check_record(struct fs *fs, struct object *o, int fd, uint64_t frame,
			const struct space_wait *w)
{
	struct object_record r;
	int rc = catalog_object_get(fs->catalog, o->id, &r);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc; /* replaced or unlinked: nothing tells what it was */
	counter_inc(verifications);
	rc = r.size == o->size ? check_bytes(fd, &r, w) : -EBADMSG;
	object_record_fini(&r);
	if (!rc) {
		o->is_ssd_checked = true;
		verify_stamp(fd, frame);
	}
	return rc;
}

static int check(struct fs *fs, struct object *o, struct tier *t, int fd, uint64_t frame,
		 const struct space_wait *w)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size != o->size)
		return -EBADMSG;
	if (t == fs->dram || (o->is_ssd_checked && st.st_mtim.tv_sec == stamp_of(frame)))
		return 0;
	return check_record(fs, o, fd, frame, w);
}

static bool is_transient(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -EINTR;
}

static uint64_t frame_on(const struct fs *fs, const struct object *o, const struct tier *t)
{
	return t == fs->dram ? o->dram_frame : o->ssd_frame;
}

int verify_open(struct fs *fs, struct object *o, struct tier *t, const struct space_wait *w)
{
	uint64_t frame = frame_on(fs, o, t);
	int fd = frame ? tier_call(t, open, frame) : -ENOENT;
	int rc = fd < 0 ? fd : check(fs, o, t, fd, frame, w);

	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	if (!frame || is_transient(rc))
		return rc;
	if (rc == -ESTALE || frame_on(fs, o, t) != frame)
		return -ENOENT; /* given up meanwhile, as a copy that is not the last may be */
	if (fd >= 0 && rc != -EBADMSG)
		tier_call(t, report_error, frame, rc);
	verify_report_bad(fs, o, t, frame, rc == -EBADMSG ? 0 : -rc);
	return -ENOENT;
}

/* An open would have to read the ssd frame. */
static bool needs_check(const struct object *o)
{
	return !o->dram_frame && o->ssd_frame && !o->is_ssd_checked;
}

int verify_before_open(struct fs *fs, struct object *o, const struct space_wait *w)
{
	int rc = 0;

	if (!needs_check(o))
		return 0;
	pthread_mutex_lock(&fs->lock);
	while (!rc && needs_check(o) && o->is_verifying) {
		fs_wait_changed(fs, now_mono_ns() + WAIT_SLICE_NS);
		rc = is_interrupted(w) ? -EINTR : 0;
	}
	bool is_mine = !rc && needs_check(o);
	if (is_mine)
		o->is_verifying = true;
	pthread_mutex_unlock(&fs->lock);
	if (!is_mine)
		return rc;
	int fd = verify_open(fs, o, fs->ssd, w);
	if (fd >= 0)
		close(fd);
	pthread_mutex_lock(&fs->lock);
	o->is_verifying = false;
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	return fd == -EINTR ? -EINTR : 0;
}
