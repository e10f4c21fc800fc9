/* SPDX-License-Identifier: Apache-2.0 */
#include "object/scrub.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/parse.h"
#include "base/pread_full.h"
#include "fs.h"
#include "object/object.h"
#include "object/verify.h"

/* Records copied out of the catalog at a time, and their checksums in all. */
#define SLICE_OBJECTS 64
#define SLICE_CRCS 65536u
/* What a rate lets through at once. */
#define BURST_NS 100000000

struct scrub {
	struct fs *fs;
	pthread_t thread;
	bool has_thread; /* to be joined */
	char *buf;	 /* of CATALOG_CRC_CHUNK bytes, while it runs */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	bool is_stopping;
	int64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
	struct scrub_status status;
};

/* A frame to be checked, as its record has it. */
struct item {
	uint64_t object_id, frame, size;
	uint32_t *crc; /* NULL: not known */
	uint32_t n_crc;
};

struct slice {
	struct item items[SLICE_OBJECTS];
	size_t n;
	uint64_t n_crcs, last_id;
	bool is_full;
};

const char *scrub_state_name(enum scrub_state state)
{
	static const char *const names[] = { [SCRUB_IDLE] = "idle",
					     [SCRUB_RUNNING] = "running",
					     [SCRUB_FINISHED] = "finished",
					     [SCRUB_STOPPED] = "stopped",
					     [SCRUB_FAILED] = "failed" };

	return names[state];
}

/* ---- the records ---- */

static int slice_add(void *arg, const struct object_record *r)
{
	struct slice *s = arg;
	struct item *i = &s->items[s->n];

	s->last_id = r->object_id;
	if (!r->ssd_frame || !r->size || r->is_promise)
		return 0;
	*i = (struct item){ r->object_id, r->ssd_frame, r->size, NULL, r->n_crc };
	if (r->n_crc) {
		i->crc = malloc(r->n_crc * sizeof(*i->crc));
		if (!i->crc)
			return -ENOMEM;
		memcpy(i->crc, r->crc, r->n_crc * sizeof(*i->crc));
	}
	s->n++;
	s->n_crcs += r->n_crc;
	s->is_full = s->n == SLICE_OBJECTS || s->n_crcs >= SLICE_CRCS;
	return s->is_full;
}

static void slice_fini(struct slice *s)
{
	for (size_t k = 0; k < s->n; k++)
		free(s->items[k].crc);
}

/* ---- one frame ---- */

/* Holds the frame that the item tells of; NULL: the object has it no more. */
static struct object *hold(struct fs *fs, const struct item *i)
{
	guard_lock(&fs->lock);
	struct object *o = object_find_locked(fs, i->object_id);
	if (!o || o->state != OBJECT_LIVE || o->is_evicting || o->ssd_frame != i->frame)
		return NULL;
	object_open_locked(o);
	return o;
}

/* Waits until the rate lets bytes_checked be so many. Returns whether to go on. */
static bool keep_rate(struct scrub *s, uint64_t more_bytes)
{
	guard_lock(&s->lock);
	struct scrub_status *st = &s->status;
	st->bytes_checked += more_bytes;
	if (st->rate_bytes) {
		double due_ns = (double)st->bytes_checked / (double)st->rate_bytes * 1e9;
		int64_t at = s->start_ns + (int64_t)due_ns - BURST_NS;
		while (!s->is_stopping && now_mono_ns() < at && !clock_cond_wait(&s->wake, &s->lock, at))
			;
	}
	return !s->is_stopping;
}

static int read_chunk(struct scrub *s, int fd, size_t len, uint64_t off)
{
	ssize_t n = pread_full(fd, s->buf, len, off);

	return n < 0 ? (int)n : (size_t)n < len ? -EIO : 0;
}

enum verdict { GOOD, BAD, NOT_NOW };

/* *err_out: of a bad one, positive errno, 0: its bytes are wrong. */
static enum verdict check_bytes(struct scrub *s, const struct item *i, int fd, int *err_out)
{
	struct stat st;

	*err_out = 0;
	if (fstat(fd, &st) || (uint64_t)st.st_size != i->size)
		return BAD;
	if (!i->crc)
		return GOOD;
	/* What is in the page cache says nothing of the disk, and what is read is not needed soon. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (uint32_t k = 0; k < i->n_crc; k++) {
		uint64_t off = (uint64_t)k * CATALOG_CRC_CHUNK, left = i->size - off;
		size_t len = left < CATALOG_CRC_CHUNK ? (size_t)left : CATALOG_CRC_CHUNK;
		int rc = read_chunk(s, fd, len, off);
		if (rc) {
			*err_out = -rc;
			return BAD;
		}
		if (crc32c(0, s->buf, len) != i->crc[k])
			return BAD;
		if (!keep_rate(s, len))
			return NOT_NOW;
	}
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return GOOD;
}

static bool is_our_shortage(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
}

static enum verdict check_frame(struct scrub *s, const struct item *i)
{
	struct fs *fs = s->fs;
	struct object *o = hold(fs, i);
	enum verdict verdict = BAD;
	int err;

	if (!o)
		return NOT_NOW;
	int fd = tier_call(fs->ssd, open, i->frame);
	if (fd >= 0) {
		verdict = check_bytes(s, i, fd, &err);
		close(fd);
	} else if (is_our_shortage(fd)) {
		verdict = NOT_NOW;
	} else {
		err = -fd;
	}
	if (verdict == BAD)
		verify_report_bad(fs, o, fs->ssd, i->frame, err);
	object_close(fs, o);
	if (verdict == BAD)
		verify_drop_bad(fs); /* not left to a list that may be full */
	return verdict;
}

/* ---- the walk ---- */

/* Returns whether to go on. */
static bool check_slice(struct scrub *s, const struct slice *slice)
{
	for (size_t k = 0; k < slice->n; k++) {
		enum verdict verdict = check_frame(s, &slice->items[k]);
		guard_lock(&s->lock);
		s->status.n_checked += verdict != NOT_NOW;
		s->status.n_bad += verdict == BAD;
		s->status.n_without_checksum += verdict == GOOD && !slice->items[k].crc;
		if (s->is_stopping)
			return false;
	}
	return true;
}

static enum scrub_state walk(struct scrub *s)
{
	uint64_t after = 0;

	for (;;) {
		struct slice slice = { .n = 0 };
		int rc = catalog_scan_objects_after(s->fs->catalog, after, slice_add, &slice, NULL);
		bool goes_on = rc >= 0 && check_slice(s, &slice);
		after = slice.last_id;
		slice_fini(&slice);
		if (rc < 0)
			return SCRUB_FAILED;
		if (!goes_on)
			return SCRUB_STOPPED;
		if (!slice.is_full)
			return SCRUB_FINISHED;
	}
}

static void *run(void *arg)
{
	struct scrub *s = arg;
	char size[16];

	s->buf = malloc(CATALOG_CRC_CHUNK);
	enum scrub_state state = s->buf ? walk(s) : SCRUB_FAILED;
	free(s->buf);
	s->buf = NULL;
	guard_lock(&s->lock);
	s->status.state = state;
	s->end_ns = now_mono_ns();
	log_info("scrub %s: %" PRIu64 " frames, %s, %" PRIu64 " bad copies given up",
		 scrub_state_name(state), s->status.n_checked,
		 format_size(s->status.bytes_checked, size, sizeof(size)), s->status.n_bad);
	return NULL;
}

/* ---- life ---- */

struct scrub *scrub_create(struct fs *fs)
{
	struct scrub *s = xcalloc(1, sizeof(*s));

	s->fs = fs;
	pthread_mutex_init(&s->lock, NULL);
	clock_cond_init(&s->wake);
	return s;
}

void scrub_stop(struct scrub *s)
{
	guard_lock(&s->lock);
	s->is_stopping = true;
	pthread_cond_signal(&s->wake);
}

void scrub_destroy(struct scrub *s)
{
	if (!s)
		return;
	scrub_stop(s);
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free(s);
}

int scrub_start(struct scrub *s, uint64_t rate_bytes)
{
	struct tier_stats tier;

	tier_call(s->fs->ssd, get_stats, &tier);
	guard_lock(&s->lock);
	if (s->status.state == SCRUB_RUNNING)
		return -EBUSY;
	if (s->has_thread)
		pthread_join(s->thread, NULL); /* it has given its result: it is at its end */
	struct scrub_status before = s->status;
	s->start_ns = now_mono_ns();
	s->is_stopping = false;
	s->status = (struct scrub_status){ .state = SCRUB_RUNNING,
					   .started_s = now_real_ns() / 1000000000,
					   .rate_bytes = rate_bytes,
					   .n_frames = tier.n_sealed };
	int rc = pthread_create(&s->thread, NULL, run, s);
	s->has_thread = !rc;
	if (rc)
		s->status = before;
	return -rc;
}

void scrub_get_status(struct scrub *s, struct scrub_status *out)
{
	guard_lock(&s->lock);
	*out = s->status;
	if (out->state == SCRUB_RUNNING)
		out->elapsed_ms = (uint64_t)(now_mono_ns() - s->start_ns) / 1000000;
	else if (out->state != SCRUB_IDLE)
		out->elapsed_ms = (uint64_t)(s->end_ns - s->start_ns) / 1000000;
}
