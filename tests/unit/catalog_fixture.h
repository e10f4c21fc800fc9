/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_fixture: a scratch folder, and entries and objects to fill a catalog with. */
#ifndef MCFS_TESTS_CATALOG_FIXTURE_H
#define MCFS_TESTS_CATALOG_FIXTURE_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mcfs/catalog.h"

static char scratch[64];      /* folder of one test */
static char catalog_path[96]; /* inside it, absent at first */

static inline void scratch_create(void)
{
	strcpy(scratch, "/tmp/mcfs-catalog.XXXXXX");
	cr_assert_not_null(mkdtemp(scratch));
	snprintf(catalog_path, sizeof(catalog_path), "%s/catalog", scratch);
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *ftw)
{
	return remove(path);
}

static inline void scratch_remove(void)
{
	nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct catalog *catalog_must_open(void)
{
	struct catalog_conf conf = {.path = catalog_path};
	struct catalog *c = NULL;

	cr_assert_eq(catalog_open(&conf, &c), 0);
	return c;
}

static inline struct entry file_entry(uint64_t id)
{
	return (struct entry){.ino = id, .object_id = id, .size = id * 10, .mode = S_IFREG | 0644};
}

static inline struct object_record file_object(uint64_t id)
{
	return (struct object_record){.object_id = id, .size = 10, .dram_frame = id + 1, .ino = id};
}

static inline void must_put(struct catalog *c, uint64_t parent, const char *name, uint64_t id)
{
	struct catalog_batch *b = catalog_batch_create(c);
	struct entry e = file_entry(id);

	catalog_batch_put_entry(b, parent, name, &e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static inline void must_del(struct catalog *c, uint64_t parent, const char *name)
{
	struct catalog_batch *b = catalog_batch_create(c);

	catalog_batch_del_entry(b, parent, name);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

/* Every field differs from every other and from its default. */
static inline struct entry rich_entry(void)
{
	struct entry e = {
		.ino = 0x1112131415161718,
		.object_id = 0x2122232425262728,
		.size = 0x3132333435363738,
		.mode = S_IFREG | 06751,
		.uid = 0x41424344,
		.gid = 0x51525354,
		.atime_ns = -1,
		.mtime_ns = INT64_MIN,
		.ctime_ns = INT64_MAX,
		.btime_ns = 0x6162636465666768,
		.policy = {.class = MCFS_CLASS_PINNED,
			   .class_is_set = 1,
			   .pin = 1,
			   .ttl_s = 0x71727374,
			   .hint_len = 6,
			   .hint = "a\0b\xff\n/"},
	};
	return e;
}

static inline bool entries_are_equal(const struct entry *a, const struct entry *b)
{
	return a->ino == b->ino && a->object_id == b->object_id && a->size == b->size &&
	       a->mode == b->mode && a->uid == b->uid && a->gid == b->gid &&
	       a->atime_ns == b->atime_ns && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns && a->btime_ns == b->btime_ns &&
	       a->policy.class == b->policy.class && a->policy.pin == b->policy.pin &&
	       a->policy.class_is_set == b->policy.class_is_set &&
	       a->policy.ttl_s == b->policy.ttl_s && a->policy.hint_len == b->policy.hint_len &&
	       !memcmp(a->policy.hint, b->policy.hint, a->policy.hint_len) &&
	       !a->target == !b->target && (!a->target || !strcmp(a->target, b->target));
}

/* Holds 3 checksums and a promise; release with object_record_fini. */
static inline struct object_record rich_object(void)
{
	struct object_record r = {
		.object_id = 0x0102030405060708,
		.size = 2 * CATALOG_CRC_CHUNK + 1,
		.dram_frame = 0x1112131415161718,
		.ssd_frame = 0x2122232425262728,
		.charged_bytes = 0x3132333435363738,
		.parent = 0x4142434445464748,
		.ino = 0x5152535455565758,
		.class = MCFS_CLASS_KEEP,
		.pin = 1,
		.ttl_s = 0x81828384,
		.is_promise = 1,
		.name_len = 4,
		.name = "\xff\n .",
		.n_crc = 3,
	};
	r.crc = malloc(3 * sizeof(*r.crc));
	r.promise_entry = malloc(sizeof(*r.promise_entry));
	cr_assert(r.crc && r.promise_entry);
	r.crc[0] = 0x61626364;
	r.crc[1] = 0;
	r.crc[2] = UINT32_MAX;
	*r.promise_entry = rich_entry();
	return r;
}

static inline bool objects_are_equal(const struct object_record *a, const struct object_record *b)
{
	return a->object_id == b->object_id && a->size == b->size &&
	       a->dram_frame == b->dram_frame && a->ssd_frame == b->ssd_frame &&
	       a->charged_bytes == b->charged_bytes && a->parent == b->parent && a->ino == b->ino &&
	       a->class == b->class && a->pin == b->pin &&
	       a->ttl_s == b->ttl_s && a->is_promise == b->is_promise &&
	       a->name_len == b->name_len && !memcmp(a->name, b->name, a->name_len) &&
	       a->n_crc == b->n_crc && !memcmp(a->crc, b->crc, a->n_crc * sizeof(*a->crc)) &&
	       !a->promise_entry == !b->promise_entry &&
	       (!a->promise_entry || entries_are_equal(a->promise_entry, b->promise_entry));
}

#endif
