/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_test: Criterion tests that run over every kind of tier, and what their bodies say often.
 * Included by one test file per program.
 */
#ifndef MCFS_TIER_TEST_H
#define MCFS_TIER_TEST_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/tier_box.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define BUDGET MIB(64)

/* A test over all kinds of tiers; `box` is open in it. */
#define EACH_TIER(suite, name, budget)                                                      \
	static void body_##name(struct tier_box *box);                                      \
	ParameterizedTestParameters(suite, name)                                            \
	{                                                                                   \
		static int kinds[] = {TIER_PLAIN_DIR, TIER_TMPFS, TIER_SSD, TIER_FAULT};    \
		return cr_make_param_array(int, kinds, N_TIER_KINDS);                       \
	}                                                                                   \
	ParameterizedTest(int *kind, suite, name)                                           \
	{                                                                                   \
		struct tier_box box;                                                        \
		const char *why_not = tier_box_open(&box, (enum tier_kind) * kind, budget); \
		if (why_not)                                                                \
			cr_skip_test("%s", why_not);                                        \
		body_##name(&box);                                                          \
		tier_box_close(&box);                                                       \
	}                                                                                   \
	static void body_##name(struct tier_box *box)

/* ---- helpers ---- */

static inline struct frame take(struct tier_box *box, uint64_t hint)
{
	struct frame f = FRAME_NONE;

	cr_assert_eq(tier_call(box->t, take, hint, &f), 0);
	cr_assert_geq(f.fd, 0);
	cr_assert_neq(f.id, 0);
	return f;
}

static inline void fill(struct tier_box *box, struct frame *f, char byte, uint64_t off,
			uint64_t len)
{
	char *buf = malloc(len);

	memset(buf, byte, len);
	cr_assert_eq(tier_call(box->t, write, f, buf, len, off), 0);
	free(buf);
}

struct sealed {
	uint64_t id, size, charge;
};

static inline struct sealed seal(struct tier_box *box, struct frame *f)
{
	struct sealed s = {.id = f->id, .size = f->size_bytes};

	cr_assert_eq(tier_call(box->t, seal, f, &s.charge), 0);
	cr_assert_eq(f->id, 0);
	cr_assert_eq(f->fd, -1);
	return s;
}

/* An object: taken, charged, written, sealed. */
static inline struct sealed make_sealed(struct tier_box *box, char byte, uint64_t size)
{
	struct frame f = take(box, size);

	cr_assert_eq(tier_call(box->t, charge, &f, size), 0);
	fill(box, &f, byte, 0, size);
	return seal(box, &f);
}

static inline void drop(struct tier_box *box, struct sealed s)
{
	tier_call(box->t, drop, s.id, s.size, s.charge);
}

static inline uint64_t used(struct tier_box *box)
{
	return tier_box_stats(box).used_bytes;
}

static inline struct stat stat_fd(int fd)
{
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	return st;
}

static inline bool is_filled(const char *bytes, char byte, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != byte)
			return false;
	return true;
}

static inline void expect_bytes(struct tier_box *box, struct frame *f, char byte, uint64_t off,
				size_t len)
{
	char *buf = malloc(len);

	cr_assert_eq(tier_call(box->t, read, f, buf, len, off), 0);
	cr_assert(is_filled(buf, byte, len), "bytes at %llu", (unsigned long long)off);
	free(buf);
}

#endif
