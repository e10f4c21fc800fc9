/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fastpath/batch.h"
#include "fastpath/buffer.h"
#include "fs.h"
#include "handle.h"
#include "object/object.h"

bool cred_in_group(const struct cred *c, gid_t gid)
{
	bool is_in = c->gid == gid;

	for (int k = 0; k < c->n_groups && !is_in; k++)
		is_in = c->groups[k] == gid;
	return is_in;
}

bool cred_may(const struct cred *c, uint32_t mode, uid_t uid, gid_t gid, int want)
{
	if (c->uid == 0)
		return true;
	uint32_t bits = c->uid == uid ? mode >> 6 : cred_in_group(c, gid) ? mode >> 3 : mode;
	return ((uint32_t)want & ~bits & 7) == 0;
}

/* ---- life ---- */

struct session *session_create(struct fs *fs, const struct cred *c,
			       const struct session_callbacks *callbacks)
{
	struct session *s = xcalloc(1, sizeof(*s));

	s->fs = fs;
	s->cred = *c;
	s->callbacks = callbacks;
	s->refs = 1;
	s->next_ticket = 1;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void session_get(struct session *s)
{
	guard_lock(&s->lock);
	s->refs++;
}

void session_put(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	bool is_last = --s->refs == 0;
	pthread_mutex_unlock(&s->lock);
	if (!is_last)
		return;
	for (int k = 0; k < SESSION_MAX_BUFFERS; k++)
		if (s->regs[k].buffer)
			buffer_unregister(s->fs, s->regs[k].buffer, s->regs[k].map, s->regs[k].length);
	pthread_mutex_destroy(&s->lock);
	free(s->done);
	free(s);
}

static void fail_readers(struct session *s, struct session_reader *r, int error)
{
	while (r) {
		struct session_reader *next = r->next;
		s->callbacks->deliver(r->request, NULL, 0, error);
		free(r);
		r = next;
	}
}

void session_close(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_closed = true;
	for (struct batch *b = s->batches; b; b = b->next_of_session)
		b->is_cancelled = true;
	struct session_reader *readers = s->readers;
	void *poll = s->poll;
	s->readers = NULL;
	s->poll = NULL;
	pthread_mutex_unlock(&s->lock);
	fail_readers(s, readers, -EBADF);
	if (poll)
		s->callbacks->wake(poll);
	session_put(s);
}

void session_end_all(struct fs *fs)
{
	for (struct handle *h = fs->handles; h; h = h->next)
		if (h->kind == HANDLE_SESSION && h->session) {
			session_close(h->session);
			h->session = NULL;
		}
}

/* ---- ioctls ---- */

int session_hello(struct session *s, struct mcfs_hello *io)
{
	struct tier_stats stats;
	uint32_t version = io->abi_version;

	for (int k = 0; k < 3; k++)
		if (io->reserved[k])
			return -EINVAL;
	tier_call(s->fs->dram, get_stats, &stats);
	*io = (struct mcfs_hello){
		.abi_version = MCFS_ABI_VERSION,
		.max_items = SESSION_MAX_ITEMS,
		.max_buffers = SESSION_MAX_BUFFERS,
		.max_tickets = SESSION_MAX_TICKETS,
		.max_segments = SESSION_MAX_SEGMENTS,
		.max_buffer_bytes = stats.budget_bytes / BUFFER_BUDGET_PART,
		.incarnation = (uint64_t)s->fs->start_ns,
	};
	return version == MCFS_ABI_VERSION ? 0 : -EPROTO;
}

int session_register(struct session *s, struct mcfs_register *io, struct buffer *b)
{
	struct registration r = { .buffer = b, .offset = io->offset, .length = io->length };

	for (int k = 0; k < 12; k++)
		if (io->reserved[k])
			return -EINVAL;
	if (io->memory != MCFS_MEMORY_HOST)
		return -EINVAL;
	int rc = buffer_register(s->fs, b, r.offset, &r.length, &r.map);
	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	int k = 0;
	while (k < SESSION_MAX_BUFFERS && s->regs[k].buffer)
		k++;
	if (k < SESSION_MAX_BUFFERS)
		s->regs[k] = r;
	pthread_mutex_unlock(&s->lock);
	if (k == SESSION_MAX_BUFFERS) {
		buffer_unregister(s->fs, b, r.map, r.length);
		return -EMFILE;
	}
	io->buffer = (uint32_t)k + 1;
	io->length = r.length;
	return 0;
}

int session_unregister(struct session *s, const struct mcfs_unregister *io)
{
	struct registration r = { 0 };
	int rc = -ENOENT;

	if (io->reserved)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	if (io->buffer - 1 < SESSION_MAX_BUFFERS && s->regs[io->buffer - 1].buffer) {
		struct registration *at = &s->regs[io->buffer - 1];
		rc = at->n_users ? -EBUSY : 0;
		if (!rc) {
			r = *at;
			*at = (struct registration){ 0 };
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		buffer_unregister(s->fs, r.buffer, r.map, r.length);
	return rc;
}

int session_use_buffer(struct session *s, uint32_t number, struct registration **out)
{
	guard_lock(&s->lock);
	if (number - 1 >= SESSION_MAX_BUFFERS || !s->regs[number - 1].buffer)
		return -ENOENT;
	*out = &s->regs[number - 1];
	(*out)->n_users++;
	return 0;
}

void session_release_buffer(struct session *s, struct registration *r)
{
	guard_lock(&s->lock);
	r->n_users--;
}

int session_take_memory(struct session *s, uint64_t bytes)
{
	guard_lock(&s->lock);
	if (bytes > SESSION_MAX_BATCH_BYTES - s->batch_bytes)
		return -EAGAIN;
	if (atomic_fetch_add(&s->fs->batch_bytes, bytes) + bytes > ALL_MAX_BATCH_BYTES) {
		atomic_fetch_sub(&s->fs->batch_bytes, bytes);
		return -EAGAIN;
	}
	s->batch_bytes += bytes;
	return 0;
}

void session_give_memory(struct session *s, uint64_t bytes)
{
	guard_lock(&s->lock);
	s->batch_bytes -= bytes;
	atomic_fetch_sub(&s->fs->batch_bytes, bytes);
}

/* ---- tickets ---- */

int session_add_batch(struct session *s, struct batch *b, uint64_t *ticket_out)
{
	guard_lock(&s->lock);
	if (s->is_closed)
		return -ENOTCONN;
	if (s->n_tickets >= SESSION_MAX_TICKETS)
		return -EAGAIN;
	if (!s->done)
		s->done = xcalloc(SESSION_MAX_TICKETS, sizeof(*s->done));
	s->n_tickets++;
	b->ticket = s->next_ticket++;
	b->next_of_session = s->batches;
	s->batches = b;
	*ticket_out = b->ticket;
	return 0;
}

int session_cancel(struct session *s, uint64_t ticket)
{
	guard_lock(&s->lock);
	for (struct batch *b = s->batches; b; b = b->next_of_session)
		if (b->ticket == ticket) {
			b->is_cancelled = true;
			return 0;
		}
	return -ENOENT;
}

static void remove_batch_locked(struct session *s, struct batch *b)
{
	for (struct batch **p = &s->batches; *p; p = &(*p)->next_of_session)
		if (*p == b) {
			*p = b->next_of_session;
			break;
		}
}

void session_drop_batch(struct session *s, struct batch *b)
{
	guard_lock(&s->lock);
	remove_batch_locked(s, b);
	s->n_tickets--;
}

static size_t take_done_locked(struct session *s, struct mcfs_completion *out, size_t max)
{
	size_t n = 0;

	while (n < max && s->n_done) {
		out[n++] = s->done[s->done_head];
		s->done_head = (s->done_head + 1) % SESSION_MAX_TICKETS;
		s->n_done--;
		s->n_tickets--;
	}
	return n;
}

void session_finish_batch(struct session *s, struct batch *b, const struct mcfs_completion *c)
{
	struct session_reader *reader = NULL;
	struct mcfs_completion one;
	void *poll = NULL;

	pthread_mutex_lock(&s->lock);
	remove_batch_locked(s, b);
	/* There is room: a completion per ticket. */
	s->done[(s->done_head + s->n_done++) % SESSION_MAX_TICKETS] = *c;
	if (s->readers) {
		reader = s->readers;
		s->readers = reader->next;
		take_done_locked(s, &one, 1);
	} else {
		poll = s->poll;
		s->poll = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	if (reader) {
		s->callbacks->deliver(reader->request, &one, 1, 0);
		free(reader);
	}
	if (poll)
		s->callbacks->wake(poll);
}

ssize_t session_collect(struct session *s, struct mcfs_completion *out, size_t max, void *request)
{
	guard_lock(&s->lock);
	size_t n = take_done_locked(s, out, max);

	if (n || !request)
		return (ssize_t)n;
	/* An interrupt from here on finds the request in the list. */
	if (s->callbacks->is_interrupted(request))
		return -EINTR;
	struct session_reader *r = xcalloc(1, sizeof(*r)), **tail = &s->readers;
	r->request = request;
	while (*tail)
		tail = &(*tail)->next;
	*tail = r;
	return 0;
}

bool session_forget_reader(struct session *s, void *request)
{
	guard_lock(&s->lock);
	for (struct session_reader **p = &s->readers; *p; p = &(*p)->next)
		if ((*p)->request == request) {
			struct session_reader *r = *p;
			*p = r->next;
			free(r);
			return true;
		}
	return false;
}

bool session_poll(struct session *s, void *poll, void **spare_out)
{
	guard_lock(&s->lock);

	*spare_out = NULL;
	if (s->is_closed) {
		*spare_out = poll;
	} else if (poll) { /* one that only looks takes nobody's place */
		*spare_out = s->poll;
		s->poll = poll;
	}
	return s->n_done || s->is_closed;
}
