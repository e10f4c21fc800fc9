/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture_ssd: threads that copy frames onto three disks and back, read, drop and look at the numbers,
 * while one disk fails. Afterwards the books are balanced and every frame that a working disk sealed
 * has its bytes. Ends with 0, or 1 and a line that says why.
 *
 * usage: torture_ssd [SECONDS]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/log.h"
#include "fakes/fault_tier.h"
#include "lib/ssd_box.h"
#include "tier/frame_copy.h"

#define N_THREADS 6
#define N_HELD 8
#define MAX_BYTES ((3u << 20) + 123)

static struct ssd_box box;
static bool is_over;	  /* atomic */
static uint64_t n_copies; /* atomic */

struct held {
	uint64_t id, size, charge;
	uint32_t crc[4];
};

struct worker {
	pthread_t thread;
	unsigned int seed;
	int src; /* memory, MAX_BYTES */
	struct held held[N_HELD];
};

static void die(const char *what, int rc)
{
	fprintf(stderr, "torture_ssd: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void release(struct held *h)
{
	if (h->id)
		tier_call(box.t, drop, h->id, h->size, h->charge);
	h->id = 0;
}

/* No disk may be lost under a frame without is_lost saying so. */
static void check(struct worker *w, struct held *h)
{
	uint32_t crc[4] = {0};
	enum frame_copy_side side;
	struct frame_copy_limits limits = {.failed_out = &side};

	int fd = h->id ? tier_call(box.t, open, h->id) : -ENOENT;
	if (!h->id)
		return;
	if (fd < 0) {
		if (!tier_call(box.t, is_lost, h->id))
			die("open", fd);
		return;
	}
	int dst = memfd_create("back", MFD_CLOEXEC);
	int rc = frame_copy(dst, fd, h->size, crc, &limits);
	if (rc)
		die("copy back", rc);
	if (memcmp(crc, h->crc, (h->size + (1 << 20) - 1) / (1 << 20) * sizeof(*crc)) != 0)
		die("wrong bytes", -EIO);
	close(dst);
	close(fd);
}

static void put(struct worker *w, struct held *h)
{
	struct frame f = FRAME_NONE;
	struct frame_copy_limits limits = {.failed_out = NULL};

	h->size = rand_r(&w->seed) % 3 ? (uint64_t)rand_r(&w->seed) % 65536 + 1 :
					 (uint64_t)rand_r(&w->seed) % MAX_BYTES + 1;
	int rc = tier_call(box.t, take, h->size, &f);
	if (rc)
		return;
	uint64_t id = f.id;
	rc = tier_call(box.t, charge, &f, h->size);
	if (!rc)
		rc = frame_copy(f.fd, w->src, h->size, h->crc, &limits);
	f.size_bytes = h->size;
	if (!rc && rand_r(&w->seed) % 4 == 0)
		rc = tier_call(box.t, sync, &f);
	if (!rc)
		rc = tier_call(box.t, seal, &f, &h->charge);
	if (!rc)
		h->id = id;
	else
		tier_call(box.t, discard, &f);
	__atomic_add_fetch(&n_copies, 1, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		struct held *h = &w->held[rand_r(&w->seed) % N_HELD];
		check(w, h);
		release(h);
		put(w, h);
	}
	return NULL;
}

static void start(struct worker *w, unsigned int seed)
{
	static char bytes[MAX_BYTES];

	w->seed = seed;
	for (size_t k = 0; k < sizeof(bytes); k++)
		bytes[k] = (char)rand_r(&seed);
	w->src = memfd_create("source", MFD_CLOEXEC);
	if (w->src < 0 || write(w->src, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
		die("source", -errno);
	int rc = pthread_create(&w->thread, NULL, work, w);
	if (rc)
		die("thread", -rc);
}

static void watch(double seconds)
{
	for (int k = 0; k < (int)(seconds * 100); k++) {
		struct timespec ts = {.tv_nsec = 10000000};
		nanosleep(&ts, NULL);
		tier_call(box.t, reclaim, 0);
		for (uint32_t d = 0; d < box.n_dirs; d++)
			(void)ssd_box_disk(&box, d);
		if (k == (int)(seconds * 50))
			fault_tier_fail(box.faults[1], FAULT_take, 1, ENODEV);
	}
}

int main(int argc, char **argv)
{
	static struct worker workers[N_THREADS];
	double seconds = argc > 1 ? atof(argv[1]) : 2;

	log_init("/dev/null", "torture_ssd");
	ssd_box_init(&box, 3, 16 << 20);
	int rc = ssd_box_create(&box);
	if (rc)
		die("create", rc);
	for (unsigned int k = 0; k < N_THREADS; k++)
		start(&workers[k], k + 1);
	watch(seconds);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (int k = 0; k < N_THREADS; k++) {
		pthread_join(workers[k].thread, NULL);
		for (int j = 0; j < N_HELD; j++) {
			check(&workers[k], &workers[k].held[j]);
			release(&workers[k].held[j]);
		}
		close(workers[k].src);
	}
	struct tier_stats stats = ssd_box_stats(&box);
	if (stats.n_failed_disks != 1 || stats.n_open || stats.n_sealed || stats.used_bytes)
		die("the books do not balance", -EIO);
	printf("%llu copies\n", (unsigned long long)n_copies);
	ssd_box_fini(&box);
	return 0;
}
