/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/transport_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "address.h"

/* ---- fixture: two ends of a connection ---- */

struct link {
	struct transport *t;
	struct transport_listener *l;
	struct transport_conn *a, *b; /* connected, accepted */
	char address[TRANSPORT_ADDRESS_BYTES];
};

static void open_listener(struct link *k, const struct transport_ops *ops, const char *address)
{
	memset(k, 0, sizeof(*k));
	cr_assert_eq(ops->create(NULL, &k->t), 0);
	cr_assert_eq(ops->listen(k->t, address, &k->l, k->address), 0);
}

static void open_link(struct link *k, const struct transport_ops *ops)
{
	open_listener(k, ops, any_port());
	cr_assert_eq(ops->connect(k->t, k->address, SOON, &k->a), 0);
	cr_assert_eq(ops->accept(k->l, SOON, &k->b), 0);
}

static void close_link(struct link *k)
{
	const struct transport_ops *ops = k->t->ops;

	if (k->a)
		ops->close(k->a);
	if (k->b)
		ops->close(k->b);
	if (k->l)
		ops->close_listener(k->l);
	ops->destroy(k->t);
}

static int send_text(struct transport_conn *c, const char *text)
{
	struct iovec v = { (void *)text, strlen(text) };

	return c->ops->send(c, &v, 1, SOON);
}

/* ---- helpers: one end on another thread ---- */

struct act {
	struct transport_conn *c;
	struct transport_listener *l;
	void *buf;
	size_t len;
	int64_t deadline_ns;
	int rc;
	pthread_t thread;
};

static void *do_recv(void *arg)
{
	struct act *x = arg;

	x->rc = x->c->ops->recv(x->c, x->buf, x->len, x->deadline_ns);
	return NULL;
}

static void *do_send(void *arg)
{
	struct act *x = arg;
	struct iovec v = { x->buf, x->len };

	x->rc = x->c->ops->send(x->c, &v, 1, x->deadline_ns);
	return NULL;
}

static void *do_accept(void *arg)
{
	struct act *x = arg;
	struct transport_conn *c;

	x->rc = x->l->ops->accept(x->l, x->deadline_ns, &c);
	return NULL;
}

static void start(struct act *x, void *(*run)(void *))
{
	if (!x->deadline_ns)
		x->deadline_ns = SOON;
	cr_assert_eq(pthread_create(&x->thread, NULL, run, x), 0);
}

static int finish(struct act *x)
{
	pthread_join(x->thread, NULL);
	return x->rc;
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* ---- success ---- */

Test(transport, is_found_by_its_name)
{
	cr_assert_eq(transport_find("tcp"), &transport_tcp);
	cr_assert_eq(transport_find("loopback"), &transport_loopback);
#ifdef MCFS_RDMA
	cr_assert_eq(transport_find("rdma"), &transport_rdma);
#else
	cr_assert_null(transport_find("rdma"), "this build has none");
#endif
	cr_assert_null(transport_find("pigeon"));
}

EACH_TRANSPORT(transport, carries_bytes_both_ways)
{
	struct iovec v[] = { { "one ", 4 }, { "", 0 }, { "message", 8 } };
	char got[12];
	struct link k;

	open_link(&k, ops);
	cr_assert_eq(ops->send(k.a, v, 3, SOON), 0);
	cr_assert_eq(ops->recv(k.b, got, 12, SOON), 0);
	cr_assert_str_eq(got, "one message");
	cr_assert_eq(send_text(k.b, "answer"), 0);
	cr_assert_eq(ops->recv(k.a, got, 3, SOON), 0);
	cr_assert_eq(ops->recv(k.a, got + 3, 3, SOON), 0);
	cr_assert_eq(memcmp(got, "answer", 6), 0);
	cr_assert_str_neq(ops->peer_name(k.a), "");
	cr_assert_str_neq(ops->peer_name(k.b), "");
	close_link(&k);
}

EACH_TRANSPORT(transport, carries_more_than_fits_in_buffers)
{
	size_t len = 48u << 20;
	int fd = make_file(len, 3);
	uint8_t *from = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0), *to = malloc(len);
	struct link k;

	open_link(&k, ops);
	struct act x = { .c = k.a, .buf = from, .len = len };
	start(&x, do_send);
	cr_assert_eq(ops->recv(k.b, to, len, SOON), 0);
	cr_assert_eq(finish(&x), 0);
	cr_assert_eq(memcmp(from, to, len), 0);
	close_link(&k);
	munmap(from, len);
	free(to);
	close(fd);
}

EACH_TRANSPORT(transport, sends_files_behind_a_head)
{
	size_t len = 5u << 20, off = 12345, part = len - 2 * off;
	int fd = make_file(len, 4);
	uint8_t *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0), *to = malloc(len);
	struct link k;

	open_link(&k, ops);
	struct act x = { .c = k.b, .buf = to, .len = part + 4 };
	start(&x, do_recv);
	cr_assert_eq(ops->send_file(k.a, "head", 4, fd, off, part, SOON), 0);
	cr_assert_eq(finish(&x), 0);
	cr_assert_eq(memcmp(to, "head", 4), 0);
	cr_assert_eq(memcmp(to + 4, map + off, part), 0);
	close_link(&k);
	munmap(map, len);
	free(to);
	close(fd);
}

/* sendfile(2) reads no pipe, and says so: what it cannot send is copied, where it can be read at a place. */
EACH_TRANSPORT(transport, tells_of_files_that_cannot_be_read)
{
	int pipes[2];
	struct link k;

	open_link(&k, ops);
	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(ops->send_file(k.a, "head", 4, pipes[0], 0, 10, SOON), -ESPIPE);
	close(pipes[0]);
	close(pipes[1]);
	close_link(&k);
}

EACH_TRANSPORT(transport, tells_of_files_that_are_shorter)
{
	int fd = make_file(1000, 1);
	struct link k;

	open_link(&k, ops);
	cr_assert_eq(ops->send_file(k.a, "head", 4, fd, 900, 101, SOON), -EIO);
	close(fd);
	close_link(&k);
}

EACH_TRANSPORT(transport, finds_a_free_port)
{
	char host[HOST_BYTES], second_bound[TRANSPORT_ADDRESS_BYTES], same[TRANSPORT_ADDRESS_BYTES];
	struct transport_listener *second, *none = NULL;
	struct link k;
	uint16_t port;

	open_listener(&k, ops, any_port());
	cr_assert_eq(address_split(k.address, host, &port), 0);
	cr_assert_eq(strncmp(any_port(), host, strlen(host)), 0);
	cr_assert_gt(port, 0);
	cr_assert_eq(ops->listen(k.t, any_port(), &second, second_bound), 0);
	cr_assert_str_neq(k.address, second_bound);
	strcpy(same, "untouched");
	cr_assert_eq(ops->listen(k.t, k.address, &none, same), -EADDRINUSE);
	cr_assert_null(none);
	cr_assert_str_eq(same, "untouched");
	ops->close_listener(second);
	close_link(&k);
}

EACH_TRANSPORT(transport, speaks_IPv6)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	char byte;
	struct link k;

	close(fd);
	if (rc)
		cr_skip_test("this machine has no [::1]");
	open_listener(&k, ops, "[::1]:0");
	cr_assert_eq(strncmp(k.address, "[::1]:", 6), 0, "%s", k.address);
	cr_assert_eq(ops->connect(k.t, k.address, SOON, &k.a), 0);
	cr_assert_eq(ops->accept(k.l, SOON, &k.b), 0);
	cr_assert_eq(send_text(k.a, "x"), 0);
	cr_assert_eq(ops->recv(k.b, &byte, 1, SOON), 0);
	close_link(&k);
}

Test(transport_tcp, finds_hosts_by_name)
{
	char address[TRANSPORT_ADDRESS_BYTES], host[HOST_BYTES];
	struct link k;
	uint16_t port;

	open_listener(&k, &transport_tcp, "[::]:0");
	cr_assert_eq(address_split(k.address, host, &port), 0);
	snprintf(address, sizeof(address), "localhost:%u", port);
	cr_assert_eq(transport_tcp.connect(k.t, address, SOON, &k.a), 0);
	cr_assert_eq(transport_tcp.accept(k.l, SOON, &k.b), 0);
	transport_tcp.close(k.b);
	transport_tcp.close(k.a);
	/* Both families reach one socket. */
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	cr_assert_eq(transport_tcp.connect(k.t, address, SOON, &k.a), 0);
	cr_assert_eq(transport_tcp.accept(k.l, SOON, &k.b), 0);
	close_link(&k);
}

/* ---- deadlines ---- */

EACH_TRANSPORT(transport, keeps_deadlines)
{
	size_t len = 64u << 20;
	struct transport_conn *none;
	uint8_t *buf = calloc(1, len);
	struct iovec v = { buf, len };
	struct link k;

	open_link(&k, ops);
	int64_t begin = clock_now_ns();
	cr_assert_eq(ops->recv(k.a, buf, 1, deadline_in_ms(50)), -ETIMEDOUT);
	cr_assert_eq(ops->send(k.a, &v, 1, deadline_in_ms(50)), -ETIMEDOUT);
	cr_assert_eq(ops->accept(k.l, deadline_in_ms(50), &none), -ETIMEDOUT);
	int64_t took_ms = (clock_now_ns() - begin) / NS_PER_MS;
	cr_assert_geq(took_ms, 150);
	cr_assert_lt(took_ms, 5000);
	cr_assert_eq(ops->recv(k.b, buf, 1, clock_now_ns() - 1), 0, "what is there needs no time");
	free(buf);
	close_link(&k);
}

Test(transport_tcp, gives_up_on_addresses_that_do_not_answer, .timeout = 60)
{
	struct transport_conn *c;
	struct transport *t;

	cr_assert_eq(transport_tcp.create(NULL, &t), 0);
	int64_t begin = clock_now_ns();
	/* TEST-NET-1 of RFC 5737: silent, or refused at once by a machine without a route. */
	int rc = transport_tcp.connect(t, "192.0.2.1:9", deadline_in_ms(200), &c);
	cr_assert(rc == -ETIMEDOUT || rc == -ENETUNREACH || rc == -EHOSTUNREACH || rc == -ECONNREFUSED, "%d", rc);
	cr_assert_lt((clock_now_ns() - begin) / NS_PER_MS, 5000);
	transport_tcp.destroy(t);
}

/* ---- ends ---- */

EACH_TRANSPORT(transport, is_refused_where_nobody_listens)
{
	struct transport_conn *c = NULL;
	struct link k;

	open_listener(&k, ops, any_port());
	ops->close_listener(k.l);
	k.l = NULL;
	cr_assert_eq(ops->connect(k.t, k.address, SOON, &c), -ECONNREFUSED);
	cr_assert_eq(ops->connect(k.t, "nonsense", SOON, &c), -EINVAL);
	cr_assert_eq(ops->connect(k.t, "127.0.0.1:0", SOON, &c), ops == &transport_loopback ? -ECONNREFUSED : -EINVAL);
	cr_assert_null(c);
	close_link(&k);
}

EACH_TRANSPORT(transport, shutdown_wakes_its_own_receiver)
{
	char byte;
	struct link k;

	open_link(&k, ops);
	struct act x = { .c = k.a, .buf = &byte, .len = 1 };
	start(&x, do_recv);
	sleep_ms(50);
	ops->shutdown(k.a);
	cr_assert_eq(finish(&x), -ECANCELED);
	cr_assert_eq(ops->recv(k.a, &byte, 1, SOON), -ECANCELED);
	cr_assert_eq(send_text(k.a, "x"), -ECANCELED);
	cr_assert_eq(ops->recv(k.b, &byte, 1, SOON), -ECONNRESET);
	close_link(&k);
}

EACH_TRANSPORT(transport, shutdown_wakes_its_own_sender)
{
	size_t len = 64u << 20;
	void *buf = calloc(1, len);
	struct link k;

	open_link(&k, ops);
	struct act x = { .c = k.a, .buf = buf, .len = len };
	start(&x, do_send);
	sleep_ms(50);
	ops->shutdown(k.a);
	cr_assert_eq(finish(&x), -ECANCELED);
	free(buf);
	close_link(&k);
}

EACH_TRANSPORT(transport, sees_the_other_end_close_in_the_middle)
{
	char got[8];
	struct link k;

	open_link(&k, ops);
	struct act x = { .c = k.b, .buf = got, .len = 8 };
	start(&x, do_recv);
	cr_assert_eq(send_text(k.a, "half"), 0);
	ops->close(k.a);
	k.a = NULL;
	cr_assert_eq(finish(&x), -ECONNRESET);
	close_link(&k);
}

/* No SIGPIPE either: it would end the test. */
EACH_TRANSPORT(transport, sees_the_other_end_close_while_it_sends)
{
	size_t len = 16u << 20;
	int fd = make_file(len, 1), rc = 0;
	void *buf = calloc(1, len);
	struct link k;

	signal(SIGPIPE, SIG_DFL);
	open_link(&k, ops);
	ops->close(k.b);
	k.b = NULL;
	for (int n = 0; n < 4; n++) {
		struct iovec v = { buf, len };
		rc = ops->send(k.a, &v, 1, SOON);
		cr_assert_eq(rc, -ECONNRESET);
		cr_assert_eq(ops->send_file(k.a, "", 0, fd, 0, len, SOON), -ECONNRESET);
	}
	free(buf);
	close(fd);
	close_link(&k);
}

EACH_TRANSPORT(transport, stop_listening_wakes_accept)
{
	struct transport_conn *none;
	struct link k;

	open_listener(&k, ops, any_port());
	struct act x = { .l = k.l };
	start(&x, do_accept);
	sleep_ms(50);
	ops->stop_listening(k.l);
	cr_assert_eq(finish(&x), -ECANCELED);
	cr_assert_eq(ops->accept(k.l, SOON, &none), -ECANCELED);
	close_link(&k);
}

EACH_TRANSPORT(transport, connections_that_nobody_accepted_end_with_the_listener)
{
	char byte;
	struct link k;

	open_listener(&k, ops, any_port());
	cr_assert_eq(ops->connect(k.t, k.address, SOON, &k.a), 0);
	ops->close_listener(k.l);
	k.l = NULL;
	cr_assert_eq(ops->recv(k.a, &byte, 1, SOON), -ECONNRESET);
	close_link(&k);
}

/* ---- addresses ---- */

Test(address, has_port_0_for_listeners)
{
	char host[HOST_BYTES], text[TRANSPORT_ADDRESS_BYTES];
	uint16_t port = 7;

	cr_assert_eq(address_split("[::1]:0", host, &port), 0);
	cr_assert_str_eq(host, "::1");
	cr_assert_eq(port, 0);
	cr_assert_eq(address_split("node:10", host, &port), 0);
	cr_assert_eq(port, 10);
	cr_assert_eq(address_split("node:00", host, &port), -EINVAL);
	cr_assert_eq(address_split(":0", host, &port), -EINVAL);
	cr_assert_eq(address_join("fe80::1", 80, text), 0);
	cr_assert_str_eq(text, "[fe80::1]:80");
}

Test(address, knows_the_loopback_hosts)
{
	static const char *const local[] = { "127.0.0.1", "127.9.9.9", "::1", "localhost" };
	static const char *const others[] = { "0.0.0.0",   "::", "10.0.0.1", "fe80::1", "127.0.0.1.example.org",
					      "1270.0.0.1" };

	for (size_t k = 0; k < sizeof(local) / sizeof(*local); k++)
		cr_expect(address_host_is_loopback(local[k]), "%s", local[k]);
	for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
		cr_expect_not(address_host_is_loopback(others[k]), "%s", others[k]);
}
