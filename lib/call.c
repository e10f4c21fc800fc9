/* SPDX-License-Identifier: Apache-2.0 */
/* call: jobs done part by part in the caller's thread. */
#include "lib.h"

#include <errno.h>
#include <string.h>

void lib_job_set_deadline(struct lib_job *j)
{
	if (__builtin_add_overflow(lib_now_us(), j->call.deadline_us, &j->end_us))
		j->end_us = 0;
}

/* What is left of the deadline for one part; 0: there is none. -ETIMEDOUT. */
static int part_deadline(const struct lib_job *j, uint64_t *deadline_out)
{
	uint64_t now = j->end_us ? lib_now_us() : 0;

	if (j->end_us && now >= j->end_us)
		return -ETIMEDOUT;
	*deadline_out = j->end_us ? j->end_us - now : 0;
	return 0;
}

static int part_write(struct mcfs_session *s, struct lib_job *j, struct mcfs_submit *submit)
{
	*submit =
		(struct mcfs_submit){.op = j->op, .flags = j->call.flags, .buffer = j->area.buffer};
	int rc = part_deadline(j, &submit->deadline_us);
	if (rc)
		return rc;
	rc = j->op == MCFS_OP_LOOKUP ? lib_names_write(j, submit) : lib_items_write(s, j, submit);
	submit->n_items = j->n_items;
	return rc;
}

int lib_job_begin_part(struct mcfs_session *s, struct lib_job *j, struct mcfs_submit *submit)
{
	size_t left = j->n - j->done;

	j->part = left < s->hello.max_items ? left : s->hello.max_items;
	j->n_items = 0;
	if (j->call.flags & MCFS_GROUP && j->part < j->n)
		return j->error = lib_fail(-E2BIG, "a group of %zu, and max_items is %u", j->n,
					   (unsigned)s->hello.max_items);
	size_t bytes = j->op == MCFS_OP_LOOKUP ? lib_names_bytes(j) : lib_items_bytes(j);
	int rc = lib_area_take(s, bytes, &j->area);
	if (!rc) {
		rc = part_write(s, j, submit);
		if (rc)
			lib_area_drop(s, &j->area);
	}
	return j->error = rc;
}

void lib_job_end_part(struct mcfs_session *s, struct lib_job *j, uint32_t ready_prefix, int error)
{
	if (j->op == MCFS_OP_LOOKUP)
		lib_names_read(j, ready_prefix, error);
	else
		lib_items_read(j, error);
	lib_area_drop(s, &j->area);
	j->done += j->part;
	if (error)
		j->error = error;
}

long lib_job_result(struct lib_job *j)
{
	if (!j->error)
		return j->n_ok;
	for (; j->requests && j->done < j->n; j->done++) {
		j->requests[j->done].status = j->error;
		j->requests[j->done].bytes = 0;
	}
	return j->error;
}

void lib_job_rewind(struct lib_job *j)
{
	j->done = 0;
	j->n_ok = 0;
	j->has_gap = false;
	j->error = 0;
}

/* With life held for reading. */
static void job_part(struct mcfs_session *s, struct lib_job *j)
{
	struct mcfs_submit submit = {0};

	if (lib_job_begin_part(s, j, &submit))
		return;
	int rc = j->n_items ? lib_ioctl(s->fd, MCFS_IOC_SUBMIT, &submit) : 0;
	lib_job_end_part(s, j, submit.ready_prefix, rc);
	if (rc)
		lib_fail(rc, "%s: a submission of %u (op %u)", s->mount, (unsigned)submit.n_items,
			 (unsigned)submit.op);
}

static long job_run(struct mcfs_session *s, struct lib_job *j)
{
	uint64_t generation;
	bool tried = false;

	for (;;) {
		pthread_rwlock_rdlock(&s->life);
		generation = s->generation;
		while (lib_job_has_more(j))
			job_part(s, j);
		pthread_rwlock_unlock(&s->life);
		if (j->error != -ENOTCONN || !lib_session_recover(s, generation, &tried))
			return lib_job_result(j);
		lib_job_rewind(j);
	}
}

static long batch(struct mcfs_session *s, enum mcfs_op op, struct mcfs_request *requests, size_t n,
		  const struct mcfs_call *call)
{
	struct lib_job j;
	int rc = lib_job_of_requests(op, requests, n, call, &j);

	return rc ? rc : job_run(s, &j);
}

LIB_PUBLIC long mcfs_read_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
				const struct mcfs_call *call)
{
	return batch(s, MCFS_OP_READ, requests, n, call);
}

LIB_PUBLIC long mcfs_write_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
				 const struct mcfs_call *call)
{
	return batch(s, MCFS_OP_WRITE, requests, n, call);
}

LIB_PUBLIC long mcfs_prefetch_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
				    const struct mcfs_call *call)
{
	return batch(s, MCFS_OP_PREFETCH, requests, n, call);
}

LIB_PUBLIC long mcfs_lookup_prefix(struct mcfs_session *s, struct mcfs_dir *dir,
				   const struct mcfs_names *names, const struct mcfs_call *call,
				   struct mcfs_state *states_out)
{
	struct lib_job j;
	int rc = lib_job_of_names(s, dir, names, call, states_out, &j);

	return rc ? rc : job_run(s, &j);
}
