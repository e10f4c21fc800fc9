/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of a session against memcpy of the same bytes from a mapped file, lookups against access(2).
 * n_ops of a job is the items of one call.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fast_client.h"
#include "job_fast.h"

#define SEED 300
/* Objects are read in turn from, and into, more than the caches hold. */
#define SET_BYTES (64 * MIB)
#define STRIDED_SET_BYTES (256 * MIB)
#define SEGMENT_BYTES (64 * KIB)
#define WRITE_WINDOW_BYTES (64 * MIB)

struct set {
	const struct bench_env *env;
	struct fast_client client;
	size_t object_bytes, set_bytes;
	uint32_t n_objects, n_items; /* per call */
	uint32_t next[N_SIDES];
	uint64_t number[N_SIDES];    /* WRITE: of the next name */
	char *mapping;               /* of the same bytes in a raw file; WRITE: memory to copy to */
	char *target;                /* where memcpy goes */
	size_t stride;               /* 0: dense */
};

static void object_name(uint64_t k, char out[FAST_NAME_BYTES])
{
	snprintf(out, FAST_NAME_BYTES, "fast-%08llu", (unsigned long long)k);
}

static int make_objects(struct set *s)
{
	char name[FAST_NAME_BYTES], path[JOB_PATH_MAX];
	int rc = 0;

	for (uint32_t k = 0; !rc && k < s->n_objects; k++) {
		object_name(k, name);
		job_path(s->env, SIDE_OURS, name, path);
		rc = bench_file_create(path, s->object_bytes, SEED + k, 0);
	}
	job_path(s->env, SIDE_RAW, "set", path);
	int fd = rc ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (!rc && (fd < 0 || ftruncate(fd, (off_t)s->set_bytes)))
		rc = bench_fail(-errno, "create %s", path);
	if (!rc) {
		void *p = mmap(NULL, s->set_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
		if (p == MAP_FAILED)
			rc = bench_fail(-errno, "map %s", path);
		else
			s->mapping = p;
	}
	for (uint32_t k = 0; !rc && k < s->n_objects; k++)
		pattern_fill(s->mapping + k * s->object_bytes, s->object_bytes, 0, SEED + k);
	if (fd >= 0)
		close(fd);
	job_settle();
	return rc;
}

static void remove_objects(struct set *s)
{
	char name[FAST_NAME_BYTES], path[JOB_PATH_MAX];

	for (uint32_t k = 0; k < s->n_objects; k++) {
		object_name(k, name);
		job_path(s->env, SIDE_OURS, name, path);
		unlink(path);
	}
	job_path(s->env, SIDE_RAW, "set", path);
	unlink(path);
}

/* ---- READ ---- */

static void place(const struct set *s, uint32_t object, size_t *off_out)
{
	/* Strided objects interleave two by two. */
	*off_out = s->stride ? (object & 1) * SEGMENT_BYTES : object * s->object_bytes;
}

static void copy_object(const struct set *s, uint32_t object)
{
	const char *from = s->mapping + object * s->object_bytes;
	size_t off;

	place(s, object, &off);
	if (!s->stride) {
		memcpy(s->target + off, from, s->object_bytes);
	} else {
		for (size_t at = 0, k = 0; at < s->object_bytes; at += SEGMENT_BYTES, k++)
			memcpy(s->target + off + k * s->stride, from + at, SEGMENT_BYTES);
	}
	__asm__ volatile("" : : "r"(s->target) : "memory");
}

static int read_objects(struct set *s, uint32_t first)
{
	char name[FAST_NAME_BYTES];

	for (uint32_t k = 0; k < s->n_items; k++) {
		uint32_t object = (first + k) % s->n_objects;
		size_t off;
		place(s, object, &off);
		object_name(object, name);
		fast_item(&s->client, k, name, off, s->stride ? SEGMENT_BYTES : s->object_bytes,
			  s->stride ? (uint32_t)(s->object_bytes / SEGMENT_BYTES) : 1, s->stride);
	}
	return 0;
}

static int read_call(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct set *s = arg;
	uint32_t first = s->next[side];
	int rc = 0;

	s->next[side] = (first + s->n_items) % s->n_objects;
	if (side == SIDE_OURS)
		read_objects(s, first);
	uint64_t begin_ns = bench_now_ns();
	if (side == SIDE_OURS)
		rc = fast_submit(&s->client, MCFS_OP_READ, s->n_items);
	for (uint32_t k = 0; side == SIDE_RAW && k < s->n_items; k++)
		copy_object(s, (first + k) % s->n_objects);
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc;
}

/* Each object once, alone. */
static int verify_objects(struct set *s)
{
	char name[FAST_NAME_BYTES];
	int rc = 0;

	for (uint32_t k = 0; !rc && k < s->n_objects; k++) {
		object_name(k, name);
		fast_item(&s->client, 0, name, 0, s->object_bytes, 1, 0);
		rc = fast_submit(&s->client, MCFS_OP_READ, 1);
		if (!rc)
			rc = pattern_check(s->client.memory + s->client.data, s->object_bytes, 0, SEED + k, name);
	}
	return rc;
}

static int set_open(struct set *s, const struct job_spec *job, struct bench_env *env, size_t set_bytes,
		    size_t stride)
{
	*s = (struct set){.env = env, .object_bytes = job->io_bytes, .set_bytes = set_bytes,
			  .n_objects = (uint32_t)(set_bytes / job->io_bytes), .n_items = job->n_ops,
			  .stride = stride};
	int rc = fast_open(&s->client, env->dir[SIDE_OURS], job->n_ops, set_bytes);
	s->target = bench_buffer_create(set_bytes);
	if (!rc && !s->target)
		rc = bench_fail(-ENOMEM, "buffer of %zu bytes", set_bytes);
	return rc;
}

static void set_close(struct set *s)
{
	fast_close(&s->client);
	bench_buffer_destroy(s->target, s->set_bytes);
	if (s->mapping)
		munmap(s->mapping, s->set_bytes);
	remove_objects(s);
}

static int run_read(const struct job_spec *job, struct bench_env *env, struct row *row, size_t set_bytes,
		    size_t stride)
{
	struct set s;
	int rc = set_open(&s, job, env, set_bytes, stride);

	if (!rc)
		rc = make_objects(&s);
	if (!rc)
		rc = verify_objects(&s);
	if (!rc)
		rc = job_run_pair(job, env, read_call, &s, job->io_bytes * job->n_ops, row);
	set_close(&s);
	return rc;
}

int job_fast_read(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_read(job, env, row, SET_BYTES, 0);
}

int job_fast_strided(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_read(job, env, row, STRIDED_SET_BYTES, 2 * SEGMENT_BYTES);
}

/* ---- one object by a batch of one, against open, pread, close through the mount ---- */

static int read_one(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct set *s = arg;
	char name[FAST_NAME_BYTES], path[JOB_PATH_MAX];
	uint32_t object = s->next[side]++ % s->n_objects;
	int rc;

	object_name(object, name);
	job_path(s->env, SIDE_OURS, name, path);
	fast_item(&s->client, 0, name, object * s->object_bytes, s->object_bytes, 1, 0);
	uint64_t begin_ns = bench_now_ns();
	if (side == SIDE_OURS) {
		rc = fast_submit(&s->client, MCFS_OP_READ, 1);
	} else {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		rc = fd < 0 ? bench_fail(-errno, "open %s", path) :
			      bench_read_fully(fd, s->target + object * s->object_bytes, s->object_bytes, 0);
		if (fd >= 0)
			close(fd);
	}
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc;
}

int job_fast_one(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct set s;
	int rc = set_open(&s, job, env, SET_BYTES, 0);

	if (!rc)
		rc = make_objects(&s);
	if (!rc)
		rc = job_run_pair(job, env, read_one, &s, job->io_bytes, row);
	set_close(&s);
	return rc;
}

/* ---- WRITE ---- */

static int unlink_older(struct set *s, uint64_t window)
{
	char name[FAST_NAME_BYTES], path[JOB_PATH_MAX];

	for (uint32_t k = 0; s->number[SIDE_OURS] >= window + s->n_items && k < s->n_items; k++) {
		object_name(s->number[SIDE_OURS] - window - s->n_items + k, name);
		job_path(s->env, SIDE_OURS, name, path);
		if (unlink(path))
			return bench_fail(-errno, "unlink %s", path);
	}
	return 0;
}

static int write_call(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct set *s = arg;
	char name[FAST_NAME_BYTES];
	int rc = 0;

	for (uint32_t k = 0; side == SIDE_OURS && k < s->n_items; k++) {
		object_name(s->number[side]++, name);
		fast_item(&s->client, k, name, k * s->object_bytes, s->object_bytes, 1, 0);
	}
	size_t at = s->next[side] * s->object_bytes;
	s->next[side] = (s->next[side] + s->n_items) % s->n_objects;
	uint64_t begin_ns = bench_now_ns();
	if (side == SIDE_OURS)
		rc = fast_submit(&s->client, MCFS_OP_WRITE, s->n_items);
	for (uint32_t k = 0; side == SIDE_RAW && k < s->n_items; k++) {
		memcpy(s->target + at + k * s->object_bytes,
		       s->client.memory + s->client.data + k * s->object_bytes, s->object_bytes);
		__asm__ volatile("" : : "r"(s->target) : "memory");
	}
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc || side == SIDE_RAW ? rc : unlink_older(s, s->n_objects);
}

int job_fast_write(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct set s;
	struct samples unused = {0};
	uint64_t unused_ns;
	int rc = set_open(&s, job, env, WRITE_WINDOW_BYTES, 0);

	/* Fills the window and turns it over once: from then on memory is used again. */
	for (uint32_t k = 0; !rc && k < 2 * s.n_objects / s.n_items; k++)
		rc = write_call(&s, SIDE_OURS, &unused, &unused_ns);
	if (!rc)
		rc = job_run_pair(job, env, write_call, &s, job->io_bytes * job->n_ops, row);
	for (uint32_t k = 0; k < s.n_objects / s.n_items; k++) {
		s.number[SIDE_OURS] += s.n_items;
		unlink_older(&s, s.n_objects);
	}
	samples_fini(&unused);
	s.n_objects = 0;
	set_close(&s);
	return rc;
}

/* ---- LOOKUP ---- */

struct looker {
	struct set set;
	uint32_t names_bytes;
	char (*raw_path)[JOB_PATH_MAX];
	int are_there;
};

static int lookup_call(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct looker *l = arg;
	uint32_t n = l->set.n_items, n_there = 0;
	int rc = 0;

	uint64_t begin_ns = bench_now_ns();
	if (side == SIDE_OURS)
		rc = fast_lookup(&l->set.client, n, l->names_bytes, &n_there);
	for (uint32_t k = 0; side == SIDE_RAW && k < n; k++)
		n_there += access(l->raw_path[k], F_OK) == 0;
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	if (!rc && n_there != (l->are_there ? n : 0))
		rc = bench_fail(-EBADMSG, "%u of %u names are there", n_there, n);
	return rc;
}

static int make_names(struct looker *l, const struct job_spec *job)
{
	struct set *s = &l->set;
	char path[JOB_PATH_MAX], *at = s->client.names;
	int rc = 0;

	l->raw_path = calloc(s->n_items, sizeof(*l->raw_path));
	if (!l->raw_path)
		return bench_fail(-ENOMEM, "paths");
	for (uint32_t k = 0; !rc && k < s->n_items; k++) {
		char name[FAST_NAME_BYTES];
		object_name(k, name);
		snprintf(l->raw_path[k], sizeof(*l->raw_path), "%s/%s", s->env->dir[SIDE_RAW], name);
		at += sprintf(at, "%s", name) + 1;
		for (int side = 0; !rc && l->are_there && side < N_SIDES; side++) {
			job_path(s->env, side, name, path);
			rc = bench_file_create(path, 8, k, 0);
		}
	}
	l->names_bytes = (uint32_t)(at - s->client.names);
	job_settle();
	(void)job;
	return rc;
}

static int run_lookup(const struct job_spec *job, struct bench_env *env, struct row *row, int are_there)
{
	struct looker l = {.set = {.env = env, .n_items = job->n_ops}, .are_there = are_there};
	int rc = fast_open(&l.set.client, env->dir[SIDE_OURS], job->n_ops, 4096);

	if (!rc)
		rc = make_names(&l, job);
	if (!rc)
		rc = job_run_pair(job, env, lookup_call, &l, 0, row);
	for (uint32_t k = 0; l.raw_path && are_there && k < l.set.n_items; k++)
		unlink(l.raw_path[k]);
	free(l.raw_path);
	l.set.n_objects = are_there ? l.set.n_items : 0;
	fast_close(&l.set.client);
	remove_objects(&l.set);
	return rc;
}

int job_fast_lookup_hit(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_lookup(job, env, row, 1);
}

int job_fast_lookup_miss(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_lookup(job, env, row, 0);
}

/* ---- two processes together, against one alone ---- */

#define TOGETHER_MAX 2
#define CALLS_EACH 64

/* Each process its own session; they go round the same objects. Time for n_processes to do n calls in all. */
static int run_processes(struct set *s, const struct job_spec *job, int n_processes, uint64_t *ns_out)
{
	int ready[2], go[2];
	char byte = 0;

	if (pipe(ready) || pipe(go))
		return bench_fail(-errno, "pipe");
	for (int p = 0; p < n_processes; p++) {
		pid_t pid = fork();
		if (pid < 0)
			return bench_fail(-errno, "fork");
		if (pid)
			continue;
		struct set own = {.env = s->env, .object_bytes = s->object_bytes, .n_objects = s->n_objects,
				  .n_items = s->n_items, .next = {(uint32_t)p * s->n_objects / 2}};
		struct samples unused = {0};
		uint64_t ns;
		int rc = fast_open(&own.client, s->env->dir[SIDE_OURS], job->n_ops, SET_BYTES);
		if (!rc)
			rc = read_call(&own, SIDE_OURS, &unused, &ns);
		rc = rc || write(ready[1], "", 1) != 1 || read(go[0], &byte, 1) != 1;
		for (int k = 0; !rc && k < CALLS_EACH / n_processes; k++)
			rc = read_call(&own, SIDE_OURS, &unused, &ns);
		_exit(rc ? 1 : 0);
	}
	int failed = 0, status;
	for (int p = 0; p < n_processes; p++)
		failed |= read(ready[0], &byte, 1) != 1;
	uint64_t begin_ns = bench_now_ns();
	for (int p = 0; p < n_processes; p++)
		failed |= write(go[1], "", 1) != 1;
	for (int p = 0; p < n_processes; p++)
		failed |= wait(&status) < 0 || status != 0;
	*ns_out = bench_now_ns() - begin_ns;
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	close(go[1]);
	return failed ? bench_fail(-EIO, "a reader process failed") : 0;
}

struct together {
	struct set *set;
	const struct job_spec *job;
};

static int together_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct together *t = arg;
	int rc = run_processes(t->set, t->job, side == SIDE_OURS ? TOGETHER_MAX : 1, batch_ns_out);

	samples_add(latency, (double)*batch_ns_out / CALLS_EACH);
	return rc;
}

int job_fast_together(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct set s;
	struct together t = {&s, job};
	int rc = set_open(&s, job, env, SET_BYTES, 0);

	if (!rc)
		rc = make_objects(&s);
	if (!rc)
		rc = job_run_pair(job, env, together_batch, &t, job->io_bytes * job->n_ops * CALLS_EACH, row);
	set_close(&s);
	return rc;
}
