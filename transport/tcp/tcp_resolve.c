/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadline.h"
#include "tcp/tcp.h"
#include "thread.h"

/* Belongs to who asks and to the thread that asks for it; the last one frees it. */
struct question {
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t answered;
	char host[HOST_BYTES], port[PORT_BYTES];
	bool is_answered, is_abandoned;
	int rc; /* of getaddrinfo */
	struct addrinfo *found;
};

static int to_errno(int gai)
{
	switch (gai) {
	case 0:
		return 0;
	case EAI_NONAME:
	case EAI_NODATA:
		return -ENOENT;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -EIO;
	case EAI_AGAIN:
	case EAI_FAIL:
		return -EAGAIN;
	default:
		return -EINVAL;
	}
}

static void question_destroy(struct question *q)
{
	if (q->found)
		freeaddrinfo(q->found);
	pthread_cond_destroy(&q->answered);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

static void *ask(void *arg)
{
	struct question *q = arg;
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *found = NULL;
	int rc = to_errno(getaddrinfo(q->host, q->port, &hints, &found));

	pthread_mutex_lock(&q->lock);
	q->rc = rc;
	q->found = rc ? NULL : found;
	q->is_answered = true;
	bool is_mine = q->is_abandoned;
	pthread_cond_signal(&q->answered);
	pthread_mutex_unlock(&q->lock);
	if (is_mine)
		question_destroy(q);
	return NULL;
}

static int resolve_name(const char *host, const char *port, int64_t deadline_ns, struct addrinfo **out)
{
	struct question *q = calloc(1, sizeof(*q));
	pthread_t thread;
	int rc = 0;

	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->lock, NULL);
	clock_cond_init(&q->answered);
	snprintf(q->host, sizeof(q->host), "%s", host);
	snprintf(q->port, sizeof(q->port), "%s", port);
	rc = thread_start(&thread, ask, q);
	if (rc) {
		question_destroy(q);
		return rc;
	}
	pthread_mutex_lock(&q->lock);
	while (!q->is_answered && !rc)
		rc = clock_cond_wait(&q->answered, &q->lock, deadline_ns);
	q->is_abandoned = !q->is_answered;
	bool is_mine = q->is_answered;
	pthread_mutex_unlock(&q->lock);
	if (!is_mine) {
		pthread_detach(thread);
		return rc;
	}
	pthread_join(thread, NULL);
	rc = q->rc;
	if (!rc) {
		*out = q->found;
		q->found = NULL;
	}
	question_destroy(q);
	return rc;
}

int tcp_resolve(const char *host, uint16_t port, int64_t deadline_ns, struct addrinfo **out)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	char service[PORT_BYTES];

	snprintf(service, sizeof(service), "%u", (unsigned)port);
	int rc = getaddrinfo(host, service, &hints, out);
	if (rc != EAI_NONAME)
		return to_errno(rc);
	return resolve_name(host, service, deadline_ns, out);
}
