/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/directory_box.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "directory_key.h"
#include "mcfs/catalog.h"

#define NS_PER_MS INT64_C(1000000)
#define DONE_S 20

struct directory_box directory_box;

/* ---- fixture ---- */

void directory_box_init(void)
{
	if (redis_server_missing())
		cr_skip_test("%s", redis_server_missing());
	redis_server_init(&directory_box.server, NULL);
}

void directory_box_fini(void)
{
	for (int i = 0; i < DIRECTORY_BOX_NODES; i++)
		directory_box_close(i);
	if (directory_box.server.client)
		redis_server_fini(&directory_box.server);
}

static void count_resync(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

struct directory_conf directory_box_conf(int node)
{
	struct directory_conf conf = {
		.url = directory_box.server.url,
		.prefix = DIRECTORY_BOX_PREFIX,
		.self = {.id = 1000 + (uint64_t)node, .incarnation = 1, .load = 10},
		.lease_ms = 2000,
		.lookup_ms = 3000,
		.on_resync = count_resync,
		.arg = &directory_box.n_resyncs[node],
	};

	snprintf(conf.self.name, sizeof(conf.self.name), "node%d", node);
	snprintf(conf.self.address, sizeof(conf.self.address), "10.0.0.%d:7000", node);
	return conf;
}

struct directory *directory_box_open(int node, const struct directory_conf *conf)
{
	struct directory **d = &directory_box.nodes[node];

	cr_assert_null(*d);
	cr_assert_eq(directory_create(conf, d), 0);
	cr_assert(directory_box_wait(directory_box_is_usable, *d, 10000));
	return *d;
}

struct directory *directory_box_node(int node)
{
	struct directory_conf conf = directory_box_conf(node);

	return directory_box.nodes[node] ? directory_box.nodes[node] : directory_box_open(node, &conf);
}

void directory_box_close(int node)
{
	if (directory_box.nodes[node])
		directory_destroy(directory_box.nodes[node]);
	directory_box.nodes[node] = NULL;
}

/* ---- time ---- */

int64_t directory_box_in_ms(int64_t ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 * NS_PER_MS + ts.tv_nsec + ms * NS_PER_MS;
}

bool directory_box_wait(bool (*condition)(struct directory *d), struct directory *d, int64_t ms)
{
	int64_t deadline_ns = directory_box_in_ms(ms);

	while (!condition(d)) {
		if (directory_box_in_ms(0) > deadline_ns)
			return false;
		usleep(2000);
	}
	return true;
}

int directory_box_state(struct directory *d)
{
	char text[256];

	return directory_state(d, text, sizeof(text));
}

bool directory_box_is_usable(struct directory *d)
{
	return !directory_box_state(d);
}

/* ---- changes ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool is_done;
	int rc;
	struct directory_value before;
};

static void waiter_done(void *arg, int rc, const struct directory_value *before)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	w->before = *before;
	w->before.target = NULL;
	w->is_done = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static int waiter_wait(struct waiter *w, struct directory_value *before)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += DONE_S;
	pthread_mutex_lock(&w->lock);
	while (!w->is_done)
		cr_assert_eq(pthread_cond_timedwait(&w->done, &w->lock, &ts), 0, "a change was never done");
	pthread_mutex_unlock(&w->lock);
	if (before)
		*before = w->before;
	return w->rc;
}

#define WAITER                                                                      \
	{                                                                           \
		.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER \
	}

struct directory_value directory_box_file(uint64_t version, uint64_t size)
{
	return (struct directory_value){
		.kind = DIRECTORY_FILE, .version = version, .object = version, .size = size, .mode = 0100644,
		.mtime_ns = 1};
}

int directory_box_announce(struct directory *d, const char *dir, const char *name, const struct directory_value *v,
			   struct directory_value *before)
{
	struct waiter w = WAITER;

	directory_announce(d, dir, name, v, 0, waiter_done, &w);
	return waiter_wait(&w, before);
}

int directory_box_retract(struct directory *d, const char *dir, const char *name, struct directory_value *before)
{
	struct waiter w = WAITER;

	directory_retract(d, dir, name, 0, waiter_done, &w);
	return waiter_wait(&w, before);
}

int directory_box_remove(struct directory *d, const char *dir, const char *name, uint64_t version,
			 struct directory_value *before)
{
	struct waiter w = WAITER;

	directory_remove(d, dir, name, version, waiter_done, &w);
	return waiter_wait(&w, before);
}

int directory_box_lookup(struct directory *d, const char *dir, const char *name, struct directory_value *v)
{
	struct directory_name n = {.dir = dir, .name = name};

	return directory_lookup(d, &n, 1, v, directory_box_in_ms(10000));
}

/* ---- raw ---- */

static void raw_key(const char *dir, const char *name, char key[DIRECTORY_KEY_BYTES])
{
	directory_bucket_key(key, DIRECTORY_BOX_PREFIX, directory_path_hash(dir),
			     directory_bucket_of(catalog_name_cookie(name)));
}

size_t directory_box_raw_get(const char *dir, const char *name, void *buf, size_t size)
{
	char key[DIRECTORY_KEY_BYTES];
	struct redis_reply reply;

	raw_key(dir, name, key);
	cr_assert_eq(redis_server_run(&directory_box.server, &reply, "HGET", key, name, NULL), 0);
	cr_assert(reply.kind == REDIS_BYTES && reply.len <= size);
	memcpy(buf, reply.bytes, reply.len);
	return reply.len;
}

void directory_box_raw_set(const char *dir, const char *name, const void *bytes, size_t len)
{
	directory_box_raw_set_beside(dir, name, name, bytes, len);
}

void directory_box_raw_set_beside(const char *dir, const char *name, const char *field, const void *bytes,
				  size_t len)
{
	char key[DIRECTORY_KEY_BYTES];
	struct redis_reply reply;

	raw_key(dir, name, key);
	cr_assert_eq(redis_server_run_bytes(&directory_box.server, &reply, 4,
					    (const char *[]){"HSET", key, field, bytes},
					    (size_t[]){4, strlen(key), strlen(field), len}),
		     0);
}

int64_t directory_box_raw_count(const char *dir, const char *name)
{
	char key[DIRECTORY_KEY_BYTES];

	raw_key(dir, name, key);
	return redis_server_integer(&directory_box.server, "HLEN", key);
}
