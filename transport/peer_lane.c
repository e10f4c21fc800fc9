/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/cleanup.h"
#include "deadline.h"
#include "peer_impl.h"

/* A connected one first. */
static struct lane *find_free_locked(struct peer *p)
{
	struct lane *found = NULL;

	for (uint32_t k = 0; k < p->n_lanes; k++) {
		struct lane *l = &p->lanes[k];
		if (!l->is_taken && (!found || (l->conn && !found->conn)))
			found = l;
	}
	return found;
}

static void line_up_locked(struct peer *p, struct lane_waiter *w)
{
	struct lane_waiter **at = &p->waiters;

	while (*at)
		at = &(*at)->next;
	w->next = NULL;
	*at = w;
}

static void leave_line_locked(struct peer *p, struct lane_waiter *w)
{
	struct lane_waiter **at = &p->waiters;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (p->waiters)
		pthread_cond_broadcast(&p->changed);
}

int lane_take(struct attempt *a, struct lane **out, int64_t deadline_ns)
{
	struct peer *p = a->p;
	struct lane_waiter me;
	struct lane *l = NULL;
	int rc = 0;
	guard_lock(&p->lock);

	line_up_locked(p, &me);
	while (a->epoch == p->epoch && !(p->waiters == &me && (l = find_free_locked(p))) && !rc)
		rc = clock_cond_wait(&p->changed, &p->lock, deadline_ns);
	leave_line_locked(p, &me);
	if (a->epoch != p->epoch)
		return p->down_rc;
	if (!l)
		return rc;
	l->is_taken = true;
	*out = l;
	return 0;
}

void lane_give(struct peer *p, struct lane *l)
{
	guard_lock(&p->lock);

	l->is_taken = false;
	l->used_ns = clock_now_ns();
	pthread_cond_broadcast(&p->changed);
}

void lane_close(struct peer *p, struct lane *l)
{
	pthread_mutex_lock(&p->lock);
	struct transport_conn *conn = l->conn;
	l->conn = NULL;
	pthread_mutex_unlock(&p->lock);
	if (conn)
		conn->ops->close(conn);
}

/* Those that nobody used for long, or that were shut down with the peer's other connections. */
void lanes_trim(struct peer *p, int64_t now)
{
	for (int k = 0; k < LANES_MAX; k++) {
		struct lane *l = &p->lanes[k];
		pthread_mutex_lock(&p->lock);
		bool is_idle = l->conn && !l->is_taken &&
			       (p->breaker.state == BREAKER_OPEN || now - l->used_ns > LANE_IDLE_MS * NS_PER_MS);
		if (is_idle)
			l->is_taken = true;
		pthread_mutex_unlock(&p->lock);
		if (!is_idle)
			continue;
		lane_close(p, l);
		lane_give(p, l);
	}
}
