/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that others opened, each with a thread.
 *
 *   accepted -> greeted (HELLO done) -> over (its thread is at the end) -> joined by the listener's thread
 *
 * Of a peer's connections for control there is one of a kind: a new one takes the place of an older one, after gone
 * was told of that; a lane's place is its asker's to give up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"
#include "thread.h"

#define ACCEPT_MS 500
#define COMPLAIN_NS (10 * NS_PER_S)
#define RETRY_MS 100 /* after accept failed, as for want of descriptors */

/* ---- one connection ---- */

static bool has_older_locked(struct peer_endpoint *e, const struct served *s)
{
	bool has = false;

	for (struct served *o = e->served; o; o = o->next) {
		if (!o->is_greeted || o->is_over || o->role != s->role || o->serial >= s->serial ||
		    !peer_id_is_same(&o->from, &s->from))
			continue;
		if (o->conn)
			o->conn->ops->shutdown(o->conn);
		has = true;
	}
	return has;
}

/* -EBUSY: the older one does not come to its end. */
static int take_place(struct served *s, const struct wire_hello *h)
{
	struct peer_endpoint *e = s->e;
	int64_t deadline_ns = deadline_in_ms(e->conf.ping_ms);
	int rc = 0;
	guard_lock(&e->lock);

	s->role = (enum wire_role)h->role;
	s->from = h->from;
	s->is_greeted = true;
	if (s->role == WIRE_LANE)
		return 0;
	while (has_older_locked(e, s) && !rc && !e->is_stopping)
		rc = clock_cond_wait(&e->changed, &e->lock, deadline_ns);
	return e->is_stopping ? -ECANCELED : rc ? -EBUSY : 0;
}

/* Attackers do not fill the log. */
static bool may_complain(struct peer_endpoint *e)
{
	int64_t now = clock_now_ns();
	guard_lock(&e->lock);

	if (e->complained_ns && now - e->complained_ns < COMPLAIN_NS)
		return false;
	e->complained_ns = now;
	return true;
}

static void complain(struct served *s, int rc)
{
	s->e->n_refused++;
	if (may_complain(s->e))
		log_warn("peer %s refused: %s", s->conn->ops->peer_name(s->conn),
			 rc == -EACCES ? "another key or cluster" :
			 rc == -EPROTO ? "it speaks another version, or nonsense" :
			 rc == -ESTALE ? "it looks for another node" :
					 strerror(-rc));
}

/* The peer hears that it is in only when its place is taken. */
static int greet(struct served *s)
{
	struct peer_endpoint *e = s->e;
	struct wire_hello hello;
	int rc = hello_answer(s->conn, &e->auth, &hello, deadline_in_ms(e->conf.ping_ms));

	if (!rc)
		rc = hello_accept(s->conn, take_place(s, &hello), deadline_in_ms(e->conf.ping_ms));
	/* Who connects and goes is a probe of somebody's monitoring. */
	if (rc && rc != -ECANCELED && rc != -ECONNRESET)
		complain(s, rc);
	return rc;
}

static void serve(struct served *s)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	int rc = greet(s);

	if (rc)
		return;
	while (!rc)
		rc = serve_request(s, s->conn);
	log_debug("peer %s: connection over: %s", s->conn->ops->peer_name(s->conn), strerror(-rc));
	if (s->role == WIRE_CONTROL)
		handlers->gone(handlers->arg, &s->from);
}

static void *run_served(void *arg)
{
	struct served *s = arg;
	struct peer_endpoint *e = s->e;

	serve(s);
	free(s->payload);
	pthread_mutex_lock(&e->lock);
	struct transport_conn *conn = s->conn;
	s->conn = NULL;
	pthread_mutex_unlock(&e->lock);
	conn->ops->close(conn);
	guard_lock(&e->lock);
	s->is_over = true;
	e->n_served--;
	pthread_cond_broadcast(&e->changed);
	return NULL;
}

/* ---- the listener ---- */

static void unlink_locked(struct peer_endpoint *e, struct served *s)
{
	if (s->next)
		s->next->prev = s->prev;
	if (s->prev)
		s->prev->next = s->next;
	else
		e->served = s->next;
}

/* One that is over, out of the list; NULL: there is none. */
static struct served *take_over(struct peer_endpoint *e)
{
	guard_lock(&e->lock);

	for (struct served *s = e->served; s; s = s->next)
		if (s->is_over) {
			unlink_locked(e, s);
			return s;
		}
	return NULL;
}

static void join_over(struct peer_endpoint *e)
{
	for (struct served *s; (s = take_over(e));) {
		pthread_join(s->thread, NULL);
		free(s);
	}
}

static int admit_locked(struct peer_endpoint *e, struct served *s)
{
	if (e->is_stopping)
		return -ECANCELED;
	if (e->n_served >= e->conf.max_connections)
		return -EUSERS;
	s->serial = ++e->last_serial;
	int rc = thread_start(&s->thread, run_served, s);
	if (rc)
		return rc;
	s->next = e->served;
	if (s->next)
		s->next->prev = s;
	e->served = s;
	e->n_served++;
	return 0;
}

static void admit(struct peer_endpoint *e, struct transport_conn *conn)
{
	struct served *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (s) {
		s->e = e;
		s->conn = conn;
		pthread_mutex_lock(&e->lock);
		rc = admit_locked(e, s);
		pthread_mutex_unlock(&e->lock);
	}
	if (!rc)
		return;
	if (rc != -ECANCELED) {
		e->n_refused++;
		if (may_complain(e))
			log_warn("peer %s: not served, %s", conn->ops->peer_name(conn),
				 rc == -EUSERS ? "there are as many connections as are allowed" : strerror(-rc));
	}
	conn->ops->close(conn);
	free(s);
}

static bool pause_unless_stopping(struct peer_endpoint *e)
{
	int64_t until = deadline_in_ms(RETRY_MS);
	int rc = 0;
	guard_lock(&e->lock);

	while (!e->is_stopping && !rc)
		rc = clock_cond_wait(&e->changed, &e->lock, until);
	return !e->is_stopping;
}

static void *run_listener(void *arg)
{
	struct peer_endpoint *e = arg;
	struct transport_conn *conn;

	for (;;) {
		int rc = e->conf.transport->accept(e->listener, deadline_in_ms(ACCEPT_MS), &conn);
		join_over(e);
		if (!rc) {
			admit(e, conn);
		} else if (rc == -ECANCELED) {
			return NULL;
		} else if (rc != -ETIMEDOUT) {
			if (may_complain(e))
				log_error("peer: accept failed: %s", strerror(-rc));
			if (!pause_unless_stopping(e))
				return NULL;
		}
	}
}

int served_start(struct peer_endpoint *e)
{
	return thread_start(&e->listener_thread, run_listener, e);
}

void served_stop(struct peer_endpoint *e)
{
	e->conf.transport->stop_listening(e->listener);
	pthread_join(e->listener_thread, NULL);
	pthread_mutex_lock(&e->lock);
	for (struct served *s = e->served; s; s = s->next)
		if (s->conn)
			s->conn->ops->shutdown(s->conn);
	while (e->n_served)
		pthread_cond_wait(&e->changed, &e->lock);
	pthread_mutex_unlock(&e->lock);
	join_over(e);
}
