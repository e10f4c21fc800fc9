/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_state: a state directory with many objects, made without a mount.
 *
 * usage: make_state STATE_DIR COUNT [dram|ssd] [BYTES] [NAMES_PER_DIRECTORY]
 *
 * Every object has its own frame of BYTES (default 16, 0: no frame) on the tier (default dram, a tmpfs
 * that stays mounted at STATE_DIR/dram), a name in a directory "many" or, with NAMES_PER_DIRECTORY, in
 * "many/0000000", ..., a record with its checksum, and times of now. What it leaves is what a daemon that
 * was stopped leaves; the daemon then adopts it. Prints one JSON line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/log.h"
#include "mcfs/catalog.h"
#include "mcfs/tier.h"

#define BATCH 1000
#define FIRST_INO 1000000 /* above the inodes of control files */
#define NODE_BITS 12      /* as in fs/object/version.c */

struct maker {
	struct catalog *catalog;
	struct tier *tier;
	bool is_ssd;
	uint64_t count, bytes, per_dir;
	uint64_t first_id;
	int64_t now_ns;
	char *payload;
};

static void must(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "make_state: %s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

static void put_dir(struct maker *m, struct catalog_batch *b, uint64_t parent, const char *name,
		    uint64_t ino)
{
	struct entry e = {.ino = ino,
			  .mode = S_IFDIR | 0755,
			  .atime_ns = m->now_ns,
			  .mtime_ns = m->now_ns,
			  .ctime_ns = m->now_ns,
			  .btime_ns = m->now_ns};

	catalog_batch_put_entry(b, parent, name, &e);
}

static void make_frame(struct maker *m, struct object_record *r)
{
	struct frame f = FRAME_NONE;

	must(tier_call(m->tier, take, m->bytes, &f), "take");
	must(tier_call(m->tier, charge, &f, m->bytes), "charge");
	must(tier_call(m->tier, write, &f, m->payload, m->bytes, 0), "write");
	must(tier_call(m->tier, resize, &f, m->bytes), "resize");
	*(m->is_ssd ? &r->ssd_frame : &r->dram_frame) = f.id;
	must(tier_call(m->tier, seal, &f, &r->charged_bytes), "seal");
	if (m->is_ssd)
		r->charged_bytes = 0;
}

static void put_object(struct maker *m, struct catalog_batch *b, uint64_t k)
{
	uint64_t id = m->first_id + (k << NODE_BITS), parent = FIRST_INO;
	uint32_t crc = 0;
	struct object_record r = {.object_id = id, .size = m->bytes, .ino = id};
	struct entry e = {.ino = id,
			  .object_id = id,
			  .size = m->bytes,
			  .mode = S_IFREG | 0644,
			  .atime_ns = m->now_ns,
			  .mtime_ns = m->now_ns,
			  .ctime_ns = m->now_ns,
			  .btime_ns = m->now_ns};
	char dir[32];

	if (m->per_dir) {
		parent += 1 + k / m->per_dir;
		snprintf(dir, sizeof(dir), "%07llu", (unsigned long long)(k / m->per_dir));
		if (k % m->per_dir == 0)
			put_dir(m, b, FIRST_INO, dir, parent);
	}
	if (m->bytes) {
		memcpy(m->payload, &k, m->bytes < sizeof(k) ? m->bytes : sizeof(k));
		make_frame(m, &r);
		crc = crc32c(0, m->payload, m->bytes);
		r.n_crc = 1;
		r.crc = &crc;
	}
	r.parent = parent;
	r.name_len = (uint8_t)snprintf(r.name, sizeof(r.name), "%07llu", (unsigned long long)k);
	catalog_batch_put_entry(b, parent, r.name, &e);
	catalog_batch_put_object(b, &r);
}

static void open_all(struct maker *m, const char *state)
{
	uint64_t budget = (m->count + 16384) * ((m->bytes | 4095) + 1 + 4096);
	char path[4200];

	if (mkdir(state, 0700) && errno != EEXIST)
		must(-errno, state);
	snprintf(path, sizeof(path), "%s/catalog", state);
	must(catalog_open(&(struct catalog_conf){.path = path}, &m->catalog), path);
	snprintf(path, sizeof(path), "%s/%s", state, m->is_ssd ? "ssd" : "dram");
	if (m->is_ssd)
		must(ssd_tier_create(&(struct ssd_conf){.dirs = &(struct ssd_dir){path, budget},
							.n_dirs = 1,
							.state_dir = state},
				     &m->tier),
		     path);
	else
		must(dram_tier_create(&(struct dram_conf){.path = path, .budget_bytes = budget},
				      &m->tier),
		     path);
}

int main(int argc, char **argv)
{
	struct maker m = {.bytes = 16};
	struct timespec ts;
	struct catalog_stats stats;

	if (argc < 3) {
		fprintf(stderr, "usage: make_state STATE_DIR COUNT [dram|ssd] [BYTES] "
				"[NAMES_PER_DIRECTORY]\n");
		return 2;
	}
	m.count = strtoull(argv[2], NULL, 10);
	m.is_ssd = argc > 3 && !strcmp(argv[3], "ssd");
	if (argc > 4)
		m.bytes = strtoull(argv[4], NULL, 10);
	if (argc > 5)
		m.per_dir = strtoull(argv[5], NULL, 10);
	m.payload = calloc(1, m.bytes + 1);
	if (!m.payload || m.bytes > CATALOG_CRC_CHUNK)
		must(-EINVAL, "BYTES");
	must(log_init("stderr:warn", "make_state"), "log");
	clock_gettime(CLOCK_REALTIME, &ts);
	m.now_ns = ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
	/* An id is the microseconds of its making, so that a time to live counts from now. */
	m.first_id = ((uint64_t)m.now_ns / 1000 - m.count) << NODE_BITS;
	open_all(&m, argv[1]);
	for (uint64_t k = 0; k < m.count;) {
		struct catalog_batch *b = catalog_batch_create(m.catalog);
		if (k == 0)
			put_dir(&m, b, CATALOG_ROOT_INO, "many", FIRST_INO);
		for (uint64_t end = k + BATCH; k < end && k < m.count; k++)
			put_object(&m, b, k);
		must(catalog_batch_commit(b, false), "commit");
	}
	must(catalog_control_put(m.catalog, "version_ceiling", m.first_id + ((m.count + 1) << NODE_BITS),
				 true),
	     "version_ceiling");
	tier_call(m.tier, destroy, false);
	catalog_get_stats(m.catalog, &stats);
	catalog_close(m.catalog);
	printf("{\"objects\": %llu, \"catalog_bytes\": %llu}\n", (unsigned long long)m.count,
	       (unsigned long long)stats.disk_bytes);
	return 0;
}
