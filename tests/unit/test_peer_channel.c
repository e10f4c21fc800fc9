/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a connection that ends while they wait to be sent, on a connection that only counts. */
#include "peer_impl.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "deadline.h"

/* ---- fixture ---- */

static atomic_int n_sent;

static int count_send(struct transport_conn *c, struct iovec *iov, int n, int64_t deadline_ns)
{
	atomic_fetch_add(&n_sent, 1);
	return 0;
}

static void pass_shutdown(struct transport_conn *c)
{
}

static const struct transport_ops counting = { .name = "counting", .send = count_send, .shutdown = pass_shutdown };
static struct transport_conn old_conn = { .ops = &counting }, new_conn = { .ops = &counting };

static struct peer peer;
static struct channel *const ch = &peer.channels[WIRE_CONTROL];

static void init(void)
{
	pthread_mutex_init(&peer.lock, NULL);
	clock_cond_init(&peer.changed);
	channel_init(ch, &peer, WIRE_CONTROL);
	ch->state = CHANNEL_OPEN;
	ch->conn = &old_conn;
}

TestSuite(peer_channel, .init = init, .timeout = 30);

/* ---- helpers ---- */

static struct call call;

static void *ask(void *arg)
{
	*(int *)arg = channel_start_calls(ch, &call, 1, WIRE_PING, NULL, 0, deadline_in_ms(20000));
	return NULL;
}

static bool is_listed(void)
{
	pthread_mutex_lock(&peer.lock);
	bool is = ch->calls;
	pthread_mutex_unlock(&peer.lock);
	return is;
}

/* The connection ends, with all calls, and there is another one by the time that who waited comes to run. */
static void reconnect(void)
{
	pthread_mutex_lock(&peer.lock);
	ch->calls = NULL;
	call.rc = -ECONNRESET;
	call.is_done = true;
	ch->conn = &new_conn;
	ch->last_seq = 0;
	ch->is_sending = false;
	pthread_cond_broadcast(&ch->sendable);
	pthread_mutex_unlock(&peer.lock);
}

/* ---- tests ---- */

Test(peer_channel, a_request_goes_out_when_the_sender_before_it_is_done)
{
	pthread_t thread;
	int rc = 1;

	call_init(&call, WIRE_PONG);
	ch->is_sending = true;
	pthread_create(&thread, NULL, ask, &rc);
	while (!is_listed())
		usleep(1000);
	pthread_mutex_lock(&peer.lock);
	ch->is_sending = false;
	pthread_cond_broadcast(&ch->sendable);
	pthread_mutex_unlock(&peer.lock);
	pthread_join(thread, NULL);
	cr_expect_eq(rc, 0);
	cr_expect_eq(n_sent, 1);
}

Test(peer_channel, a_request_of_one_connection_never_goes_out_over_the_next)
{
	pthread_t thread;
	int rc = 1;

	call_init(&call, WIRE_PONG);
	ch->is_sending = true;
	pthread_create(&thread, NULL, ask, &rc);
	while (!is_listed())
		usleep(1000);
	usleep(20000); /* it waits for the sender now */
	reconnect();
	pthread_join(thread, NULL);
	cr_expect_eq(rc, -ECONNRESET);
	cr_expect_eq(n_sent, 0, "its number may be that of another request there");
}
