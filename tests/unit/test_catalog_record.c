/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/crc.h"
#include "catalog_fixture.h"
#include "catalog_record.h"

/* ---- helpers ---- */

/* Makes a record whole again after its bytes were changed. */
static void reseal(uint8_t *buf, size_t len)
{
	uint32_t crc = crc32c(0, buf, len - 4);

	for (int i = 0; i < 4; i++)
		buf[len - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

static size_t encode_entry(const struct entry *e, uint8_t buf[ENTRY_RECORD_MAX])
{
	size_t len = 0;

	cr_assert_eq(entry_record_encode(e, buf, ENTRY_RECORD_MAX, &len), 0);
	return len;
}

static size_t encode_rich_object(uint8_t *buf, size_t bytes)
{
	struct object_record r = rich_object();
	size_t len = 0;

	cr_assert_eq(object_record_encode(&r, buf, bytes, &len), 0);
	object_record_fini(&r);
	return len;
}

/* A copy that ends where its heap block does, so that a read past it is seen by ASan. */
static int decode_entry_exact(const uint8_t *buf, size_t len, struct entry *e)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, buf, len);
	int rc = entry_record_decode(copy, len, e);
	free(copy);
	return rc;
}

static int decode_object_exact(const uint8_t *buf, size_t len, struct object_record *r)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, buf, len);
	int rc = object_record_decode(copy, len, r);
	free(copy);
	return rc;
}

static void expect_entry_round_trip(const struct entry *e)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry got;
	size_t len = encode_entry(e, buf);

	cr_assert_eq(decode_entry_exact(buf, len, &got), 0);
	cr_expect(entries_are_equal(e, &got));
	cr_expect_eq(got.policy.hint[got.policy.hint_len], '\0');
	entry_fini(&got);
}

static int encode_entry_error(const struct entry *e)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	size_t len;

	return entry_record_encode(e, buf, sizeof(buf), &len);
}

/* ---- entry, success ---- */

Test(entry_record, keeps_every_field)
{
	struct entry e = rich_entry();

	expect_entry_round_trip(&e);
}

/* The byte map of the header, so that a change of the format cannot go unnoticed. */
Test(entry_record, has_the_documented_bytes)
{
	static const uint8_t want[] = {
		1,    3,    2,	  6,	0xe9, 0x8d, 0,	  0,	0x44, 0x43, 0x42, 0x41, 0x54, 0x53,
		0x52, 0x51, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25,
		0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 255,  255,
		255,  255,  255,  255,	255,  255,  0,	  0,	0,    0,    0,	  0,	0,    0x80,
		255,  255,  255,  255,	255,  255,  255,  0x7f, 0x68, 0x67, 0x66, 0x65, 0x64, 0x63,
		0x62, 0x61, 0x74, 0x73, 0x72, 0x71, 0,	  0,	'a',  0,    'b',  0xff, '\n', '/',
	};
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry();
	size_t len = encode_entry(&e, buf);

	cr_assert_eq(len, sizeof(want) + 4);
	cr_expect_arr_eq(buf, want, sizeof(want));
	cr_expect_eq(crc32c(0, buf, sizeof(want)),
		     (uint32_t)buf[len - 4] | (uint32_t)buf[len - 3] << 8 |
			     (uint32_t)buf[len - 2] << 16 | (uint32_t)buf[len - 1] << 24);
}

Test(entry_record, keeps_the_longest_hint_and_target)
{
	char target[CATALOG_SYMLINK_MAX + 1];
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = {
		.ino = 7, .size = CATALOG_SYMLINK_MAX, .mode = S_IFLNK | 0777, .target = target};

	memset(target, 'x', CATALOG_SYMLINK_MAX);
	target[CATALOG_SYMLINK_MAX] = '\0';
	e.policy.hint_len = CATALOG_HINT_MAX;
	memset(e.policy.hint, 0xee, CATALOG_HINT_MAX);
	cr_expect_eq(encode_entry(&e, buf), ENTRY_RECORD_MAX);
	expect_entry_round_trip(&e);
}

Test(entry_record, keeps_directories_and_other_types)
{
	const uint32_t types[] = {S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		struct entry e = {.ino = 3, .mode = types[i] | 01777};
		expect_entry_round_trip(&e);
	}
}

/* ---- entry, failure ---- */

Test(entry_record, refuses_to_encode_what_breaks_the_rules)
{
	char target[CATALOG_SYMLINK_MAX + 2], empty[] = "";
	struct entry file = file_entry(5), e;

	memset(target, 'x', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	e = file, e.object_id = 0;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "file without an object");
	e = file, e.mode = S_IFDIR | 0755;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "directory with an object");
	e = file, e.mode = 0644;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "no type");
	e = file, e.policy.class = 3;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "unknown class");
	e = file, e.target = target;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "file with a target");
	e = (struct entry){.mode = S_IFLNK | 0777};
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "symlink without a target");
	e.target = empty;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "symlink with an empty target");
	e.target = target, e.size = CATALOG_SYMLINK_MAX + 1;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "target too long");
	target[10] = '\0', e.size = 9;
	cr_expect_eq(encode_entry_error(&e), -EINVAL, "size is not the target's");
}

Test(entry_record, tells_a_short_buffer)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry();
	size_t len = encode_entry(&e, buf), got = 0;

	for (size_t bytes = 0; bytes < len; bytes++)
		cr_assert_eq(entry_record_encode(&e, buf, bytes, &got), -ENOBUFS);
	cr_expect_eq(got, 0);
}

Test(entry_record, is_damaged_when_any_bit_flips)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry(), got;
	size_t len = encode_entry(&e, buf);

	for (size_t bit = 0; bit < len * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_eq(decode_entry_exact(buf, len, &got), -EIO, "bit %zu", bit);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

Test(entry_record, is_damaged_at_every_shorter_or_longer_length)
{
	uint8_t buf[ENTRY_RECORD_MAX + 8];
	struct entry e = rich_entry(), got;
	size_t len = encode_entry(&e, buf);

	for (size_t cut = 0; cut < len; cut++) {
		cr_assert_eq(decode_entry_exact(buf, cut, &got), -EIO, "cut to %zu", cut);
		uint8_t copy[ENTRY_RECORD_MAX];
		memcpy(copy, buf, cut);
		if (cut < 5)
			continue;
		reseal(copy, cut); /* also when whoever cut it sealed it again */
		cr_assert_eq(decode_entry_exact(copy, cut, &got), -EIO, "cut to %zu and sealed",
			     cut);
	}
	memset(buf + len - 4, 0, 8);
	reseal(buf, len + 4);
	cr_expect_eq(decode_entry_exact(buf, len + 4, &got), -EIO, "longer and sealed");
}

Test(entry_record, is_damaged_when_sealed_fields_break_the_rules)
{
	static const struct {
		size_t at;
		uint8_t byte;
	} changes[] = {
		{0, 0},	   /* version */
		{1, 4},	   /* flag */
		{2, 3},	   /* class */
		{3, 5},	   /* hint bytes */
		{5, 0},	   /* type */
		{76, 1},   /* target bytes */
		{77, 255}, /* target bytes, far past the end */
	};
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry(), got;

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		size_t len = encode_entry(&e, buf);
		buf[changes[i].at] = changes[i].byte;
		reseal(buf, len);
		cr_expect_eq(decode_entry_exact(buf, len, &got), -EIO, "byte %zu", changes[i].at);
	}
}

Test(entry_record, of_a_newer_version_is_not_called_damaged)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry(), got;
	size_t len = encode_entry(&e, buf);

	for (int version = ENTRY_RECORD_VERSION + 1; version <= 255; version++) {
		buf[0] = (uint8_t)version;
		reseal(buf, len);
		cr_assert_eq(decode_entry_exact(buf, len, &got), -EPROTO);
	}
	buf[20] ^= 1;
	cr_expect_eq(decode_entry_exact(buf, len, &got), -EIO, "newer and damaged");
}

Test(entry_record, leaves_its_output_alone_on_failure)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e = rich_entry(), got, before;
	size_t len = encode_entry(&e, buf);

	memset(&got, 0x5a, sizeof(got));
	memcpy(&before, &got, sizeof(got));
	cr_expect_neq(entry_record_decode(buf, len - 1, &got), 0);
	cr_expect_arr_eq(&got, &before, sizeof(got));
}

/* ---- object ---- */

Test(object_record, keeps_every_field)
{
	uint8_t buf[1024];
	struct object_record want = rich_object(), got;
	size_t len = encode_rich_object(buf, sizeof(buf));

	cr_expect_leq(len, object_record_bytes(&want));
	cr_assert_eq(decode_object_exact(buf, len, &got), 0);
	cr_expect(objects_are_equal(&want, &got));
	cr_expect_eq(got.name[got.name_len], '\0');
	object_record_fini(&got);
	object_record_fini(&want);
}

Test(object_record, keeps_the_smallest_and_the_longest_name)
{
	uint8_t buf[1024];
	struct object_record r = {.object_id = 1}, got;
	size_t len;

	cr_assert_eq(object_record_encode(&r, buf, sizeof(buf), &len), 0);
	cr_expect_eq(len, 74);
	cr_assert_eq(decode_object_exact(buf, len, &got), 0);
	cr_expect_null(got.crc);
	cr_expect_null(got.promise_entry);

	r.name_len = CATALOG_NAME_MAX;
	memset(r.name, 1, CATALOG_NAME_MAX);
	cr_assert_eq(object_record_encode(&r, buf, sizeof(buf), &len), 0);
	cr_assert_eq(decode_object_exact(buf, len, &got), 0);
	cr_expect_str_eq(got.name, r.name);
}

Test(object_record, keeps_a_promised_symlink_and_many_checksums)
{
	struct object_record r = rich_object(), got;
	const uint32_t n = 5000;

	r.promise_entry->mode = S_IFLNK | 0777;
	r.promise_entry->object_id = 0;
	r.promise_entry->size = 3;
	r.promise_entry->target = strdup("a/b");
	r.size = (uint64_t)n * CATALOG_CRC_CHUNK;
	r.n_crc = n;
	r.crc = realloc(r.crc, n * sizeof(*r.crc));
	for (uint32_t i = 0; i < n; i++)
		r.crc[i] = i * 2654435761u;
	size_t bytes = object_record_bytes(&r), len;
	uint8_t *buf = malloc(bytes);
	cr_assert_eq(object_record_encode(&r, buf, bytes, &len), 0);
	cr_assert_eq(decode_object_exact(buf, len, &got), 0);
	cr_expect(objects_are_equal(&r, &got));
	object_record_fini(&got);
	object_record_fini(&r);
	free(buf);
}

Test(object_record, refuses_to_encode_what_breaks_the_rules)
{
	uint8_t buf[8192];
	uint32_t crc[3] = {1, 2, 3};
	struct object_record good = file_object(9), r;
	struct entry promise = file_entry(9), bad_promise = {.mode = 0};
	size_t len;

	r = good, r.object_id = 0;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL, "no id");
	r = good, r.class = 3;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL, "unknown class");
	r = good, r.n_crc = 2, r.crc = crc;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL,
		     "too many checksums");
	r = good, r.n_crc = 1, r.crc = NULL;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL, "no checksums");
	r = good, r.size = 0, r.n_crc = 1, r.crc = crc;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL,
		     "checksum of nothing");
	r = good, r.is_promise = 1;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL,
		     "promise of nothing");
	r = good, r.promise_entry = &promise;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL,
		     "entry, but no promise");
	r = good, r.is_promise = 1, r.promise_entry = &bad_promise;
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL, "bad promise");
	r = good, r.name_len = 3, memcpy(r.name, "a/b", 3);
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL,
		     "slash in the name");
	r = good, r.name_len = 3, memcpy(r.name, "a\0b", 3);
	cr_expect_eq(object_record_encode(&r, buf, sizeof(buf), &len), -EINVAL, "NUL in the name");
}

Test(object_record, tells_a_short_buffer)
{
	uint8_t buf[1024];
	struct object_record r = rich_object();
	size_t len = encode_rich_object(buf, sizeof(buf)), got;

	for (size_t bytes = 0; bytes < len; bytes++)
		cr_assert_eq(object_record_encode(&r, buf, bytes, &got), -ENOBUFS, "%zu bytes",
			     bytes);
	cr_expect_eq(object_record_encode(&r, buf, len, &got), 0);
	object_record_fini(&r);
}

Test(object_record, is_damaged_when_any_bit_flips)
{
	uint8_t buf[1024];
	struct object_record got;
	size_t len = encode_rich_object(buf, sizeof(buf));

	for (size_t bit = 0; bit < len * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_eq(decode_object_exact(buf, len, &got), -EIO, "bit %zu", bit);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

Test(object_record, is_damaged_at_every_shorter_length)
{
	uint8_t buf[1024], copy[1024];
	struct object_record got;
	size_t len = encode_rich_object(buf, sizeof(buf));

	for (size_t cut = 0; cut < len; cut++) {
		cr_assert_eq(decode_object_exact(buf, cut, &got), -EIO, "cut to %zu", cut);
		memcpy(copy, buf, cut);
		if (cut < 5)
			continue;
		reseal(copy, cut);
		cr_assert_eq(decode_object_exact(copy, cut, &got), -EIO, "cut to %zu and sealed",
			     cut);
	}
}

Test(object_record, does_not_believe_a_sealed_count)
{
	uint8_t buf[1024];
	struct object_record got;

	for (size_t at = 3; at < 8; at++) {
		size_t len = encode_rich_object(buf, sizeof(buf));
		buf[at] = 0xff;
		reseal(buf, len);
		cr_expect_eq(decode_object_exact(buf, len, &got), -EIO, "byte %zu", at);
	}
}

Test(object_record, of_a_newer_version_or_with_a_newer_promise_is_not_called_damaged)
{
	uint8_t buf[1024];
	struct object_record got;
	size_t len = encode_rich_object(buf, sizeof(buf));
	size_t promise_at = 70 + 4 + 3 * 4;

	buf[promise_at] = 2;
	reseal(buf + promise_at, len - 4 - promise_at);
	reseal(buf, len);
	cr_expect_eq(decode_object_exact(buf, len, &got), -EPROTO);
	buf[0] = OBJECT_RECORD_VERSION + 1;
	reseal(buf, len);
	cr_expect_eq(decode_object_exact(buf, len, &got), -EPROTO);
}

/* As format 1 wrote it: no ttl before the name. */
static size_t make_old(uint8_t *buf, size_t len)
{
	memmove(buf + 66, buf + 70, len - 70);
	buf[0] = 1;
	reseal(buf, len - 4);
	return len - 4;
}

Test(object_record, of_version_1_decodes_without_a_ttl)
{
	uint8_t buf[1024];
	struct object_record want = rich_object(), got;
	size_t len = make_old(buf, encode_rich_object(buf, sizeof(buf)));

	cr_expect(object_record_is_old(buf, len));
	cr_assert_eq(decode_object_exact(buf, len, &got), 0);
	cr_expect_eq(got.ttl_s, 0);
	want.ttl_s = 0;
	cr_expect(objects_are_equal(&want, &got));
	object_record_fini(&got);
	object_record_fini(&want);
	cr_expect_eq(decode_object_exact(buf, len - 1, &got), -EIO);
	buf[0] = 0;
	reseal(buf, len);
	cr_expect_eq(decode_object_exact(buf, len, &got), -EIO, "there is no version 0");
}

/* ---- control ---- */

Test(control_record, keeps_its_value_and_knows_damage)
{
	uint8_t buf[CONTROL_RECORD_BYTES];
	uint64_t got = 0;

	control_record_encode(0xfedcba9876543210, buf);
	cr_assert_eq(control_record_decode(buf, sizeof(buf), &got), 0);
	cr_expect_eq(got, 0xfedcba9876543210);
	for (size_t cut = 0; cut < sizeof(buf); cut++)
		cr_expect_eq(control_record_decode(buf, cut, &got), -EIO);
	buf[0] = 2;
	reseal(buf, sizeof(buf));
	cr_expect_eq(control_record_decode(buf, sizeof(buf), &got), -EPROTO);
	buf[3] ^= 1;
	cr_expect_eq(control_record_decode(buf, sizeof(buf), &got), -EIO);
}
