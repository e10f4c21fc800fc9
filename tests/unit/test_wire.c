/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "breaker.h"

/* ---- header ---- */

static void encode(uint8_t type, uint32_t length, int status, uint8_t out[WIRE_HEADER_BYTES])
{
	const struct wire_header h = {
		.type = type, .length = length, .status = status, .seq = 0x1122334455667788
	};

	wire_header_encode(&h, out);
}

Test(wire, header_has_its_byte_map)
{
	static const uint8_t expected[WIRE_HEADER_BYTES] = { 'M',  'C',	 'P',  '1',  1,	   11,	 0,    0,
							     0,	   0,	 0,    0,    3,	   0,	 0,    0,
							     0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11 };
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct wire_header h;

	encode(WIRE_INVALIDATED, 0, -ESTALE, bytes);
	cr_assert_eq(memcmp(bytes, expected, sizeof(bytes)), 0);
	cr_assert_eq(wire_header_decode(bytes, &h), 0);
	cr_assert_eq(h.type, WIRE_INVALIDATED);
	cr_assert_eq(h.status, -ESTALE);
	cr_assert_eq(h.seq, 0x1122334455667788);
}

Test(wire, header_of_strangers_is_refused)
{
	static const struct {
		int at;
		uint8_t byte;
	} rows[] = { { 0, 'm' },	  { 3, '2' },  { 4, 0 }, { 4, 2 }, { 5, 0 },
		     { 5, WIRE_N_TYPES }, { 5, 255 },  { 6, 1 }, { 7, 1 }, { 8, 1 },
		     { 11, 0x80 },	  { 12, 200 }, { 15, 1 } };
	uint8_t good[WIRE_HEADER_BYTES], bytes[WIRE_HEADER_BYTES];
	struct wire_header h;

	encode(WIRE_PING, 0, 0, good);
	cr_assert_eq(wire_header_decode(good, &h), 0);
	cr_assert_not(wire_is_other_version(good));
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		memcpy(bytes, good, sizeof(bytes));
		bytes[rows[k].at] = rows[k].byte;
		cr_expect_eq(wire_header_decode(bytes, &h), -EPROTO, "%zu", k);
		cr_expect_eq(wire_is_other_version(bytes), rows[k].at == 4, "%zu", k);
	}
}

Test(wire, lengths_are_those_of_the_type)
{
	static const struct {
		uint8_t type;
		uint32_t min, max;
	} rows[] = { { WIRE_HELLO, 136, 136 },
		     { WIRE_WELCOME, 88, 88 },
		     { WIRE_PROOF, 32, 32 },
		     { WIRE_PONG, 4, 4 },
		     { WIRE_CHUNK, 17, 16 + (1 << 20) },
		     { WIRE_READ, 24, 24 },
		     { WIRE_GRANTED, 40, WIRE_PAYLOAD_MAX } };
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct wire_header h;

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		encode(rows[k].type, rows[k].min - 1, 0, bytes);
		cr_expect_eq(wire_header_decode(bytes, &h), -EPROTO, "%zu", k);
		encode(rows[k].type, rows[k].min, 0, bytes);
		cr_expect_eq(wire_header_decode(bytes, &h), 0, "%zu", k);
		encode(rows[k].type, rows[k].max, 0, bytes);
		cr_expect_eq(wire_header_decode(bytes, &h), 0, "%zu", k);
		encode(rows[k].type, rows[k].max + 1, 0, bytes);
		cr_expect_eq(wire_header_decode(bytes, &h), -EPROTO, "%zu", k);
		encode(rows[k].type, rows[k].min, -EIO, bytes);
		cr_expect_eq(wire_header_decode(bytes, &h), -EPROTO, "%zu: a status has no payload", k);
	}
}

Test(wire, unknown_errors_become_EIO)
{
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct wire_header h;

	encode(WIRE_GRANTED, 0, -EXFULL, bytes);
	cr_assert_eq(wire_header_decode(bytes, &h), 0);
	cr_assert_eq(h.status, -EIO);
}

/* ---- fixed payloads ---- */

Test(wire, hello_goes_round)
{
	struct wire_hello h = { .role = WIRE_LANE,
				.has_key = true,
				.from = { 1, 2 },
				.to = { 3, 4 },
				.cluster = "c" },
			  d;
	uint8_t bytes[WIRE_SMALL_BYTES];

	memset(h.nonce, 9, sizeof(h.nonce));
	cr_assert_eq(wire_hello_encode(&h, bytes), WIRE_HELLO_BYTES);
	cr_assert_eq(wire_hello_decode(bytes, WIRE_HELLO_BYTES, &d), 0);
	cr_assert_eq(d.role, h.role);
	cr_assert(d.has_key);
	cr_assert_eq(memcmp(&d.from, &h.from, sizeof(d.from)), 0);
	cr_assert_eq(memcmp(&d.to, &h.to, sizeof(d.to)), 0);
	cr_assert_str_eq(d.cluster, "c");
	cr_assert_eq(d.nonce[31], 9);
	cr_assert_eq(wire_hello_decode(bytes, WIRE_HELLO_BYTES - 1, &d), -EPROTO);
	bytes[0] = WIRE_N_ROLES;
	cr_assert_eq(wire_hello_decode(bytes, WIRE_HELLO_BYTES, &d), -EPROTO);
	bytes[0] = WIRE_LANE;
	bytes[40 + 5] = 'x';
	cr_assert_eq(wire_hello_decode(bytes, WIRE_HELLO_BYTES, &d), -EPROTO, "bytes behind the NUL");
	memset(h.cluster, 'c', sizeof(h.cluster));
	cr_assert_eq(wire_hello_encode(&h, bytes), -EINVAL);
}

Test(wire, reads_stay_in_their_bounds)
{
	static const struct wire_read bad[] = { { 0, 0, 1, 1 },
						{ 1, 0, 0, 1 },
						{ 1, 0, PEER_READ_MAX + 1, 1 },
						{ 1, INT64_MAX, 1, 1 },
						{ 1, UINT64_MAX - 1, 4, 1 } };
	struct wire_read r = { 5, 6, PEER_READ_MAX, 8 }, d;
	uint8_t bytes[WIRE_SMALL_BYTES];

	cr_assert_eq(wire_read_encode(&r, bytes), 24);
	cr_assert_eq(wire_read_decode(bytes, 24, &d), 0);
	cr_assert_eq(memcmp(&r, &d, sizeof(r)), 0);
	memset(bytes + 16, 0xff, 4);
	cr_assert_eq(wire_read_decode(bytes, 24, &d), -EPROTO);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		cr_expect_eq(wire_read_encode(&bad[k], bytes), -EINVAL, "%zu", k);
}

Test(wire, chunks_stay_in_their_chunk)
{
	static const struct wire_chunk bad[] = { { 0, 0, 0 },
						 { 0, PEER_CHUNK_BYTES + 1, 0 },
						 { 1, PEER_CHUNK_BYTES, 0 },
						 { PEER_CHUNK_BYTES - 1, 2, 0 },
						 { INT64_MAX, 1, 0 } };
	struct wire_chunk c = { PEER_CHUNK_BYTES - 5, 5, 0xdeadbeef }, d;
	uint8_t bytes[WIRE_SMALL_BYTES];

	cr_assert_eq(wire_chunk_encode(&c, bytes), WIRE_CHUNK_BYTES);
	cr_assert_eq(wire_chunk_decode(bytes, WIRE_CHUNK_BYTES + 5, &d), 0);
	cr_assert_eq(d.crc, 0xdeadbeef);
	cr_assert_eq(wire_chunk_decode(bytes, WIRE_CHUNK_BYTES + 6, &d), -EPROTO);
	cr_assert_eq(wire_chunk_decode(bytes, 4, &d), -EPROTO);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		cr_expect_eq(wire_chunk_encode(&bad[k], bytes), -EINVAL, "%zu", k);
}

/* ---- names ---- */

Test(wire, directories_are_canonical)
{
	static const char *const good[] = { "/", "/a", "/a/b", "/...", "/.a/..b", "/\xff" };
	static const char *const bad[] = { "", "a", "//", "/a/", "/a//b", "/.", "/..", "/a/../b", "/a/.", "./a" };
	char longest[PEER_PATH_MAX + 2];

	for (size_t k = 0; k < sizeof(good) / sizeof(*good); k++)
		cr_expect(wire_dir_is_canonical(good[k]), "%s", good[k]);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		cr_expect_not(wire_dir_is_canonical(bad[k]), "%s", bad[k]);
	for (size_t k = 0; k <= PEER_PATH_MAX; k++)
		longest[k] = k % 100 ? 'a' : '/';
	longest[PEER_PATH_MAX + 1] = '\0';
	cr_expect_not(wire_dir_is_canonical(longest), "one too long");
	longest[PEER_PATH_MAX] = '\0';
	cr_expect(wire_dir_is_canonical(longest), "the longest");
	memset(longest, 'a', 300);
	longest[0] = '/';
	longest[PEER_NAME_MAX + 2] = '\0';
	cr_expect_not(wire_dir_is_canonical(longest), "a part that is too long");
	longest[PEER_NAME_MAX + 1] = '\0';
	cr_expect(wire_dir_is_canonical(longest));
	cr_expect(wire_name_is_valid(longest + 1));
	longest[PEER_NAME_MAX + 1] = 'a';
	longest[PEER_NAME_MAX + 2] = '\0';
	cr_expect_not(wire_name_is_valid(longest + 1));
	cr_expect_not(wire_name_is_valid(""));
	cr_expect_not(wire_name_is_valid(".."));
	cr_expect_not(wire_name_is_valid("a/b"));
}

Test(wire, grant_goes_round_and_no_change_of_a_byte_reads_outside)
{
	const struct wire_grant g = { .budget_ms = 5,
				      .wants_key = true,
				      .dir = "/kv/m",
				      .n = 2,
				      .names = { { 77, 0, "block" }, { 0, 9, "b" } } };
	static struct wire_grant d;
	uint8_t bytes[128];
	ssize_t len = wire_grant_encode(&g, bytes, sizeof(bytes));

	cr_assert_eq(len, 16 + 6 + 16 + 6 + 16 + 2);
	cr_assert_eq((size_t)len, wire_grant_bytes(&g));
	cr_assert_eq(wire_grant_encode(&g, bytes, (size_t)len - 1), -EMSGSIZE);
	cr_assert_eq(wire_grant_decode(bytes, (size_t)len, &d), 0);
	cr_assert_eq(d.budget_ms, 5);
	cr_assert(d.wants_key);
	cr_assert_str_eq(d.dir, "/kv/m");
	cr_assert_eq(d.n, 2);
	cr_assert_eq(d.names[0].version, 77);
	cr_assert_str_eq(d.names[0].name, "block");
	cr_assert_eq(d.names[1].inline_max, 9);
	cr_assert_str_eq(d.names[1].name, "b");
	for (size_t cut = 0; cut < (size_t)len; cut++) {
		uint8_t *exact = malloc(cut ? cut : 1);
		memcpy(exact, bytes, cut);
		cr_expect_eq(wire_grant_decode(exact, cut, &d), -EPROTO, "%zu", cut);
		free(exact);
	}
	/* Changed bytes, of which each breaks a rule. */
	static const struct {
		int at;
		uint8_t to;
		const char *what;
	} rows[] = {
		{ 0, 1, "something behind the last" }, { 0, 3, "more names than there are" },
		{ 0, 0, "no name" },		       { 1, 1, "more names than one may ask for" },
		{ 8, 2, "a flag of a later version" }, { 10, 4, "a shorter directory" },
		{ 11, 0xff, "a longer directory" },    { 12, 1, "what is zero" },
		{ 18, 0, "a NUL inside" },	       { 16, 'x', "a relative directory" },
		{ 34, 4, "a shorter name" },	       { 35, 0xff, "a longer name" },
		{ 36, 1, "what is zero" },	       { 38, '/', "a slash in a name" },
		{ 54, 3, "more bytes than may come along" },
	};
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		uint8_t changed[128];
		memcpy(changed, bytes, sizeof(changed));
		changed[rows[k].at] = rows[k].to;
		cr_expect_eq(wire_grant_decode(changed, (size_t)len, &d), -EPROTO, "%s", rows[k].what);
	}
}

Test(wire, grant_refuses_what_no_decoder_takes)
{
	static struct wire_grant g = { .dir = "/", .n = 1, .names = { { 1, 0, "a" } } };
	static uint8_t bytes[WIRE_ASK_BYTES];

	cr_assert_gt(wire_grant_encode(&g, bytes, sizeof(bytes)), 0);
	g.names[0].inline_max = PEER_INLINE_MAX + 1;
	cr_expect_eq(wire_grant_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.names[0] = (struct wire_wanted){ 1, 0, "a/b" };
	cr_expect_eq(wire_grant_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.names[0].name = "a";
	g.dir = "relative";
	cr_expect_eq(wire_grant_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.dir = "/";
	g.n = 0;
	cr_expect_eq(wire_grant_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.n = PEER_GRANTS_MAX + 1;
	cr_expect_eq(wire_grant_encode(&g, bytes, sizeof(bytes)), -EINVAL);
}

Test(wire, granted_goes_round)
{
	uint32_t crc[3] = { 1, 2, 0xffffffff };
	struct peer_grant g = { .grant = 9,
				.version = 8,
				.size = 2 * PEER_CHUNK_BYTES + 1,
				.n_crc = 3,
				.crc = crc,
				.ttl_ms = 7,
				.key = { 1, 2, 3 },
				.key_len = 3,
				.is_partial = true };
	struct peer_grant d;
	uint8_t bytes[128];
	ssize_t len = wire_granted_encode(&g, bytes, sizeof(bytes));

	cr_assert_eq(len, (ssize_t)wire_granted_bytes(&g));
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len, &d), 0);
	cr_assert_eq(d.grant, 9);
	cr_assert_eq(d.n_crc, 3);
	cr_assert_eq(memcmp(d.crc, crc, sizeof(crc)), 0);
	cr_assert_eq(d.key[2], 3);
	cr_assert(d.is_partial);
	free(d.crc);
	bytes[34] = 4; /* a flag of a later version */
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len, &d), -EPROTO);
	bytes[34] = 0;
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len, &d), 0);
	cr_assert_not(d.is_partial);
	free(d.crc);
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len - 4, &d), -EPROTO);
	bytes[24] = 2; /* as many checksums as the size does not need */
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len - 4, &d), -EPROTO);
	g.n_crc = 2;
	cr_assert_eq(wire_granted_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.n_crc = 0;
	g.grant = 0;
	cr_assert_eq(wire_granted_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.grant = 1;
	g.size = UINT64_MAX;
	cr_assert_eq(wire_granted_encode(&g, bytes, sizeof(bytes)), -EINVAL);
}

Test(wire, granted_with_the_bytes)
{
	uint32_t crc = 5;
	struct peer_grant g = { .grant = 9, .version = 8, .size = 3, .n_crc = 1, .crc = &crc, .has_bytes = true };
	struct peer_grant d;
	uint8_t bytes[64];
	ssize_t len = wire_granted_encode(&g, bytes, sizeof(bytes));

	cr_assert_eq(len, 40 + 4 + 3);
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len, &d), 0);
	cr_assert(d.has_bytes);
	free(d.crc);
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len - 1, &d), -EPROTO);
	bytes[34] |= 1; /* nobody has the bytes of what is still being fetched */
	cr_assert_eq(wire_granted_decode(bytes, (size_t)len, &d), -EPROTO);
	g.n_crc = 0;
	cr_assert_eq(wire_granted_encode(&g, bytes, sizeof(bytes)), -EINVAL);
	g.n_crc = 1;
	g.size = PEER_INLINE_MAX + 1;
	cr_assert_eq(wire_granted_encode(&g, bytes, sizeof(bytes)), -EINVAL);
}

Test(wire, invalidate_goes_round)
{
	const struct peer_invalidation v[] = { { "/", "a", 1, false }, { "/x/y", "b", 2, true } };
	struct peer_invalidation d[PEER_INVALIDATE_MAX];
	size_t room = wire_invalidate_bytes(v, 2), n;
	uint8_t *bytes = malloc(room);
	uint32_t budget_ms;

	cr_assert_eq(wire_invalidate_encode(v, 2, 30, bytes, room), (ssize_t)room);
	cr_assert_eq(wire_invalidate_decode(bytes, room, d, &n, &budget_ms), 0);
	cr_assert_eq(n, 2);
	cr_assert_eq(budget_ms, 30);
	cr_assert_str_eq(d[1].dir, "/x/y");
	cr_assert_str_eq(d[1].name, "b");
	cr_assert(d[1].is_removed);
	cr_assert_not(d[0].is_removed);
	cr_assert_eq(wire_invalidate_decode(bytes, room - 1, d, &n, &budget_ms), -EPROTO);
	bytes[0] = 3;
	cr_assert_eq(wire_invalidate_decode(bytes, room, d, &n, &budget_ms), -EPROTO);
	bytes[0] = 1;
	cr_assert_eq(wire_invalidate_decode(bytes, room, d, &n, &budget_ms), -EPROTO,
		     "what comes behind the last");
	bytes[0] = 0;
	cr_assert_eq(wire_invalidate_decode(bytes, room, d, &n, &budget_ms), -EPROTO);
	bytes[1] = 2;
	cr_assert_eq(wire_invalidate_decode(bytes, room, d, &n, &budget_ms), -EPROTO, "more than fit");
	cr_assert_eq(wire_invalidate_bytes(v, PEER_INVALIDATE_MAX + 1), 0);
	cr_assert_eq(wire_invalidate_encode(v, 2, 30, bytes, room - 1), -EMSGSIZE);
	free(bytes);
}

/* ---- breaker ---- */

#define MS INT64_C(1000000)

Test(breaker, backs_off_to_a_bound_of_its_own)
{
	struct breaker b = { .max_ns = 60000 * MS };
	int64_t now = 0;

	for (int k = 0; k < 20; k++) {
		breaker_fail(&b, now);
		now = b.until_ns;
		cr_assert_eq(breaker_ask(&b, now), BREAKER_PROBE);
	}
	breaker_fail(&b, now);
	cr_assert_eq(b.until_ns - now, 60000 * MS);
}

Test(breaker, opens_probes_and_closes)
{
	struct breaker b = { 0 };

	cr_assert_eq(breaker_ask(&b, 0), BREAKER_ASK);
	breaker_fail(&b, 0);
	cr_assert_eq(breaker_ask(&b, 249 * MS), BREAKER_REFUSE);
	cr_assert_eq(breaker_ask(&b, 250 * MS), BREAKER_PROBE);
	cr_assert_eq(breaker_ask(&b, 250 * MS), BREAKER_REFUSE, "one at a time");
	breaker_fail(&b, 300 * MS);
	cr_assert_eq(breaker_ask(&b, 799 * MS), BREAKER_REFUSE);
	cr_assert_eq(breaker_ask(&b, 800 * MS), BREAKER_PROBE);
	breaker_succeed(&b, 0);
	cr_assert_eq(b.state, BREAKER_HALF_OPEN, "what others began before says nothing");
	breaker_succeed(&b, 1);
	cr_assert_eq(breaker_ask(&b, 800 * MS), BREAKER_ASK);
	breaker_fail(&b, 900 * MS);
	cr_assert_eq(breaker_ask(&b, 1150 * MS), BREAKER_PROBE, "from the beginning");
}

Test(breaker, waits_at_most_five_seconds)
{
	struct breaker b = { 0 };
	int64_t now = 0;

	for (int k = 0; k < 10; k++) {
		breaker_fail(&b, now);
		cr_assert_leq(b.until_ns - now, BREAKER_MAX_NS);
		now = b.until_ns;
		cr_assert_eq(breaker_ask(&b, now), BREAKER_PROBE);
	}
	breaker_fail(&b, now);
	cr_assert_eq(b.until_ns - now, BREAKER_MAX_NS);
	breaker_fail(&b, now + 1);
	cr_assert_eq(b.until_ns - now, BREAKER_MAX_NS, "a failure while it is open is none of a probe");
}

Test(breaker, a_probe_without_an_outcome_leaves_its_place)
{
	struct breaker b = { 0 };

	breaker_fail(&b, 0);
	cr_assert_eq(breaker_ask(&b, 250 * MS), BREAKER_PROBE);
	breaker_abandon(&b, 260 * MS);
	cr_assert_eq(breaker_ask(&b, 260 * MS), BREAKER_PROBE);
}
