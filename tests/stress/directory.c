/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory: threads announce, take back, look up and list on two nodes, while the server hangs, dies and comes
 * back empty. Every call ends with a result that the header names, every change is done once, and when the server
 * stays, what is announced is found.
 *
 * Exit status 0; 1 something was wrong; 77 no server to run it on.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/redis_server.h"
#include "mcfs/directory.h"

#define N_NODES 2
#define N_THREADS 6
#define N_NAMES 64
#define TROUBLES 12
#define QUEUE_BYTES 200000

static struct redis_server server;
static struct directory *nodes[N_NODES];
static atomic_bool stopping;
static atomic_ulong n_asked, n_done, n_bad;

static int64_t in_ms(int64_t ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec + ms * 1000000;
}

static void check(int rc, const char *what)
{
	switch (rc) {
	case 0:
	case -ENETDOWN:
	case -ETIMEDOUT:
	case -ESTALE:
	case -ENOBUFS:
	case -ECANCELED:
	case -ENOENT:
		return;
	default:
		fprintf(stderr, "directory: %s: %s\n", what, strerror(-rc));
		atomic_fetch_add(&n_bad, 1);
	}
}

static void on_done(void *arg, int rc, const struct directory_value *before)
{
	check(rc, "a change");
	atomic_fetch_add(&n_done, 1);
}

static struct directory_value file_of(unsigned i)
{
	return (struct directory_value){.kind = DIRECTORY_FILE, .version = 1 + i, .object = 1 + i, .mode = 0100644,
					.size = i};
}

static void on_resync(void *arg)
{
	struct directory **d = arg;

	for (unsigned i = 0; i < N_NAMES && !atomic_load(&stopping); i++) {
		struct directory_value v = file_of(i);
		char name[16];
		snprintf(name, sizeof(name), "r%u", i);
		directory_announce(*d, "/s", name, &v, 1, NULL, NULL);
	}
}

static int on_listed(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	return 0;
}

static void on_node(void *arg, const struct directory_node *n) {}

static void change(struct directory *d, unsigned i)
{
	struct directory_value v = file_of(i);
	char name[16];

	snprintf(name, sizeof(name), "c%u", i % N_NAMES);
	atomic_fetch_add(&n_asked, 3);
	directory_announce(d, "/s", name, &v, i % 7, on_done, NULL);
	directory_retract(d, "/s", name, v.object, on_done, NULL);
	directory_remove(d, "/s", name, v.version, on_done, NULL);
}

static void ask(struct directory *d, unsigned i)
{
	struct directory_value values[N_NAMES];
	struct directory_name names[N_NAMES];
	char texts[N_NAMES][16];

	for (unsigned k = 0; k < N_NAMES; k++) {
		snprintf(texts[k], sizeof(texts[k]), "%c%u", i % 2 ? 'c' : 'r', k);
		names[k] = (struct directory_name){.dir = "/s", .name = texts[k]};
	}
	int rc = directory_lookup(d, names, N_NAMES, values, in_ms(i % 3 ? 1000 : 2));
	check(rc, "lookup");
	for (unsigned k = 0; !rc && k < N_NAMES; k++)
		directory_value_fini(&values[k]);
	if (i % 8 == 0)
		check(directory_list(d, "/s", 0, on_listed, NULL, in_ms(500)), "list");
}

static void observe(struct directory *d, unsigned i)
{
	struct directory_stats s;
	struct directory_node n;
	char text[128];

	directory_get_stats(d, &s);
	directory_state(d, text, sizeof(text));
	directory_lease_holds(d);
	directory_each_node(d, on_node, NULL);
	check(directory_node_of(d, (uint16_t)(i % 3), &n, in_ms(50)), "node");
	if (s.queue_bytes > QUEUE_BYTES) {
		fprintf(stderr, "directory: the queue has %llu bytes\n", (unsigned long long)s.queue_bytes);
		atomic_fetch_add(&n_bad, 1);
	}
	if (i % 16 == 0)
		check(directory_flush(d, in_ms(100)), "flush");
}

static void *worker(void *arg)
{
	unsigned number = (unsigned)(size_t)arg;
	struct directory *d = nodes[number % N_NODES];

	for (unsigned i = 0; !atomic_load(&stopping); i++) {
		change(d, i * N_THREADS + number);
		ask(d, i);
		observe(d, i);
		usleep(1000);
	}
	return NULL;
}

static void trouble(unsigned i)
{
	if (i % 3 == 2) {
		redis_server_kill(&server);
		usleep(150000);
		redis_server_start(&server);
	} else {
		redis_server_freeze(&server);
		usleep(i % 3 ? 50000 : 300000);
		redis_server_thaw(&server);
	}
	usleep(400000);
}

static void open_nodes(void)
{
	for (unsigned k = 0; k < N_NODES; k++) {
		struct directory_conf conf = {.url = server.url,
					      .prefix = "stress",
					      .self = {.id = 1 + k, .name = "n", .address = "h:1"},
					      .lease_ms = 500,
					      .max_queue_bytes = QUEUE_BYTES,
					      .on_resync = on_resync,
					      .arg = &nodes[k]};
		if (directory_create(&conf, &nodes[k])) {
			fprintf(stderr, "directory: cannot create\n");
			atomic_fetch_add(&n_bad, 1);
		}
	}
}

static void check_settled(void)
{
	struct directory_value v = file_of(1u << 30), got = {.kind = DIRECTORY_NONE};
	struct directory_name name = {.dir = "/s", .name = "last"};
	char text[128];

	for (int i = 0; i < 500 && directory_state(nodes[0], text, sizeof(text)); i++)
		usleep(10000);
	directory_announce(nodes[0], "/s", "last", &v, 0, NULL, NULL);
	int rc = directory_flush(nodes[0], in_ms(10000));
	for (int i = 0; !rc && i < 500 && got.kind != DIRECTORY_FILE; i++) {
		rc = directory_lookup(nodes[1], &name, 1, &got, in_ms(1000));
		if (rc == -ENETDOWN || rc == -ETIMEDOUT) {
			usleep(10000);
			rc = 0;
		}
	}
	if (!rc && got.kind == DIRECTORY_FILE)
		return;
	fprintf(stderr, "directory: what was announced last is not found: %s\n", strerror(-rc));
	atomic_fetch_add(&n_bad, 1);
}

int main(void)
{
	pthread_t threads[N_THREADS];

	if (redis_server_missing()) {
		fprintf(stderr, "directory: %s\n", redis_server_missing());
		return 77;
	}
	redis_server_init(&server, NULL);
	open_nodes();
	if (!atomic_load(&n_bad)) {
		for (size_t i = 0; i < N_THREADS; i++)
			pthread_create(&threads[i], NULL, worker, (void *)i);
		for (unsigned i = 0; i < TROUBLES; i++)
			trouble(i);
		atomic_store(&stopping, true);
		for (size_t i = 0; i < N_THREADS; i++)
			pthread_join(threads[i], NULL);
		check_settled();
	}
	for (unsigned k = 0; k < N_NODES; k++)
		if (nodes[k])
			directory_destroy(nodes[k]);
	redis_server_fini(&server);
	if (atomic_load(&n_asked) != atomic_load(&n_done)) {
		fprintf(stderr, "directory: %lu changes, %lu done\n", atomic_load(&n_asked), atomic_load(&n_done));
		return 1;
	}
	printf("%lu changes\n", atomic_load(&n_done));
	return atomic_load(&n_bad) ? 1 : 0;
}
