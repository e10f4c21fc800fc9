/* SPDX-License-Identifier: Apache-2.0 */
/* async: what programs call to begin tickets and to wait for them. */
#include "ticket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_MS 1000 /* of a wait, after which things are looked at again */

/* A slice of what is left until end_us; end_us < 0: there is no end. */
static int slice_ms(int64_t end_us)
{
	int64_t left = end_us < 0 ? SLICE_MS : (end_us - (int64_t)lib_now_us() + 999) / 1000;

	return left <= 0 ? 0 : left < SLICE_MS ? (int)left : SLICE_MS;
}

LIB_PUBLIC long mcfs_ticket_wait(struct mcfs_ticket *t, int timeout_ms)
{
	struct lib_tickets *ts = t->s->tickets;
	int64_t end_us = timeout_ms < 0 ? -1 : (int64_t)lib_now_us() + (int64_t)timeout_ms * 1000;
	bool is_late = false;

	pthread_mutex_lock(&ts->lock);
	while (t->stage != ENDED && !is_late) {
		int ms = slice_ms(end_us);
		if (!ts->has_reader)
			become_reader_locked(t->s, ms);
		else if (ms)
			wait_for_reader_locked(ts, ms);
		is_late = !ms;
	}
	bool has_ended = t->stage == ENDED;
	if (has_ended)
		ended_remove_locked(ts, t);
	pthread_mutex_unlock(&ts->lock);
	return has_ended ? lib_job_result(&t->job) : -EINPROGRESS;
}

LIB_PUBLIC struct mcfs_ticket *mcfs_session_next_done(struct mcfs_session *s)
{
	struct lib_tickets *ts = s->tickets;

	pthread_mutex_lock(&ts->lock);
	if (!ts->ended && !ts->has_reader)
		become_reader_locked(s, 0);
	struct mcfs_ticket *t = ts->ended;
	if (t)
		ended_remove_locked(ts, t);
	pthread_mutex_unlock(&ts->lock);
	return t;
}

LIB_PUBLIC void *mcfs_ticket_user(const struct mcfs_ticket *t)
{
	return t->job.call.user;
}

LIB_PUBLIC int mcfs_ticket_cancel(struct mcfs_ticket *t)
{
	struct mcfs_session *s = t->s;

	pthread_rwlock_rdlock(&s->life);
	pthread_mutex_lock(&s->tickets->lock);
	t->is_cancelled = true;
	uint64_t number = t->stage == WITH_DAEMON ? t->number : 0;
	pthread_mutex_unlock(&s->tickets->lock);
	if (number) /* else who is submitting it sees the mark */
		ticket_cancel_part(s, number);
	pthread_rwlock_unlock(&s->life);
	return 0;
}

LIB_PUBLIC void mcfs_ticket_free(struct mcfs_ticket *t)
{
	if (!t)
		return;
	if (mcfs_ticket_wait(t, 0) == -EINPROGRESS) {
		mcfs_ticket_cancel(t);
		mcfs_ticket_wait(t, -1);
	}
	ticket_destroy(t);
}

/* j is copied. */
static int ticket_create(struct mcfs_session *s, const struct lib_job *j, struct mcfs_ticket **out)
{
	struct mcfs_ticket *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->s = s;
	t->job = *j;
	if (j->call.suffix) {
		size_t len = strnlen(j->call.suffix, sizeof(t->suffix));
		if (len == sizeof(t->suffix)) {
			free(t);
			lib_fail(-EINVAL, "a suffix of more than %d bytes", LIB_SUFFIX_MAX);
			return -EINVAL;
		}
		memcpy(t->suffix, j->call.suffix, len);
		t->job.call.suffix = t->suffix;
	}
	int rc = ticket_list(t);
	if (rc)
		free(t);
	else
		*out = t;
	return rc;
}

static int job_start(struct mcfs_session *s, const struct lib_job *j,
		     struct mcfs_ticket **ticket_out)
{
	struct mcfs_ticket *t = NULL, *unused;
	bool tried = false;
	uint64_t generation;
	int rc = ticket_create(s, j, &t);

	if (rc)
		return rc;
	if (!ticket_out)
		ticket_out = &unused;
	do {
		rc = 0;
		*ticket_out = t;
		pthread_rwlock_rdlock(&s->life);
		generation = s->generation;
		if (ticket_go(t)) {
			rc = t->job.error;
			if (!rc)
				ticket_end(t);
		}
		pthread_rwlock_unlock(&s->life);
		if (rc)
			lib_job_rewind(&t->job);
	} while (rc == -ENOTCONN && lib_session_recover(s, generation, &tried));
	if (rc) {
		*ticket_out = NULL;
		ticket_destroy(t);
	}
	return rc;
}

static int batch_start(struct mcfs_session *s, enum mcfs_op op, struct mcfs_request *requests,
		       size_t n, const struct mcfs_call *call, struct mcfs_ticket **ticket_out)
{
	struct lib_job j;
	int rc = lib_job_of_requests(op, requests, n, call, &j);

	return rc ? rc : job_start(s, &j, ticket_out);
}

LIB_PUBLIC int mcfs_read_batch_async(struct mcfs_session *s, struct mcfs_request *requests,
				     size_t n, const struct mcfs_call *call,
				     struct mcfs_ticket **ticket_out)
{
	return batch_start(s, MCFS_OP_READ, requests, n, call, ticket_out);
}

LIB_PUBLIC int mcfs_write_batch_async(struct mcfs_session *s, struct mcfs_request *requests,
				      size_t n, const struct mcfs_call *call,
				      struct mcfs_ticket **ticket_out)
{
	return batch_start(s, MCFS_OP_WRITE, requests, n, call, ticket_out);
}

LIB_PUBLIC int mcfs_prefetch_batch_async(struct mcfs_session *s, struct mcfs_request *requests,
					 size_t n, const struct mcfs_call *call,
					 struct mcfs_ticket **ticket_out)
{
	return batch_start(s, MCFS_OP_PREFETCH, requests, n, call, ticket_out);
}

LIB_PUBLIC int mcfs_lookup_prefix_async(struct mcfs_session *s, struct mcfs_dir *dir,
					const struct mcfs_names *names,
					const struct mcfs_call *call, struct mcfs_state *states_out,
					struct mcfs_ticket **ticket_out)
{
	struct lib_job j;
	int rc = lib_job_of_names(s, dir, names, call, states_out, &j);

	return rc ? rc : job_start(s, &j, ticket_out);
}
