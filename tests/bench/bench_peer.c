// SPDX-License-Identifier: Apache-2.0
/*
 * bench_peer - bytes per second of peer_read, and the processor time of both ends
 *
 * usage: bench_peer [SECONDS] [LANES] [TRANSPORT] [READ_MIB]     (5 4 tcp 64)
 *
 * One process is holder and asker; the object is a memfd whose checksums are known, as a catalog knows them. Compare
 * with iperf3 -P LANES on the same machine, which checks nothing.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "deadline.h"
#include "lib/peer_node.h"

enum { MAX_LANES = 16 };

static struct peer *p;
static struct peer_grant g;
static size_t read_bytes;
static atomic_bool is_over;
static atomic_ullong n_bytes;

static void *run(void *arg)
{
	uint8_t *buf = aligned_alloc(4096, read_bytes);

	memset(buf, 1, read_bytes);
	while (!is_over) {
		int rc = peer_read(p, &g, 0, read_bytes, buf, NULL, NULL, NULL, NULL, deadline_in_ms(10000));
		if (rc) {
			fprintf(stderr, "bench_peer: READ: %s\n", strerror(-rc));
			exit(1);
		}
		n_bytes += read_bytes;
	}
	free(buf);
	return NULL;
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 5, n_lanes = argc > 2 ? atoi(argv[2]) : 4;
	const char *name = argc > 3 ? argv[3] : "tcp";
	int read_mib = argc > 4 ? atoi(argv[4]) : 64;
	struct peer_node_conf conf = { .transport = transport_find(name),
				       .n_lanes = (uint32_t)n_lanes,
				       .ping_ms = 5000 };
	struct peer_node holder, asker;
	pthread_t threads[MAX_LANES];

	if (seconds < 1 || n_lanes < 1 || n_lanes > MAX_LANES || !conf.transport || read_mib < 1 ||
	    read_mib > 64) {
		fprintf(stderr, "usage: bench_peer [SECONDS] [LANES] [TRANSPORT] [READ_MIB]\n");
		return 2;
	}
	read_bytes = (size_t)read_mib << 20;
	log_init("stderr:warn", "bench_peer");
	conf.size = read_bytes;
	conf.node = 2;
	if (peer_node_open(&holder, &conf))
		return 1;
	conf.size = 0;
	conf.node = 1;
	if (peer_node_open(&asker, &conf))
		return 1;
	holder.pieces_have_crc = false;
	holder.knows_crc = true;
	p = peer_node_meet(&asker, &holder);
	int rc = peer_ask_grant(p, 0, "/kv", "block", &g, deadline_in_ms(10000));
	if (rc) {
		fprintf(stderr, "bench_peer: GRANT: %s\n", strerror(-rc));
		return 1;
	}
	for (int k = 0; k < n_lanes; k++)
		pthread_create(&threads[k], NULL, run, NULL);
	/* Buffers and connections are made meanwhile. */
	nanosleep(&(struct timespec){ 1, 0 }, NULL);
	double cpu = cpu_s();
	unsigned long long before = n_bytes;
	int64_t begin = clock_now_ns();
	while (clock_now_ns() - begin < seconds * NS_PER_S)
		nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	is_over = true;
	for (int k = 0; k < n_lanes; k++)
		pthread_join(threads[k], NULL);
	double s = (double)(clock_now_ns() - begin) / 1e9, gb = (double)(n_bytes - before) / 1e9;
	cpu = cpu_s() - cpu;
	printf("%s, %d lanes: %.2f GB/s, %.2f CPU s/GB\n", name, n_lanes, gb / s, cpu / gb);
	free(g.crc);
	peer_put(p);
	peer_node_close(&asker);
	peer_node_close(&holder);
	return 0;
}
