// SPDX-License-Identifier: Apache-2.0
/*
 * torture_session - clients of the fast path do everything at once, against threads that publish, unlink,
 * rename and evict the same names
 *
 * usage: torture_session [SECONDS] [SEED] [CLIENTS]     (5 1 3)
 *
 * A client is two threads on one session: one submits (waiting or not), registers, looks up, and now and
 * then closes the session whatever is under way; the other collects, cancels and submits too. One client
 * more has its item array scribbled over all the time. An object tells its length and the seed of its
 * bytes in its first words, so each read can be checked whoever wrote it. At the end nothing is left:
 * memory, frames, charges, descriptors.
 *
 * Exit status: 0 all right (prints counts), 1 a difference (named).
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/fp_client.h"

enum {
	N_DIRS = 2,
	N_NAMES = 40,
	MAX_CLIENTS = 16,
	MAX_ITEMS = 24,
	MAX_WORDS = 12000
};
#define BUFFER_BYTES (UINT64_C(4) << 20)
#define AREA_BYTES \
	(BUFFER_BYTES / 4) /* of each of the two threads, for what waits and for what does not */
#define MAGIC UINT64_C(0x746f727475726521)

struct client {
	pthread_t threads[2];
	struct fp_client c;
	pthread_barrier_t round; /* both threads use the session between two of these */
	int index;
	uint64_t dir_ids[N_DIRS];
	struct handle *dir_handles[N_DIRS];
};

/* One of the two threads. */
struct worker {
	struct client *client;
	int half, area;
	uint64_t random, area_used;
};

static struct fs_box box;
static struct inode *dirs[N_DIRS];
static struct client clients[MAX_CLIENTS];
static struct worker workers[MAX_CLIENTS][2];
static atomic_bool is_over;
static atomic_ulong n_reads, n_writes, n_missing, n_async, n_lookups, n_closes, n_changes,
	n_scribbled;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("torture_session: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	_exit(1);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state) % n;
}

/* ---- content ---- */

static void fill(uint64_t *words, uint64_t n, uint64_t seed)
{
	words[0] = MAGIC;
	words[1] = n;
	words[2] = seed;
	for (uint64_t k = 3; k < n; k++)
		words[k] = mix(seed + k);
}

static void check(const uint64_t *words, const struct mcfs_item *i)
{
	if (i->bytes != i->size || i->size < 24 || words[0] != MAGIC || words[1] * 8 != i->size)
		fail("version %llx: %llu of %llu bytes, %llu words", (unsigned long long)i->version,
		     (unsigned long long)i->bytes, (unsigned long long)i->size,
		     (unsigned long long)words[1]);
	for (uint64_t k = 3; k < words[1]; k++)
		if (words[k] != mix(words[2] + k))
			fail("version %llx: word %llu of %llu is wrong",
			     (unsigned long long)i->version, (unsigned long long)k,
			     (unsigned long long)words[1]);
}

static void pick_name(uint64_t *random, char *name)
{
	sprintf(name, "n%llu", (unsigned long long)pick(random, N_NAMES));
}

/* ---- requests; each thread lays them out in its areas of the buffer ---- */

static uint64_t take(struct worker *w, uint64_t bytes)
{
	uint64_t at = w->area_used;

	w->area_used = (at + bytes + 63) & ~UINT64_C(63);
	if (w->area_used > AREA_BYTES)
		fail("the area is too small");
	return at + (uint64_t)(w->half * 2 + w->area) * AREA_BYTES;
}

static struct mcfs_item *make_items(struct worker *w, uint32_t op, uint32_t n,
				    struct mcfs_submit *io)
{
	struct client *x = w->client;
	char name[16];

	w->area_used = 0;
	*io = (struct mcfs_submit){.op = op,
				   .buffer = x->c.main.number,
				   .n_items = n,
				   .items = take(w, n * sizeof(struct mcfs_item))};
	struct mcfs_item *items = (struct mcfs_item *)(void *)fp_at(&x->c, io->items);
	memset(items, 0, n * sizeof(*items));
	for (uint32_t k = 0; k < n; k++) {
		struct mcfs_item *i = &items[k];
		uint64_t words = 3 + pick(&w->random, pick(&w->random, 8) ? 600 : MAX_WORDS - 3);
		pick_name(&w->random, name);
		i->object = x->dir_ids[pick(&w->random, N_DIRS)];
		i->name_bytes = (uint16_t)strlen(name);
		i->name = take(w, i->name_bytes);
		memcpy(fp_at(&x->c, i->name), name, i->name_bytes);
		if (op == MCFS_OP_PREFETCH)
			continue;
		i->segment_bytes = (uint32_t)(op == MCFS_OP_READ ? MAX_WORDS : words) * 8;
		i->segment_count = 1;
		if (w->area_used + i->segment_bytes + 65536 > AREA_BYTES) {
			io->n_items = k + 1;
			i->segment_bytes = 24 * 8;
			words = 24;
			k = n;
		}
		i->base = take(w, i->segment_bytes);
		if (op == MCFS_OP_WRITE)
			fill((uint64_t *)(void *)fp_at(&x->c, i->base), words,
			     pick(&w->random, UINT64_MAX));
	}
	return items;
}

static void check_reads(struct worker *w, const struct mcfs_item *items, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++) {
		const struct mcfs_item *i = &items[k];
		if (i->status == -ENOENT)
			n_missing++;
		else if (i->status)
			fail("a read: %s", strerror(-i->status));
		else if (i->segment_bytes == MAX_WORDS * 8)
			check((const uint64_t *)(const void *)fp_at(&w->client->c, i->base), i);
		n_reads++;
	}
}

static void check_writes(const struct mcfs_item *items, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++) {
		int32_t s = items[k].status;
		if (s && s != -ENOSPC && s != -EEXIST && s != -ECANCELED)
			fail("a write: %s", strerror(-s));
		n_writes++;
	}
}

static void do_sync(struct worker *w)
{
	static const uint32_t ops[] = {MCFS_OP_READ, MCFS_OP_READ, MCFS_OP_WRITE, MCFS_OP_PREFETCH};
	struct mcfs_submit io;
	uint32_t op = ops[pick(&w->random, 4)];
	struct mcfs_item *items = make_items(w, op, 1 + (uint32_t)pick(&w->random, MAX_ITEMS), &io);

	if (op == MCFS_OP_WRITE && !pick(&w->random, 3))
		io.flags = MCFS_GROUP;
	int rc = fp_submit(&w->client->c, &io);
	if (rc)
		fail("submit: %s", strerror(-rc));
	if (op == MCFS_OP_READ)
		check_reads(w, items, io.n_items);
	else if (op == MCFS_OP_WRITE)
		check_writes(items, io.n_items);
}

static void do_lookup(struct worker *w)
{
	struct client *x = w->client;
	struct mcfs_submit io = {.op = MCFS_OP_LOOKUP,
				 .buffer = x->c.main.number,
				 .n_items = N_NAMES,
				 .directory = x->dir_ids[pick(&w->random, N_DIRS)]};
	uint32_t prefix = 0, n_ok = 0;

	w->area_used = 0;
	io.items = take(w, N_NAMES * sizeof(struct mcfs_state));
	io.names = take(w, N_NAMES * 16);
	for (int k = 0; k < N_NAMES; k++)
		io.names_bytes +=
			(uint32_t)sprintf(fp_at(&x->c, io.names) + io.names_bytes, "n%d", k) + 1;
	int rc = fp_submit(&x->c, &io);
	if (rc)
		fail("lookup: %s", strerror(-rc));
	const struct mcfs_state *s =
		(const struct mcfs_state *)(const void *)fp_at(&x->c, io.items);
	for (uint32_t k = 0; k < N_NAMES; k++) {
		prefix += prefix == k && s[k].state == MCFS_READY;
		n_ok += s[k].state == MCFS_READY;
		if (s[k].state > MCFS_IN_FLIGHT || (s[k].state == MCFS_READY) != (s[k].size != 0))
			fail("name %u: state %u, %llu bytes", k, s[k].state,
			     (unsigned long long)s[k].size);
	}
	if (prefix != io.ready_prefix || n_ok != io.n_ok)
		fail("lookup: prefix %u is %u, ok %u is %u", io.ready_prefix, prefix, io.n_ok,
		     n_ok);
	n_lookups++;
}

/* Its outcome is not looked at: the other thread may collect it, or the session goes. */
static void do_async(struct worker *w)
{
	struct mcfs_submit io;
	uint32_t op = pick(&w->random, 2) ? MCFS_OP_READ : MCFS_OP_PREFETCH;

	w->area = 1;
	make_items(w, op, 1 + (uint32_t)pick(&w->random, MAX_ITEMS), &io);
	w->area = 0;
	if (!pick(&w->random, 4))
		io.deadline_us = 1 + pick(&w->random, 500);
	int rc = fp_submit_async(&w->client->c, &io);
	if (rc && rc != -EAGAIN)
		fail("submit: %s", strerror(-rc));
	if (!rc && pick(&w->random, 2))
		fp_cancel(&w->client->c, io.ticket);
	n_async++;
}

static void do_collect(struct worker *w)
{
	struct mcfs_completion done;
	int rc;

	while ((rc = fp_collect(&w->client->c, &done, (int)pick(&w->random, 3))) == 1)
		if (done.status && done.status != -ECANCELED && done.status != -ETIMEDOUT)
			fail("completion: %s", strerror(-done.status));
	if (rc)
		fail("collect: %s", strerror(-rc));
	fp_cancel(&w->client->c, 1 + pick(&w->random, 100));
}

static void do_register(struct worker *w)
{
	struct fp_buffer again = w->client->c.main;

	int rc = fp_register(&w->client->c, &again, pick(&w->random, 4) * 4096, 4096);
	if (!rc)
		rc = fp_unregister(&w->client->c, again.number);
	if (rc && rc != -EMFILE)
		fail("register: %s", strerror(-rc));
	rc = fp_unregister(&w->client->c, 200);
	if (rc != -ENOENT)
		fail("unregister: %d", rc);
}

static void open_client(struct client *x)
{
	fp_open(&x->c, &box, fp_root(), BUFFER_BYTES);
	for (int d = 0; d < N_DIRS; d++)
		x->dir_handles[d] = fp_open_dir(&box, dirs[d], 0, &x->dir_ids[d]);
}

static void close_client(struct client *x)
{
	for (int d = 0; d < N_DIRS; d++)
		fp_close_handle(&box, x->dir_handles[d]);
	fp_close(&x->c);
}

static void *run_client(void *arg)
{
	struct worker *w = arg;
	bool goes_on = true;

	while (goes_on) {
		for (int k = 0; k < 30; k++) {
			switch (pick(&w->random, 8)) {
			case 0:
				do_lookup(w);
				break;
			case 1:
			case 2:
				do_async(w);
				break;
			case 3:
				do_collect(w);
				break;
			case 4:
				do_register(w);
				break;
			default:
				do_sync(w);
				break;
			}
		}
		/* The descriptor closes when nobody calls: with whatever is queued or running. */
		pthread_barrier_wait(&w->client->round);
		goes_on = !is_over;
		pthread_barrier_wait(&w->client->round);
		if (w->half == 0 && goes_on) {
			close_client(w->client);
			open_client(w->client);
			n_closes++;
		}
		pthread_barrier_wait(&w->client->round);
	}
	return NULL;
}

/* ---- others ---- */

static void *scribble(void *arg)
{
	struct fp_client *c = arg;
	uint64_t random = 99;
	/* A mapping of its own, as another process has it. */
	uint64_t *words =
		mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, c->main.buffer->frame.fd, 0);

	if (words == MAP_FAILED)
		fail("mmap: %m");
	while (!is_over) {
		struct mcfs_item i = {.object = pick(&random, 3),
				      .name = pick(&random, 70000),
				      .name_bytes = (uint16_t)pick(&random, 20),
				      .name_kind = (uint16_t)pick(&random, 2),
				      .base = pick(&random, 70000),
				      .stride = pick(&random, 200),
				      .segment_bytes = (uint32_t)pick(&random, 200),
				      .segment_count = (uint32_t)pick(&random, 20)};
		memcpy(words + 12 * pick(&random, 64), &i, sizeof(i));
		words[pick(&random, 8192)] = mix(random);
	}
	munmap(words, 65536);
	return NULL;
}

static void *run_scribbled(void *arg)
{
	struct fp_client *c = arg;
	uint64_t random = 5;

	while (!is_over) {
		struct mcfs_submit io = {.op = 1 + (uint32_t)pick(&random, 4),
					 .buffer = c->main.number,
					 .n_items = 64};
		if (io.op == MCFS_OP_LOOKUP) {
			io.directory = 1;
			io.names_bytes = 4096;
		}
		fp_submit(c, &io);
		n_scribbled++;
	}
	return NULL;
}

static void *change(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg;
	struct caller_id who = fs_box_who((int)(1000 + random % 1000));
	uint64_t *words = malloc(MAX_WORDS * 8);
	char name[16], name2[16];

	while (!is_over) {
		struct inode *dir = dirs[pick(&random, N_DIRS)];
		uint64_t n = 3 + pick(&random, 3000);
		pick_name(&random, name);
		pick_name(&random, name2);
		switch (pick(&random, 4)) {
		case 0:
			fill(words, n, random);
			fs_box_put_file(&box, dir, name, words, n * 8, who);
			break;
		case 1:
			fs_box_unlink(&box, dir, name, who);
			break;
		case 2:
			ns_rename(&box.fs, dir, name, dirs[pick(&random, N_DIRS)], name2, 0, &who);
			break;
		default: {
			struct entry e;
			if (!catalog_lookup(box.fs.catalog, dir->key, name, &e)) {
				space_remove_by_id(&box.fs, e.object_id);
				entry_fini(&e);
			}
		}
		}
		n_changes++;
	}
	free(words);
	return NULL;
}

/* ---- main ---- */

static void make_names_empty(void)
{
	char name[16];

	for (int d = 0; d < N_DIRS; d++)
		for (int k = 0; k < N_NAMES; k++) {
			sprintf(name, "n%d", k);
			fs_box_unlink(&box, dirs[d], name, fs_box_who(3));
		}
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	int rc = pthread_create(t, NULL, fn, arg);

	if (rc)
		fail("pthread_create: %s", strerror(rc));
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 5, n = argc > 3 ? atoi(argv[3]) : 3;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct fp_client scribbled;
	pthread_t others[4];

	n = n < 1 ? 1 : n > MAX_CLIENTS ? MAX_CLIENTS : n;
	fs_box_init(&box);
	box.opt.dram_bytes = (24 + 8 * (uint64_t)(n + 1)) << 20;
	box.opt.max_objects = 60;
	fs_box_start(&box);
	dirs[0] = fs_box_mkdir(&box, fs_box_root(&box), "a");
	dirs[1] = fs_box_mkdir(&box, fs_box_root(&box), "b");
	struct fp_books books = fp_books(&box);
	for (int k = 0; k < n; k++) {
		struct client *x = &clients[k];
		x->index = k;
		pthread_barrier_init(&x->round, NULL, 2);
		open_client(x);
		for (int h = 0; h < 2; h++) {
			workers[k][h] =
				(struct worker){.client = x,
						.half = h,
						.random = seed * 1000 + (uint64_t)(k * 2 + h)};
			start(&x->threads[h], run_client, &workers[k][h]);
		}
	}
	fp_open(&scribbled, &box, fp_root(), 65536);
	start(&others[0], run_scribbled, &scribbled);
	start(&others[1], scribble, &scribbled);
	start(&others[2], change, (void *)(uintptr_t)(seed * 7 + 1));
	start(&others[3], change, (void *)(uintptr_t)(seed * 7 + 2));
	sleep((unsigned int)seconds);
	is_over = true;
	for (int k = 0; k < n; k++) {
		for (int h = 0; h < 2; h++)
			pthread_join(clients[k].threads[h], NULL);
		close_client(&clients[k]);
		pthread_barrier_destroy(&clients[k].round);
	}
	for (int k = 0; k < 4; k++)
		pthread_join(others[k], NULL);
	fp_close(&scribbled);
	make_names_empty();
	if (dirs[0]->n_publishing || dirs[1]->n_publishing)
		fail("directories are still held");
	if (!fp_books_are(&box, &books))
		fail("something is left");
	fs_box_close(&box);
	printf("torture_session: %lu reads (%lu missing), %lu writes, %lu lookups, %lu asynchronous, %lu sessions "
	       "closed, %lu scribbled, %lu changes\n",
	       n_reads, n_missing, n_writes, n_lookups, n_async, n_closes, n_scribbled, n_changes);
	return 0;
}
