/* SPDX-License-Identifier: Apache-2.0 */
/* The provider rdma on a device, which MCFS_TEST_HOST is an address of: run by tests/rdma/run.sh. */
#include <criterion/criterion.h>

#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/rdma_pair.h"

/* A machine may be emulated, and busy. */
#define LATE deadline_in_ms(60000)

TestSuite(rdma_device, .timeout = 200);

static int64_t now_ms(void)
{
	return clock_now_ns() / NS_PER_MS;
}

/* ---- success ---- */

Test(rdma_device, pulls_ranges_of_any_size_and_alignment)
{
	static const size_t lens[] = {1,    2,	   7,	    63,	    4095,	4096,
				      4097, 65536, 1000003, MIB(1), MIB(1) + 1, MIB(4) - 3};
	struct rdma_pair p;

	pair_open(&p, MIB(5));
	for (size_t k = 0; k < sizeof(lens) / sizeof(*lens); k++) {
		pull_right(&p, 0, 0, lens[k]);
		pull_right(&p, 1, 0, lens[k]);
		pull_right(&p, 4095, 3, lens[k]);
	}
	cr_assert_eq(rdma_get_stats(p.asker)->n_connects, 1);
	pair_close(&p);
}

Test(rdma_device, pulls_64_MiB)
{
	struct rdma_pair p;

	pair_open(&p, MIB(64));
	int64_t begin = now_ms();
	cr_assert_eq(pull(&p, 0, 0, 1, LATE), 0);
	int64_t connected = now_ms();
	cr_assert_eq(pull(&p, 0, 0, MIB(64), LATE), 0);
	int64_t end = now_ms();
	cr_assert_eq(memcmp(p.from.bytes, p.to.bytes, MIB(64)), 0);
	printf("figure: connected in %lld ms, 64 MiB in %lld ms, %llu sleeps\n",
	       (long long)(connected - begin), (long long)(end - connected),
	       (unsigned long long)rdma_get_stats(p.asker)->n_sleeps);
	pair_close(&p);
}

/* The VM of the long tests has memory for both ends of it. */
Test(rdma_device, pulls_1_GiB, .timeout = 900)
{
	struct rdma_pair p;

	if (!getenv("MCFS_LONG") || strcmp(getenv("MCFS_LONG"), "1") != 0)
		cr_skip_test("long (set MCFS_LONG=1)");
	pair_open(&p, MIB(1024));
	int64_t start = now_ms();
	cr_assert_eq(pull(&p, 0, 0, MIB(1024), deadline_in_ms(600000)), 0);
	printf("figure: 1 GiB in %lld ms\n", (long long)(now_ms() - start));
	cr_assert_eq(memcmp(p.from.bytes, p.to.bytes, MIB(1024)), 0);
	pair_close(&p);
}

Test(rdma_device, pulls_on_several_connections_at_once)
{
	enum {
		N = 4
	};
	struct puller x[N] = {0};
	struct rdma_pair p[N];

	for (int k = 0; k < N; k++) {
		pair_open(&p[k], MIB(8));
		x[k] = (struct puller){.p = &p[k], .len = MIB(8), .deadline_ns = LATE};
	}
	for (int k = 0; k < N; k++)
		puller_start(&x[k]);
	for (int k = 0; k < N; k++) {
		cr_assert_eq(puller_finish(&x[k]), 0);
		cr_assert_eq(memcmp(p[k].from.bytes, p[k].to.bytes, MIB(8)), 0);
		pair_close(&p[k]);
	}
}

/* ---- what is refused ---- */

Test(rdma_device, refuses_a_wrong_rkey_and_works_on)
{
	struct rdma_pair p;

	pair_open(&p, MIB(4));
	p.key[RDMA_KEY_FIXED_BYTES + 1] ^= 0xff;
	cr_assert_eq(pull(&p, 0, 0, MIB(4), LATE), -EACCES);
	p.key[RDMA_KEY_FIXED_BYTES + 1] ^= 0xff;
	pull_right(&p, 0, 0, MIB(4));
	pair_close(&p);
}

/* The key says that there is more than was registered: the device knows better. */
Test(rdma_device, refuses_to_read_beyond_the_memory)
{
	struct rdma_pair p;

	pair_open(&p, MIB(1));
	p.key[28 + 2] += 1; /* its length, by 64 KiB */
	cr_assert_eq(pull(&p, MIB(1) - 4096, 0, 8192, LATE), -EACCES);
	pair_close(&p);
}

Test(rdma_device, refuses_memory_that_is_not_registered_any_more)
{
	struct rdma_pair p;

	pair_open(&p, MIB(1));
	pull_right(&p, 0, 0, 4096);
	transport_rdma.deregister(p.from.mr);
	p.from.mr = NULL;
	cr_assert_eq(pull(&p, 0, 0, 4096, LATE), -EACCES);
	pair_close(&p);
}

Test(rdma_device, refuses_a_wrong_token)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	p.key[4] ^= 1;
	cr_assert_eq(pull(&p, 0, 0, 4096, LATE), -EACCES);
	cr_assert_eq(rdma_get_stats(p.holder)->n_refused, 1);
	p.key[4] ^= 1;
	pull_right(&p, 0, 0, 4096);
	pair_close(&p);
}

Test(rdma_device, is_refused_where_nobody_listens)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	transport_rdma.close_listener(p.l);
	p.l = NULL;
	int rc = pull(&p, 0, 0, 1, LATE);
	cr_assert_eq(rc, -ECONNREFUSED, "%d", rc);
	pair_close(&p);
}

/* ---- ends in the middle ---- */

/* What the device has not written when pull returns it never writes. */
static void no_late_bytes(struct rdma_pair *p)
{
	memset(p->to.bytes, 0x5a, p->to.len);
	sleep_ms(500);
	for (size_t k = 0; k < p->to.len; k++)
		cr_assert_eq(p->to.bytes[k], 0x5a, "byte %zu", k);
	cr_assert_eq(rdma_get_stats(p->asker)->n_pull_links, 0);
}

/* A pull that is certainly under way. */
static void begin(struct rdma_pair *p, struct puller *x)
{
	cr_assert_eq(pull(p, 0, 0, 1, LATE), 0);
	memset(p->to.bytes, 0x5a, p->to.len);
	*x = (struct puller){.p = p, .len = p->to.len, .deadline_ns = LATE};
	puller_start(x);
	while (*(volatile uint8_t *)(p->to.bytes + MIB(1)) == 0x5a && !x->is_over)
		sleep_ms(1);
	cr_assert_not(x->is_over, "%d", x->rc);
}

Test(rdma_device, shutdown_ends_a_pull)
{
	struct puller x;
	struct rdma_pair p;

	pair_open(&p, MIB(64));
	begin(&p, &x);
	int64_t start = now_ms();
	transport_rdma.shutdown(p.a);
	cr_assert_eq(puller_finish(&x), -ECANCELED);
	printf("figure: shut down in %lld ms\n", (long long)(now_ms() - start));
	no_late_bytes(&p);
	pair_close(&p);
}

Test(rdma_device, a_holder_that_closes_ends_a_pull)
{
	struct puller x;
	struct rdma_pair p;

	pair_open(&p, MIB(64));
	begin(&p, &x);
	transport_rdma.close(p.b);
	p.b = NULL;
	cr_assert_eq(puller_finish(&x), -ECONNRESET);
	no_late_bytes(&p);
	pair_close(&p);
}

Test(rdma_device, a_deadline_ends_a_pull)
{
	struct rdma_pair p;

	pair_open(&p, MIB(64));
	cr_assert_eq(pull(&p, 0, 0, 1, LATE), 0);
	cr_assert_eq(pull(&p, 0, 0, MIB(64), deadline_in_ms(50)), -ETIMEDOUT);
	no_late_bytes(&p);
	pull_right(&p, 0, 0, MIB(2));
	pair_close(&p);
}

/* ---- a holder in a process of its own ---- */

struct told {
	char address[TRANSPORT_ADDRESS_BYTES];
	uint8_t key[TRANSPORT_KEY_BYTES];
	size_t key_len;
};

/* Tells its address and key, takes one connection, and stays. */
static void hold(int fd, size_t len)
{
	struct transport_listener *l;
	struct transport_conn *c;
	struct rdma_memory m;
	struct transport *t;
	struct told told = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (transport_rdma.create(NULL, &t) ||
	    transport_rdma.listen(t, any_port(), &l, told.address))
		_exit(1);
	memory_open(&m, t, len, 1);
	told.key_len = transport_rdma.key_of(m.mr, told.key);
	if (write(fd, &told, sizeof(told)) != sizeof(told) || transport_rdma.accept(l, LATE, &c))
		_exit(1);
	for (;;)
		pause();
}

static pid_t pair_open_apart(struct rdma_pair *p, size_t len)
{
	struct told told;
	int pipes[2];

	memset(p, 0, sizeof(*p));
	cr_assert_eq(pipe(pipes), 0);
	pid_t child = fork();
	if (!child)
		hold(pipes[1], len);
	cr_assert_eq(read(pipes[0], &told, sizeof(told)), sizeof(told));
	close(pipes[0]);
	close(pipes[1]);
	cr_assert_eq(transport_rdma.create(NULL, &p->asker), 0);
	cr_assert_eq(transport_rdma.connect(p->asker, told.address, SOON, &p->a), 0);
	memory_open(&p->to, p->asker, len, 2);
	memcpy(p->key, told.key, sizeof(p->key));
	p->key_len = told.key_len;
	return child;
}

static void pair_close_apart(struct rdma_pair *p)
{
	transport_rdma.close(p->a);
	memory_close(&p->to);
	transport_rdma.destroy(p->asker);
}

Test(rdma_device, a_holder_that_is_killed_ends_a_pull)
{
	struct puller x;
	struct rdma_pair p;

	pid_t child = pair_open_apart(&p, MIB(64));
	begin(&p, &x);
	int64_t start = now_ms();
	kill(child, SIGKILL);
	cr_assert_eq(puller_finish(&x), -ECONNRESET);
	printf("figure: killed holder noticed in %lld ms\n", (long long)(now_ms() - start));
	waitpid(child, NULL, 0);
	no_late_bytes(&p);
	cr_assert_eq(pull(&p, 0, 0, 1, LATE), -ECONNRESET, "and again");
	pair_close_apart(&p);
}

/* Nobody of the holder's takes part: the devices do it. */
Test(rdma_device, a_holder_that_stands_still_is_read)
{
	struct rdma_pair p;

	pid_t child = pair_open_apart(&p, MIB(4));
	cr_assert_eq(pull(&p, 0, 0, 1, LATE), 0);
	kill(child, SIGSTOP);
	cr_assert_eq(pull(&p, 0, 0, MIB(4), LATE), 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	pair_close_apart(&p);
}

/* ---- limits ---- */

static void drop_lock_capability(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];

	cr_assert_eq(syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	cr_assert_eq(syscall(SYS_capset, &head, data), 0);
}

/* As a service without CAP_IPC_LOCK: what is too large is refused, the rest works. */
Test(rdma_device, memlock_limits_what_can_be_registered)
{
	struct rlimit lim = {64 << 10, 64 << 10};
	struct transport_mr *mr = NULL;
	struct rdma_pair p;
	void *large =
		mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* Before: rdma_cm serves only the credentials that opened it. */
	drop_lock_capability();
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	pair_open(&p, 8192);
	cr_assert_eq(transport_rdma.register_memory(p.asker, large, MIB(1), &mr), -ENOMEM);
	cr_assert_null(mr);
	pull_right(&p, 0, 0, 8192);
	pair_close(&p);
}

Test(rdma_device, failed_connects_leave_nothing)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	p.key[4] ^= 1;
	for (int k = 0; k < 20; k++)
		cr_assert_eq(pull(&p, 0, 0, 1, LATE), -EACCES);
	cr_assert_eq(rdma_get_stats(p.asker)->n_pull_links, 0);
	cr_assert_eq(rdma_get_stats(p.holder)->n_served_links, 0);
	p.key[4] ^= 1;
	pull_right(&p, 0, 0, 4096);
	pair_close(&p);
}
