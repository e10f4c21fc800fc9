/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a cluster on a server of its own: announcing so many names of 64 hex digits in one directory,
 * by one node and by three; the server's memory for them; looking names up by the thousand, and the same many
 * plain GETs in one pipeline for comparison; listing all.
 *
 * Exit status: 0 it ran, whatever the time; 1 it could not run or something was missing; 2 usage; 77 no server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lib/redis_server.h"
#include "mcfs/directory.h"

#define DIR "/kv/model-70b"
#define LOOKUP_NAMES 1000
#define LOOKUP_ROUNDS 300
#define FLUSH_NAMES 100000
#define N_NODES 3
#define NS_PER_S INT64_C(1000000000)

static struct redis_server server;

static void must(int condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "bench_directory: %s\n", what);
		redis_server_fini(&server);
		exit(1);
	}
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static double own_cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6 + (double)u.ru_stime.tv_sec +
	       (double)u.ru_stime.tv_usec / 1e6;
}

static double server_cpu_s(void)
{
	char path[64], line[1024] = "";
	unsigned long user = 0, sys = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", server.pid);
	FILE *f = fopen(path, "r");
	must(f && fgets(line, sizeof(line), f), path);
	fclose(f);
	const char *rest = strrchr(line, ')');
	must(rest && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) == 2,
	     path);
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void on_resync(void *arg) {}

static struct directory *node_open(int k)
{
	struct directory_conf conf = {
		.url = server.url,
		.prefix = "bench",
		.on_resync = on_resync,
		.self = {.id = 1 + (uint64_t)k, .incarnation = 1, .name = "n", .address = "h:1"},
		.max_queue_bytes = UINT64_C(256) << 20,
		.lookup_ms = 2000};
	struct directory *d = NULL;
	char text[256];

	must(!directory_create(&conf, &d), "directory_create");
	for (int i = 0; i < 1000 && directory_state(d, text, sizeof(text)); i++)
		usleep(5000);
	must(!directory_state(d, text, sizeof(text)), text);
	return d;
}

/* Spread as hashes are. */
static void name_of(uint64_t i, char name[65])
{
	uint64_t h[4];

	for (int k = 0; k < 4; k++) {
		h[k] = (i * 4 + (uint64_t)k + 1) * UINT64_C(0x9e3779b97f4a7c15);
		h[k] = (h[k] ^ h[k] >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
		h[k] ^= h[k] >> 32;
	}
	snprintf(name, 65, "%016llx%016llx%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1],
		 (unsigned long long)h[2], (unsigned long long)h[3]);
}

static void announce_all(struct directory *d, uint64_t n, int k, int64_t empty_bytes)
{
	double own_s = own_cpu_s(), other_s = server_cpu_s();
	int64_t begin_ns = now_ns();
	struct directory_stats s;
	char name[65];

	for (uint64_t i = 0; i < n; i++) {
		struct directory_value v = {.kind = DIRECTORY_FILE,
					    .version = (UINT64_C(1) << 60) + i, .object = (UINT64_C(1) << 60) + i,
					    .mode = 0100644,
					    .size = 1 << 20,
					    .uid = 1000,
					    .gid = 1000,
					    .mtime_ns = INT64_C(1700000000) * NS_PER_S + (int64_t)i};
		name_of(i, name);
		directory_announce(d, DIR, name, &v, 5, NULL, NULL);
		if (i % FLUSH_NAMES == FLUSH_NAMES - 1)
			must(!directory_flush(d, now_ns() + 60 * NS_PER_S), "flush");
	}
	must(!directory_flush(d, now_ns() + 60 * NS_PER_S), "flush");
	double s_taken = (double)(now_ns() - begin_ns) / 1e9;
	directory_get_stats(d, &s);
	must(s.n_announced == n, "not all were announced");
	int64_t used = redis_server_info(&server, "memory", "used_memory") - empty_bytes;
	printf("announce by node %d: %.0f names/s, CPU %.2f us/name here, %.2f us/name there; "
	       "%.0f bytes/name at the server\n",
	       k, (double)n / s_taken, (own_cpu_s() - own_s) / (double)n * 1e6,
	       (server_cpu_s() - other_s) / (double)n * 1e6, (double)used / (double)n);
}

static int compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void report(const char *what, int64_t *took_ns, int rounds, int names, double own_s, double server_s)
{
	qsort(took_ns, (size_t)rounds, sizeof(*took_ns), compare);
	printf("%s of %d names: p50 %.0f us, p99 %.0f us, %.0f names/s, CPU %.2f us/name here, %.2f there\n", what,
	       names, (double)took_ns[rounds / 2] / 1e3, (double)took_ns[rounds * 99 / 100] / 1e3,
	       names * 1e9 / (double)took_ns[rounds / 2], own_s / rounds / names * 1e6,
	       server_s / rounds / names * 1e6);
}

static void look_up(struct directory *d, uint64_t n)
{
	static char names[LOOKUP_NAMES][65];
	static struct directory_name asked[LOOKUP_NAMES];
	static struct directory_value values[LOOKUP_NAMES];
	static int64_t took_ns[LOOKUP_ROUNDS];
	double own_s = own_cpu_s(), server_s = server_cpu_s();

	for (int r = 0; r < LOOKUP_ROUNDS; r++) {
		for (uint64_t i = 0; i < LOOKUP_NAMES; i++) {
			name_of((i * 7919 + (uint64_t)r * 104729) % n, names[i]);
			asked[i] = (struct directory_name){.dir = DIR, .name = names[i]};
		}
		int64_t begin_ns = now_ns();
		must(!directory_lookup(d, asked, LOOKUP_NAMES, values, begin_ns + NS_PER_S), "lookup");
		took_ns[r] = now_ns() - begin_ns;
		for (int i = 0; i < LOOKUP_NAMES; i++)
			must(values[i].kind == DIRECTORY_FILE, "a name is missing");
	}
	report("lookup", took_ns, LOOKUP_ROUNDS, LOOKUP_NAMES, own_cpu_s() - own_s, server_cpu_s() - server_s);
}

/* The floor: as many GETs of values as long, in one pipeline. */
static void get_plain(uint64_t n)
{
	static int64_t took_ns[LOOKUP_ROUNDS];
	struct redis_reply reply;
	char key[32];

	for (uint64_t i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "plain:%llu", (unsigned long long)i);
		must(!redis_server_run(&server, &reply, "SET", key, "0123456789012345678901234567", NULL), "SET");
	}
	double own_s = own_cpu_s(), server_s = server_cpu_s();
	for (int r = 0; r < LOOKUP_ROUNDS; r++) {
		int64_t begin_ns = now_ns();
		for (uint64_t i = 0; i < LOOKUP_NAMES; i++) {
			snprintf(key, sizeof(key), "plain:%llu",
				 (unsigned long long)((i * 7919 + (uint64_t)r) % n));
			must(!redis_append(server.client, 2, (const char *[]){"GET", key}, NULL), "GET");
		}
		for (int i = 0; i < LOOKUP_NAMES; i++)
			must(!redis_next(server.client, begin_ns + NS_PER_S, &reply) && reply.kind == REDIS_BYTES,
			     "GET");
		took_ns[r] = now_ns() - begin_ns;
	}
	report("plain GET", took_ns, LOOKUP_ROUNDS, LOOKUP_NAMES, own_cpu_s() - own_s, server_cpu_s() - server_s);
}

static int count_one(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	++*(uint64_t *)arg;
	return 0;
}

static void list_all(struct directory *d, uint64_t n)
{
	uint64_t n_listed = 0;
	int64_t begin_ns = now_ns();

	must(!directory_list(d, DIR, 0, count_one, &n_listed, begin_ns + 60 * NS_PER_S), "list");
	must(n_listed == n, "the list is not whole");
	printf("list of %llu names: %.0f ms\n", (unsigned long long)n, (double)(now_ns() - begin_ns) / 1e6);
}

int main(int argc, char **argv)
{
	struct directory *nodes[N_NODES];
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;

	if (argc > 2 || n < LOOKUP_NAMES) {
		fprintf(stderr, "usage: bench_directory [NAMES]   (at least %d)\n", LOOKUP_NAMES);
		return 2;
	}
	if (redis_server_missing()) {
		fprintf(stderr, "bench_directory: %s\n", redis_server_missing());
		return 77;
	}
	redis_server_init(&server, NULL);
	for (int k = 0; k < N_NODES; k++)
		nodes[k] = node_open(k);
	int64_t empty_bytes = redis_server_info(&server, "memory", "used_memory");
	for (int k = 0; k < N_NODES; k++)
		announce_all(nodes[k], n, k, empty_bytes);
	look_up(nodes[0], n);
	list_all(nodes[0], n);
	get_plain(100000);
	for (int k = 0; k < N_NODES; k++)
		directory_destroy(nodes[k]);
	redis_server_fini(&server);
	return 0;
}
