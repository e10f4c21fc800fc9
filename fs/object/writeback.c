/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writeback: see writeback.h. A worker takes jobs one by one and records their results in batches.
 *
 *   job      from                          result
 *   SPILL    the cold end of dram's order  a copy on the ssd; set aside in the reserve
 *   COPY     the queue of copies           a copy on the ssd
 *   PROMOTE  the queue of promotions       a copy in dram
 *
 * From the moment it is taken until its batch is recorded the object is held open and is_copying, so
 * nobody else takes it. Lock: fs->lock for everything shared; a batch belongs to its worker.
 */
#include "object/writeback.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/parse.h"
#include "fs.h"
#include "object/object.h"
#include "object/residency.h"
#include "object/ssd_space.h"
#include "object/verify.h"
#include "options.h"

/* Each waits for its disk at the end of an object; with four it always has something to do. */
#define N_WORKERS 4
/* A batch is recorded when it has so much, or is so old. */
#define BATCH_BYTES (8ull << 20)
#define BATCH_NS (50ll * 1000 * 1000)
/* An idle worker looks for work that nobody told of. */
#define IDLE_NS (1000ll * 1000 * 1000)
/* Objects set aside before others get fs->lock. */
#define MAX_SET_ASIDE 256
/* After a failure that will pass. */
#define RETRY_NS (100ll * 1000 * 1000)

enum job_kind { JOB_NONE, JOB_SPILL, JOB_COPY, JOB_PROMOTE };

struct job {
	enum job_kind kind;
	struct object *o;
	uint64_t charged_bytes; /* of its dram frame */
	uint32_t used_s;        /* when it was taken */
	int rc;
	uint32_t *crc;
};

struct batch {
	struct job jobs[COPIES_BATCH];
	struct copy_change changes[COPIES_BATCH];
	size_t n;
	uint64_t bytes;
	int64_t began_ns;
};

struct writeback {
	struct fs *fs;
	pthread_t threads[N_WORKERS];
	uint32_t n_threads;
	bool is_draining;          /* constant while threads run */
	_Atomic bool is_stopping;
};

/* ---- taking jobs ---- */

/*
 * fs->lock held. What is clean already is set aside on the way, releasing the lock now and then. NULL:
 * enough is, or nothing more can be.
 */
static struct object *next_spill(struct fs *fs)
{
	struct residency *r = fs->residency;
	struct tier_stats s;

	tier_call(fs->dram, get_stats, &s);
	for (uint32_t n = 1; residency_is_short_locked(fs, &s); n++) {
		struct object *o = residency_pick_locked(fs, r->dram);
		if (!o || !residency_may_go_locked(fs, o))
			return o;
		residency_set_aside_locked(fs, o);
		if (n % MAX_SET_ASIDE == 0) {
			pthread_mutex_unlock(&fs->lock);
			pthread_mutex_lock(&fs->lock);
		}
	}
	return NULL;
}

static void count_in_flight(struct residency *r, const struct job *j, int n)
{
	if (j->kind == JOB_PROMOTE) {
		r->n_promoting += (uint32_t)n;
		return;
	}
	r->n_copying += (uint32_t)n;
	r->copying_bytes += n > 0 ? j->o->size : -j->o->size;
}

static bool take_job(struct writeback *wb, struct job *j)
{
	struct fs *fs = wb->fs;
	struct residency *r = fs->residency;

	*j = (struct job){ .kind = JOB_SPILL, .o = wb->is_draining ? NULL : next_spill(fs) };
	if (!j->o)
		*j = (struct job){ .kind = JOB_COPY, .o = residency_pop_locked(fs, &r->copies) };
	if (!j->o && !wb->is_draining)
		*j = (struct job){ .kind = JOB_PROMOTE,
				   .o = residency_pop_locked(fs, &r->promotions) };
	if (!j->o)
		return false;
	object_open_locked(j->o);
	j->o->is_copying = true;
	j->charged_bytes = j->o->charged_bytes;
	j->used_s = j->o->used_s;
	count_in_flight(r, j, 1);
	if (j->kind == JOB_SPILL)
		r->spilling_bytes += j->charged_bytes;
	return true;
}

/* The next job; without one, waits for it if may_wait. False: none. */
static bool next_job(struct writeback *wb, bool may_wait, struct job *j)
{
	struct fs *fs = wb->fs;

	guard_lock(&fs->lock);
	while (!wb->is_stopping) {
		if (take_job(wb, j))
			return true;
		if (!may_wait)
			return false;
		int64_t at = now_mono_ns() + IDLE_NS;
		struct timespec ts = { at / 1000000000, at % 1000000000 };
		pthread_cond_timedwait(&fs->residency->work, &fs->lock, &ts);
	}
	return false;
}

/* ---- doing them ---- */

static bool must_stop(void *arg)
{
	return ((struct writeback *)arg)->is_stopping;
}

static struct copies_fd make_source(struct writeback *wb)
{
	struct copies_fd source = { .fd = -1, .limits = { .is_cancelled = must_stop, .arg = wb } };

	source.limits.bytes_per_second = wb->is_draining ? 0 : wb->fs->opt->writeback_rate;
	return source;
}

/* The bytes in dram, compared with the record's checksums on the way. */
static int copy_checked(struct writeback *wb, struct job *j, const struct object_record *r,
			struct copy_change *c)
{
	struct fs *fs = wb->fs;
	struct object *o = j->o;
	uint32_t n = (uint32_t)((o->size + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	struct copies_fd source = make_source(wb);
	uint64_t frame, dram_frame = o->dram_frame;
	bool must_sync = o->class == MCFS_CLASS_KEEP;

	source.fd = verify_open(fs, o, fs->dram, NULL);
	if (source.fd < 0)
		return source.fd == -ENOENT ? -ESTALE : source.fd;
	source.crc = j->crc = xcalloc(n, sizeof(*j->crc));
	int rc = copies_to_ssd(fs, o->size, copies_fill_fd, &source, must_sync, &frame);
	close(source.fd);
	bool is_wrong = !rc && !verify_agrees(r, j->crc, n);
	if (is_wrong)
		tier_call(fs->ssd, drop, frame, o->size, ssd_charge(o->size));
	if (is_wrong || source.failed == FRAME_COPY_SRC) {
		verify_report_bad(fs, o, fs->dram, dram_frame, is_wrong ? 0 : -rc);
		return -ESTALE;
	}
	if (!rc)
		*c = (struct copy_change){ .o = o, .frame = frame, .is_synced = must_sync,
					   .crc = j->crc, .n_crc = n };
	return rc;
}

/* 0: *c is to be recorded. -EALREADY: nothing is; -ESTALE: no object to copy any more. */
static int do_job(struct writeback *wb, struct job *j, struct copy_change *c)
{
	struct fs *fs = wb->fs;
	struct object_record r;

	if (j->kind == JOB_PROMOTE) {
		struct copies_fd source = make_source(wb);
		return promote_copy(fs, j->o, &source, c);
	}
	if (j->o->ssd_frame) {
		/* Found at the start: its dram frame does not go on the word of the record alone. */
		int fd = verify_open(fs, j->o, fs->ssd, NULL);
		if (fd >= 0)
			close(fd);
		if (fd != -ENOENT)
			return fd < 0 ? fd : -EALREADY;
		verify_drop_bad(fs);
		if (j->o->ssd_frame)
			return -EAGAIN;
	}
	int rc = catalog_object_get(fs->catalog, j->o->id, &r);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = copy_checked(wb, j, &r, c);
	object_record_fini(&r);
	if (rc == -ESTALE)
		verify_drop_bad(fs);
	return rc;
}

/* ---- finishing them ---- */

/* It has no copy and will not get one by trying again. */
static bool is_final(int rc)
{
	return rc && rc != -EALREADY && rc != -ESTALE && rc != -ECANCELED && rc != -EAGAIN &&
	       rc != -EINTR && rc != -EMFILE && rc != -ENFILE && rc != -ENOMEM;
}

/* fs->lock held. Returns a passthrough id to close, or 0. */
static int32_t settle_locked(struct fs *fs, struct job *j)
{
	struct residency *r = fs->residency;
	struct object *o = j->o;

	o->is_copying = false;
	count_in_flight(r, j, -1);
	if (j->kind == JOB_PROMOTE)
		return o->dram_frame ? object_renew_backing_locked(fs, o) : 0;
	if (j->kind == JOB_SPILL)
		r->spilling_bytes -= j->charged_bytes;
	o->goes_without |= is_final(j->rc) || j->rc == -ESTALE;
	if (j->kind == JOB_COPY && j->rc && !is_final(j->rc) && j->rc != -ESTALE && j->rc != -EALREADY)
		residency_unpop_locked(fs, o, QUEUE_COPIES);
	residency_place_locked(fs, o, 0);
	if (j->kind == JOB_SPILL && o->used_s == j->used_s && residency_may_go_locked(fs, o))
		residency_set_aside_locked(fs, o);
	return 0;
}

static void count(const struct job *j, bool is_recorded)
{
	uint64_t size = j->o->size;

	if (is_recorded && j->kind == JOB_PROMOTE) {
		counter_inc(promotions);
		counter_add(promoted_bytes, size);
	} else if (is_recorded) {
		counter_inc(writeback_objects);
		counter_add(writeback_bytes, size);
	} else if (is_final(j->rc) && j->kind != JOB_PROMOTE) {
		counter_inc(writeback_failures);
	}
}

static void finish(struct fs *fs, struct job *j, bool is_recorded)
{
	count(j, is_recorded);
	pthread_mutex_lock(&fs->lock);
	int32_t id = settle_locked(fs, j);
	bool must_free = object_close_locked(fs, j->o);
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	if (id)
		fs->close_backing(fs, id);
	if (must_free)
		object_free_unlocked(fs, j->o);
	free(j->crc);
}

static void record_batch(struct fs *fs, struct batch *b)
{
	int rc = b->n ? copies_record(fs, b->changes, b->n, false) : 0;

	for (size_t k = 0; k < b->n; k++) {
		b->jobs[k].rc = rc ? -EAGAIN : 0; /* the catalog logged why; it may take writes again */
		finish(fs, &b->jobs[k], b->changes[k].is_recorded);
	}
	b->n = 0;
	b->bytes = 0;
}

static bool is_full(const struct batch *b)
{
	return b->n == COPIES_BATCH || b->bytes >= BATCH_BYTES ||
	       (b->n && now_mono_ns() - b->began_ns >= BATCH_NS);
}

/* ---- workers ---- */

static void pause_worker(struct writeback *wb)
{
	int64_t until_ns = now_mono_ns() + RETRY_NS;

	guard_lock(&wb->fs->lock);
	while (!wb->is_stopping && now_mono_ns() < until_ns) {
		struct timespec ts = { until_ns / 1000000000, until_ns % 1000000000 };
		pthread_cond_timedwait(&wb->fs->residency->work, &wb->fs->lock, &ts);
	}
}

/* Adds the job's result to the batch, or ends it. True: what failed will fail again right now. */
static bool run_job(struct writeback *wb, struct batch *b, struct job *j)
{
	struct copy_change *c = &b->changes[b->n];

	*c = (struct copy_change){ 0 };
	j->rc = do_job(wb, j, c);
	if (j->rc) {
		bool is_passing = !is_final(j->rc) && j->rc != -EALREADY && j->rc != -ESTALE;
		finish(wb->fs, j, false);
		return is_passing;
	}
	if (!b->n)
		b->began_ns = now_mono_ns();
	b->jobs[b->n++] = *j;
	b->bytes += j->o->size;
	return false;
}

static void *run(void *arg)
{
	struct writeback *wb = arg;
	struct batch *b = xcalloc(1, sizeof(*b));
	struct job j;

	for (;;) {
		if (!b->n)
			ssd_space_trim(wb->fs);
		bool has_job = next_job(wb, !b->n, &j);
		bool must_pause = has_job && run_job(wb, b, &j);
		if (!has_job && !b->n)
			break; /* stopping */
		if (!has_job || is_full(b))
			record_batch(wb->fs, b);
		if (must_pause)
			pause_worker(wb);
	}
	free(b);
	return NULL;
}

static int start(struct fs *fs, bool is_draining)
{
	struct writeback *wb = xcalloc(1, sizeof(*wb));
	/* One worker keeps the rate by itself. */
	uint32_t n = fs->opt->writeback_rate && !is_draining ? 1 : N_WORKERS;
	int rc = 0;

	wb->fs = fs;
	wb->is_draining = is_draining;
	for (; !rc && wb->n_threads < n; wb->n_threads += !rc)
		rc = pthread_create(&wb->threads[wb->n_threads], NULL, run, wb);
	pthread_mutex_lock(&fs->lock);
	fs->writeback = wb;
	pthread_mutex_unlock(&fs->lock);
	if (!wb->n_threads) {
		log_error("cannot start a thread: %s", strerror(rc));
		writeback_stop(fs);
		return -rc;
	}
	return 0;
}

int writeback_start(struct fs *fs)
{
	return start(fs, false);
}

void writeback_stop(struct fs *fs)
{
	struct writeback *wb = fs->writeback;

	if (!wb)
		return;
	wb->is_stopping = true;
	pthread_mutex_lock(&fs->lock);
	pthread_cond_broadcast(&fs->residency->work);
	pthread_mutex_unlock(&fs->lock);
	for (uint32_t k = 0; k < wb->n_threads; k++)
		pthread_join(wb->threads[k], NULL);
	pthread_mutex_lock(&fs->lock);
	fs->writeback = NULL;
	pthread_mutex_unlock(&fs->lock);
	free(wb);
}

void writeback_kick(struct fs *fs, const struct tier_stats *dram)
{
	if (!fs->residency->spills || dram->used_bytes <= dram->high_watermark_bytes)
		return;
	guard_lock(&fs->lock);
	if (residency_is_short_locked(fs, dram))
		pthread_cond_signal(&fs->residency->work);
}

/* ---- the end ---- */

static void queue_unsaved(void *arg, struct object *o)
{
	struct fs *fs = arg;

	o->goes_without = false;
	residency_queue_copy_locked(fs, o);
}

/* All that is in dram alone, the coldest first, what is held there last. */
static void queue_all_locked(struct fs *fs)
{
	struct policy *dram = fs->residency->dram;

	for (struct policy_node *n = dram->ops->victim(dram, NULL); n; n = dram->ops->victim(dram, n))
		queue_unsaved(fs, residency_object(fs, dram, n));
	object_visit_locked(fs, queue_unsaved, fs);
}

static void say_progress(uint64_t done, uint64_t total, uint64_t left_bytes)
{
	char size[16];

	log_info("write-back: %" PRIu64 " of %" PRIu64 " objects, %s left", done, total,
		 format_size(left_bytes, size, sizeof(size)));
}

/* Objects and bytes that are still to be copied, after something may have changed. */
static uint64_t look_at_queue(struct fs *fs, uint64_t *bytes_out)
{
	guard_lock(&fs->lock);
	if (fs->writeback)
		fs_wait_changed(fs, now_mono_ns() + RETRY_NS);
	*bytes_out = fs->residency->copies.bytes + fs->residency->copying_bytes;
	return fs->residency->copies.n + fs->residency->n_copying;
}

void writeback_drain(struct fs *fs, bool saves_dram, const volatile sig_atomic_t *is_cancelled)
{
	int64_t began_ns = now_mono_ns(), said_ns = began_ns, now = began_ns;
	uint64_t left_bytes, failures = counter_get(COUNTER_writeback_failures);

	pthread_mutex_lock(&fs->lock);
	if (saves_dram && fs->residency->spills)
		queue_all_locked(fs);
	uint64_t total = fs->residency->copies.n, left = total;
	left_bytes = fs->residency->copies.bytes;
	pthread_mutex_unlock(&fs->lock);
	if (!total)
		return;
	say_progress(0, total, left_bytes);
	if (start(fs, true))
		return;
	while (left && !*is_cancelled && now - began_ns < WRITEBACK_DRAIN_MAX_S * 1000000000ll) {
		left = look_at_queue(fs, &left_bytes);
		now = now_mono_ns();
		if (now - said_ns >= 1000000000) {
			say_progress(total - left, total, left_bytes);
			said_ns = now;
		}
	}
	writeback_stop(fs);
	left = look_at_queue(fs, &left_bytes);
	failures = counter_get(COUNTER_writeback_failures) - failures;
	if (left || failures)
		log_warn("write-back: ended %s; %" PRIu64 " of %" PRIu64 " objects are not on the disk",
			 left ? "early" : "with errors", left + failures, total);
	else
		log_info("write-back: done, %" PRIu64 " objects", total);
}
