/* SPDX-License-Identifier: Apache-2.0 */
#include "loopback/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "deadline.h"

int pipe_init(struct pipe *p)
{
	memset(p, 0, sizeof(*p));
	p->data = malloc(PIPE_BYTES);
	if (!p->data)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->changed);
	return 0;
}

void pipe_fini(struct pipe *p)
{
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->data);
}

static size_t smallest(size_t a, size_t b, size_t c)
{
	size_t least = a < b ? a : b;

	return least < c ? least : c;
}

int pipe_write(struct pipe *p, const void *buf, size_t len, int64_t deadline_ns)
{
	const uint8_t *from = buf;
	guard_lock(&p->lock);

	while (len) {
		if (p->is_shut[PIPE_WRITER])
			return -ECANCELED;
		if (p->is_over[PIPE_READER])
			return -ECONNRESET;
		size_t at = p->n_written % PIPE_BYTES;
		size_t room = PIPE_BYTES - (size_t)(p->n_written - p->n_read);
		if (!room) {
			int rc = clock_cond_wait(&p->changed, &p->lock, deadline_ns);
			if (rc)
				return rc;
			continue;
		}
		size_t n = smallest(len, room, PIPE_BYTES - at);
		memcpy(p->data + at, from, n);
		p->n_written += n;
		from += n;
		len -= n;
		pthread_cond_broadcast(&p->changed);
	}
	return 0;
}

int pipe_read(struct pipe *p, void *buf, size_t len, int64_t deadline_ns)
{
	uint8_t *to = buf;
	guard_lock(&p->lock);

	while (len) {
		if (p->is_shut[PIPE_READER])
			return -ECANCELED;
		size_t at = p->n_read % PIPE_BYTES;
		size_t there = (size_t)(p->n_written - p->n_read);
		if (!there) {
			if (p->is_over[PIPE_WRITER])
				return -ECONNRESET;
			int rc = clock_cond_wait(&p->changed, &p->lock, deadline_ns);
			if (rc)
				return rc;
			continue;
		}
		size_t n = smallest(len, there, PIPE_BYTES - at);
		memcpy(to, p->data + at, n);
		p->n_read += n;
		to += n;
		len -= n;
		pthread_cond_broadcast(&p->changed);
	}
	return 0;
}

void pipe_end(struct pipe *p, enum pipe_end end, bool is_shut)
{
	guard_lock(&p->lock);
	p->is_over[end] = true;
	p->is_shut[end] |= is_shut;
	pthread_cond_broadcast(&p->changed);
}
