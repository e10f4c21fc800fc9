/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trial.h"

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/crew.h"
#include "cli/mount.h"
#include "mooncakefs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 40

/* The times of one lane in one phase. */
struct span {
	uint64_t begin_ns, end_ns, cpu_ns;
};

struct lane {
	struct mcfs_request *requests;
	char (*names)[NAME_BYTES]; /* n_items */
	const char **pointers;	   /* to them */
	char *shared, *plain;	   /* n_items * size each */
	struct span span;
	int error;
};

struct trial {
	const struct trial_setting *s;
	enum trial_op op;
	char path[PATH_MAX]; /* the directory of the objects */
	int dir_fd;
	struct mcfs_session *session;
	struct mcfs_dir *dir;
	struct mcfs_buffer *buffer;
	char *plain;
	size_t bytes; /* of buffer and plain, all lanes */
	struct lane *lanes;
	struct crew *crew; /* NULL: one lane */
	void (*phase)(struct trial *t, struct lane *l);
	uint64_t round;
	clockid_t daemon_clock;
	bool has_daemon_clock;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	return clock_gettime(clock, &t) ? 0 : (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool moves_bytes(enum trial_op op)
{
	return op == TRIAL_READ || op == TRIAL_WRITE;
}

/* ---- setting up ---- */

static int fail(int error, const char *what)
{
	cli_error("bench: %s: %s", what, mcfs_strerror(error));
	return error;
}

static int make_dir(struct trial *t)
{
	int n = snprintf(t->path, sizeof(t->path), "%s/mooncakectl-bench-XXXXXX", t->s->mount);

	if (n >= (int)sizeof(t->path))
		return fail(-ENAMETOOLONG, t->s->mount);
	if (!mkdtemp(t->path)) {
		int rc = -errno;
		*t->path = '\0';
		cli_error("bench: %s: cannot make a directory in it: %s", t->s->mount,
			  strerror(-rc));
		return rc;
	}
	t->dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return t->dir_fd < 0 ? fail(-errno, t->path) : 0;
}

static int open_session(struct trial *t)
{
	int rc = mcfs_session_open(t->s->mount, 0, &t->session);

	if (rc)
		return fail(rc, "session");
	rc = mcfs_dir_open(t->session, t->path, &t->dir);
	if (rc)
		return fail(rc, "directory");
	rc = mcfs_buffer_alloc(t->session, t->bytes, &t->buffer);
	if (rc)
		return fail(rc, "memory shared with the daemon");
	t->plain = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t->plain == MAP_FAILED) {
		t->plain = NULL;
		return fail(-ENOMEM, "memory");
	}
	madvise(t->plain, t->bytes, MADV_HUGEPAGE); /* as the buffer has them */
	return 0;
}

static int lane_init(struct trial *t, struct lane *l, unsigned number)
{
	const struct trial_setting *s = t->s;
	size_t bytes = t->bytes / s->n_lanes;
	uint64_t piece = s->size / s->n_segments;

	l->requests = calloc(s->n_items, sizeof(*l->requests));
	l->names = calloc(s->n_items, sizeof(*l->names));
	l->pointers = calloc(s->n_items, sizeof(*l->pointers));
	if (!l->requests || !l->names || !l->pointers)
		return fail(-ENOMEM, "requests");
	l->shared = (char *)mcfs_buffer_memory(t->buffer) + number * bytes;
	l->plain = t->plain + number * bytes;
	memset(l->plain, (int)(number + 1), bytes);
	memset(l->shared, (int)(number + 1), bytes);
	for (uint32_t i = 0; i < s->n_items; i++) {
		l->pointers[i] = l->names[i];
		l->requests[i] = (struct mcfs_request){.dir = t->dir,
						       .name = l->names[i],
						       .memory = l->shared + i * piece,
						       .stride = s->n_items * piece,
						       .segment_bytes = (uint32_t)piece,
						       .segment_count = s->n_segments};
	}
	return 0;
}

static void lane_name(struct trial *t, struct lane *l, uint64_t round)
{
	for (uint32_t i = 0; i < t->s->n_items; i++)
		snprintf(l->names[i], NAME_BYTES, "%02x%014llx%016x", (unsigned)(l - t->lanes),
			 (unsigned long long)round, (unsigned)i);
}

/* ---- phases ---- */

static void lane_fail(struct lane *l, int error, const char *what)
{
	/* A signal is told by who sent it. */
	l->error = error == -EINTR ? error : fail(error, what);
}

static int first_bad(const struct trial *t, const struct lane *l)
{
	for (uint32_t i = 0; i < t->s->n_items; i++)
		if (l->requests[i].status)
			return l->requests[i].status;
	return -EIO;
}

static void call_write(struct trial *t, struct lane *l)
{
	long n = mcfs_write_batch(t->session, l->requests, t->s->n_items, NULL);

	if (n != (long)t->s->n_items)
		lane_fail(l, n < 0 ? (int)n : first_bad(t, l), "write");
}

static void call_read(struct trial *t, struct lane *l)
{
	long n = mcfs_read_batch(t->session, l->requests, t->s->n_items, NULL);

	if (n != (long)t->s->n_items)
		lane_fail(l, n < 0 ? (int)n : first_bad(t, l),
			  "read (were objects evicted? the mount's DRAM may be too small)");
}

static void call_lookup(struct trial *t, struct lane *l)
{
	const struct mcfs_names names = {.strings = l->pointers, .n = t->s->n_items};
	long n = mcfs_lookup_prefix(t->session, t->dir, &names, NULL, NULL);
	long expected = t->op == TRIAL_LOOKUP_PRESENT ? (long)t->s->n_items : 0;

	if (n != expected)
		lane_fail(l, n < 0 ? (int)n : -ENOENT, "lookup (were objects evicted?)");
}

static void phase_call(struct trial *t, struct lane *l)
{
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	l->span.begin_ns = clock_ns(CLOCK_MONOTONIC);
	if (t->op == TRIAL_READ)
		call_read(t, l);
	else if (t->op == TRIAL_WRITE)
		call_write(t, l);
	else
		call_lookup(t, l);
	l->span.end_ns = clock_ns(CLOCK_MONOTONIC);
	l->span.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

/* Piece by piece, as the requests say. */
static void phase_copy(struct trial *t, struct lane *l)
{
	uint64_t piece = t->s->size / t->s->n_segments;
	char *to = t->op == TRIAL_READ ? l->shared : l->plain;
	const char *from = t->op == TRIAL_READ ? l->plain : l->shared;

	l->span.begin_ns = clock_ns(CLOCK_MONOTONIC);
	for (uint32_t i = 0; i < t->s->n_items; i++)
		for (uint32_t k = 0; k < t->s->n_segments; k++) {
			uint64_t at = ((uint64_t)k * t->s->n_items + i) * piece;
			memcpy(to + at, from + at, piece);
		}
	l->span.end_ns = clock_ns(CLOCK_MONOTONIC);
}

static void phase_prepare(struct trial *t, struct lane *l)
{
	lane_name(t, l, 0);
	if (t->op != TRIAL_WRITE && t->op != TRIAL_LOOKUP_MISSING)
		call_write(t, l);
	if (t->op == TRIAL_READ && !l->error) {
		memset(l->shared, 0, t->bytes / t->s->n_lanes);
		call_read(t, l);
		if (!l->error && memcmp(l->shared, l->plain, t->bytes / t->s->n_lanes))
			lane_fail(l, -EIO, "what was read is not what was written");
	}
}

static void phase_name(struct trial *t, struct lane *l)
{
	lane_name(t, l, t->round);
}

static void phase_remove(struct trial *t, struct lane *l)
{
	for (uint32_t i = 0; i < t->s->n_items; i++)
		if (unlinkat(t->dir_fd, l->names[i], 0) && errno != ENOENT)
			lane_fail(l, -errno, l->names[i]);
}

/* ---- rounds ---- */

static void crew_phase(void *arg, unsigned worker, size_t item)
{
	struct trial *t = arg;

	t->phase(t, &t->lanes[item]);
}

/* Every lane does it. Returns 0 or the error of one. */
static int phase(struct trial *t, void (*fn)(struct trial *t, struct lane *l))
{
	t->phase = fn;
	if (t->crew) {
		crew_begin(t->crew, 0, t->s->n_lanes);
		while (!crew_wait(t->crew, 1000))
			;
	} else {
		fn(t, t->lanes);
	}
	for (unsigned i = 0; i < t->s->n_lanes; i++)
		if (t->lanes[i].error)
			return t->lanes[i].error;
	return 0;
}

static uint64_t lanes_span(const struct trial *t)
{
	uint64_t begin = UINT64_MAX, end = 0;

	for (unsigned i = 0; i < t->s->n_lanes; i++) {
		const struct span *s = &t->lanes[i].span;
		begin = s->begin_ns < begin ? s->begin_ns : begin;
		end = s->end_ns > end ? s->end_ns : end;
	}
	return end - begin;
}

static void lanes_add(const struct trial *t, struct histogram *h)
{
	for (unsigned i = 0; i < t->s->n_lanes; i++)
		histogram_add(h, t->lanes[i].span.end_ns - t->lanes[i].span.begin_ns);
}

static int round_calls(struct trial *t, struct trial_result *out)
{
	uint64_t daemon_ns = t->has_daemon_clock ? clock_ns(t->daemon_clock) : 0;
	int rc = phase(t, phase_call);

	if (rc)
		return rc;
	if (t->has_daemon_clock)
		out->daemon_cpu_ns += clock_ns(t->daemon_clock) - daemon_ns;
	out->call_ns += lanes_span(t);
	lanes_add(t, &out->call);
	for (unsigned i = 0; i < t->s->n_lanes; i++)
		out->own_cpu_ns += t->lanes[i].span.cpu_ns;
	out->n_calls += t->s->n_lanes;
	out->n_items += (uint64_t)t->s->n_lanes * t->s->n_items;
	if (moves_bytes(t->op))
		out->bytes += t->bytes;
	return 0;
}

static int round_run(struct trial *t, struct trial_result *out)
{
	int rc = 0;

	t->round++;
	if (t->op == TRIAL_WRITE)
		rc = phase(t, phase_name);
	if (!rc)
		rc = round_calls(t, out);
	if (!rc && moves_bytes(t->op)) {
		rc = phase(t, phase_copy);
		out->copy_ns += lanes_span(t);
		lanes_add(t, &out->copy);
	}
	if (!rc && t->op == TRIAL_WRITE)
		rc = phase(t, phase_remove);
	return rc;
}

static int rounds(struct trial *t, struct trial_result *out)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(t->s->seconds * 1e9);
	int rc = phase(t, phase_prepare);

	/* What the first ones measure is the first touch of everything. */
	for (int i = 0; i < 2 && !rc; i++)
		rc = round_run(t, out);
	if (!rc)
		memset(out, 0, sizeof(*out));
	while (!rc && !atomic_load(t->s->is_stopping)) {
		rc = round_run(t, out);
		if (clock_ns(CLOCK_MONOTONIC) >= end)
			break;
	}
	out->has_daemon_cpu = t->has_daemon_clock;
	return rc == -EINTR && atomic_load(t->s->is_stopping) ? 0 : rc;
}

/* ---- life ---- */

/* The daemon's CPU clock, where its process can be seen from here. */
static void find_daemon(struct trial *t)
{
	json_t *status;
	uint64_t pid;

	if (mount_status(t->s->mount, &status))
		return;
	t->has_daemon_clock = status_number(status, "pid", &pid) &&
			      !clock_getcpuclockid((pid_t)pid, &t->daemon_clock);
	json_decref(status);
}

static void remove_objects(struct trial *t)
{
	DIR *d = t->dir_fd < 0 ? NULL : fdopendir(dup(t->dir_fd));
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(t->dir_fd, e->d_name, 0);
	if (d)
		closedir(d);
	if (*t->path && rmdir(t->path))
		cli_error("bench: %s: cannot remove it: %s", t->path, strerror(errno));
}

static void trial_fini(struct trial *t)
{
	crew_stop(t->crew);
	mcfs_session_close(t->session);
	remove_objects(t);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	if (t->plain)
		munmap(t->plain, t->bytes);
	for (unsigned i = 0; t->lanes && i < t->s->n_lanes; i++) {
		free(t->lanes[i].requests);
		free(t->lanes[i].names);
		free(t->lanes[i].pointers);
	}
	free(t->lanes);
}

static int trial_init(struct trial *t)
{
	int rc = make_dir(t);

	if (!rc)
		rc = open_session(t);
	if (rc)
		return rc;
	t->lanes = calloc(t->s->n_lanes, sizeof(*t->lanes));
	if (!t->lanes)
		return fail(-ENOMEM, "threads");
	for (unsigned i = 0; i < t->s->n_lanes && !rc; i++)
		rc = lane_init(t, &t->lanes[i], i);
	if (!rc && t->s->n_lanes > 1) {
		rc = crew_start(t->s->n_lanes, crew_phase, t, &t->crew);
		if (rc)
			fail(rc, "threads");
	}
	find_daemon(t);
	return rc;
}

int trial_run(enum trial_op op, const struct trial_setting *s, struct trial_result *out)
{
	struct trial t = {.s = s, .op = op, .dir_fd = -1};

	memset(out, 0, sizeof(*out));
	if (__builtin_mul_overflow(s->size, (uint64_t)s->n_items, &t.bytes) ||
	    __builtin_mul_overflow(t.bytes, (size_t)s->n_lanes, &t.bytes))
		return fail(-EOVERFLOW, "the bytes of a batch");
	int rc = trial_init(&t);
	if (!rc)
		rc = rounds(&t, out);
	trial_fini(&t);
	return rc;
}
