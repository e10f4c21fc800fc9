/* SPDX-License-Identifier: Apache-2.0 */
#include "ticket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READ_AT_ONCE 64

int lib_tickets_create(struct lib_tickets **out)
{
	struct lib_tickets *ts = calloc(1, sizeof(*ts));
	pthread_condattr_t attr;

	if (!ts)
		return -ENOMEM;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&ts->lock, NULL);
	pthread_cond_init(&ts->progress, &attr);
	pthread_condattr_destroy(&attr);
	ts->ended_last = &ts->ended;
	*out = ts;
	return 0;
}

void lib_tickets_destroy(struct mcfs_session *s)
{
	struct lib_tickets *ts = s->tickets;

	for (size_t i = 0; i < ts->n_slots; i++)
		free(ts->slots[i]);
	free(ts->slots);
	pthread_cond_destroy(&ts->progress);
	pthread_mutex_destroy(&ts->lock);
	free(ts);
}

/* ---- slots ---- */

static bool slots_grow_locked(struct lib_tickets *ts)
{
	size_t n = ts->n_slots ? 2 * ts->n_slots : 16;
	void *grown = reallocarray(ts->slots, n, sizeof(*ts->slots));

	if (!grown)
		return false;
	ts->slots = grown;
	memset(ts->slots + ts->n_slots, 0, (n - ts->n_slots) * sizeof(*ts->slots));
	ts->n_slots = n;
	return true;
}

int ticket_list(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	while (ts->first_free < ts->n_slots && ts->slots[ts->first_free])
		ts->first_free++;
	bool has_room = ts->first_free < ts->n_slots || slots_grow_locked(ts);
	if (has_room) {
		t->slot = (uint32_t)ts->first_free;
		ts->slots[t->slot] = t;
	}
	pthread_mutex_unlock(&ts->lock);
	return has_room ? 0 : -ENOMEM;
}

void ended_remove_locked(struct lib_tickets *ts, struct mcfs_ticket *t)
{
	struct mcfs_ticket **at = &ts->ended;

	if (!t->is_waiting)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	if (ts->ended_last == &t->next)
		ts->ended_last = at;
	t->is_waiting = false;
}

void ticket_destroy(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	ended_remove_locked(ts, t);
	ts->slots[t->slot] = NULL;
	if (t->slot < ts->first_free)
		ts->first_free = t->slot;
	pthread_mutex_unlock(&ts->lock);
	free(t);
}

/* ---- stages ---- */

static bool ticket_claim(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	bool is_mine = t->stage == WITH_DAEMON;
	if (is_mine)
		t->stage = OWNED;
	pthread_mutex_unlock(&ts->lock);
	return is_mine;
}

/* The ticket that a completion is for, claimed; NULL: none. */
static struct mcfs_ticket *ticket_claim_by(struct lib_tickets *ts, uint64_t user_data)
{
	uint32_t slot = (uint32_t)user_data, sequence = (uint32_t)(user_data >> 32);
	struct mcfs_ticket *t = NULL;

	pthread_mutex_lock(&ts->lock);
	if (slot < ts->n_slots)
		t = ts->slots[slot];
	if (t && t->sequence == sequence && t->stage == WITH_DAEMON)
		t->stage = OWNED;
	else
		t = NULL;
	pthread_mutex_unlock(&ts->lock);
	return t;
}

void ticket_end(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	t->stage = ENDED;
	t->next = NULL;
	t->is_waiting = true;
	ts->n_ended++;
	*ts->ended_last = t;
	ts->ended_last = &t->next;
	pthread_cond_broadcast(&ts->progress);
	pthread_mutex_unlock(&ts->lock);
}

void ticket_cancel_part(struct mcfs_session *s, uint64_t number)
{
	struct mcfs_cancel cancel = {.ticket = number};

	/* -ENOENT: its completion is there already. */
	lib_ioctl(s->fd, MCFS_IOC_CANCEL, &cancel);
}

/* The part goes to the daemon. Returns the mark by which its completion is known. */
static uint64_t ticket_hand_over(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	t->stage = WITH_DAEMON;
	t->number = 0;
	t->sequence = ++ts->sequence;
	uint64_t mark = (uint64_t)t->sequence << 32 | t->slot;
	pthread_mutex_unlock(&ts->lock);
	return mark;
}

/*
 * The daemon has taken the part that has this mark, as ticket number. By now it may have been completed,
 * and t freed: only the slot tells.
 */
static void ticket_taken(struct mcfs_session *s, const struct mcfs_ticket *t, uint64_t mark,
			 uint64_t number)
{
	struct lib_tickets *ts = s->tickets;

	pthread_mutex_lock(&ts->lock);
	struct mcfs_ticket *there = ts->slots[(uint32_t)mark];
	bool is_under_way = there == t && there->sequence == (uint32_t)(mark >> 32) &&
			    there->stage == WITH_DAEMON;
	if (is_under_way)
		there->number = number;
	bool is_cancelled = is_under_way && there->is_cancelled;
	pthread_mutex_unlock(&ts->lock);
	if (is_cancelled)
		ticket_cancel_part(s, number);
}

static bool ticket_is_cancelled(struct mcfs_ticket *t)
{
	struct lib_tickets *ts = t->s->tickets;

	pthread_mutex_lock(&ts->lock);
	bool is_cancelled = t->is_cancelled;
	pthread_mutex_unlock(&ts->lock);
	return is_cancelled;
}

bool ticket_go(struct mcfs_ticket *t)
{
	struct mcfs_session *s = t->s;
	struct lib_job *j = &t->job;
	struct mcfs_submit submit = {0};

	while (lib_job_has_more(j)) {
		if (ticket_is_cancelled(t)) {
			j->error = -ECANCELED;
			break;
		}
		if (lib_job_begin_part(s, j, &submit))
			break;
		if (!j->n_items) {
			lib_job_end_part(s, j, 0, 0);
			continue;
		}
		submit.flags |= MCFS_ASYNC;
		submit.user_data = ticket_hand_over(t);
		int rc = lib_ioctl(s->fd, MCFS_IOC_SUBMIT, &submit);
		if (!rc) {
			ticket_taken(s, t, submit.user_data, submit.ticket);
			return false;
		}
		if (!ticket_claim(t)) /* ended by who found the daemon gone */
			return false;
		lib_job_end_part(s, j, 0, rc);
		lib_fail(rc, "%s: a submission of %u (op %u)", s->mount, (unsigned)submit.n_items,
			 (unsigned)submit.op);
	}
	return true;
}

/* ---- completions ---- */

static void completion_take(struct mcfs_session *s, const struct mcfs_completion *c)
{
	struct mcfs_ticket *t = ticket_claim_by(s->tickets, c->user_data);

	if (!t)
		return;
	/* What came too late says so item by item; a name has no status. */
	bool is_told = c->status == -ETIMEDOUT && t->job.op != MCFS_OP_LOOKUP;
	int error = is_told ? 0 : c->status;
	lib_job_end_part(s, &t->job, c->ready_prefix, error);
	if (ticket_go(t))
		ticket_end(t);
}

void lib_tickets_abandon(struct mcfs_session *s)
{
	struct lib_tickets *ts = s->tickets;

	for (size_t i = 0;; i++) {
		pthread_mutex_lock(&ts->lock);
		bool is_over = i >= ts->n_slots;
		struct mcfs_ticket *t = is_over ? NULL : ts->slots[i];
		if (t && t->stage == WITH_DAEMON)
			t->stage = OWNED;
		else
			t = NULL;
		pthread_mutex_unlock(&ts->lock);
		if (is_over)
			return;
		if (t) {
			lib_job_end_part(s, &t->job, 0, -ENOTCONN);
			ticket_end(t);
		}
	}
}

static bool has_ended_since(struct lib_tickets *ts, uint64_t n_ended)
{
	pthread_mutex_lock(&ts->lock);
	bool has_ended = ts->n_ended != n_ended;
	pthread_mutex_unlock(&ts->lock);
	return has_ended;
}

/*
 * Waits for completions and takes those that are there. By the one reader. Does not wait when a ticket has
 * ended since n_ended was read: by a reconnect.
 */
static void completions_read(struct mcfs_session *s, int timeout_ms, uint64_t n_ended)
{
	struct mcfs_completion c[READ_AT_ONCE];
	ssize_t n = 0;

	pthread_rwlock_rdlock(&s->life);
	if (has_ended_since(s->tickets, n_ended))
		timeout_ms = 0;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	if (lib_kernel.poll(&p, 1, timeout_ms) > 0)
		n = lib_kernel.read(s->fd, c, sizeof(c));
	if (n < 0 && lib_errno(errno) == -ENOTCONN)
		lib_tickets_abandon(s);
	for (size_t i = 0; n > 0 && i < (size_t)n / sizeof(*c); i++)
		completion_take(s, &c[i]);
	pthread_rwlock_unlock(&s->life);
}

void become_reader_locked(struct mcfs_session *s, int timeout_ms)
{
	struct lib_tickets *ts = s->tickets;
	uint64_t n_ended = ts->n_ended;

	ts->has_reader = true;
	pthread_mutex_unlock(&ts->lock);
	completions_read(s, timeout_ms, n_ended);
	pthread_mutex_lock(&ts->lock);
	ts->has_reader = false;
	pthread_cond_broadcast(&ts->progress);
}

void wait_for_reader_locked(struct lib_tickets *ts, int timeout_ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	pthread_cond_timedwait(&ts->progress, &ts->lock, &until);
}
