/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/le.h"

#define CRC_BYTES 4u

/* Offsets of the byte maps in the header. */
enum {
	ENTRY_VERSION = 0,
	ENTRY_FLAGS = 1,
	ENTRY_CLASS = 2,
	ENTRY_HINT_LEN = 3,
	ENTRY_MODE = 4,
	ENTRY_UID = 8,
	ENTRY_GID = 12,
	ENTRY_INO = 16,
	ENTRY_OBJECT_ID = 24,
	ENTRY_SIZE = 32,
	ENTRY_ATIME = 40,
	ENTRY_MTIME = 48,
	ENTRY_CTIME = 56,
	ENTRY_BTIME = 64,
	ENTRY_TTL = 72,
	ENTRY_TARGET_LEN = 76,
	ENTRY_FIXED = 78,
};

enum {
	OBJECT_VERSION = 0,
	OBJECT_FLAGS = 1,
	OBJECT_CLASS = 2,
	OBJECT_NAME_LEN = 3,
	OBJECT_N_CRC = 4,
	OBJECT_ID = 8,
	OBJECT_SIZE = 16,
	OBJECT_DRAM_FRAME = 24,
	OBJECT_SSD_FRAME = 32,
	OBJECT_CHARGED = 40,
	OBJECT_PARENT = 48,
	OBJECT_INO = 56,
	OBJECT_PROMISE_LEN = 64,
	OBJECT_TTL = 66,
	OBJECT_FIXED = 70,
	OBJECT_FIXED_V1 = OBJECT_TTL,
};

enum {
	ENTRY_FLAG_CLASS_IS_SET = 1,
	ENTRY_FLAG_PIN = 2
};
enum {
	OBJECT_FLAG_PIN = 1,
	OBJECT_FLAG_PROMISE = 2
};

_Static_assert(ENTRY_RECORD_MAX == ENTRY_FIXED + CATALOG_HINT_MAX + CATALOG_SYMLINK_MAX + CRC_BYTES,
	       "the header's bound is the sum of the parts");
_Static_assert(ENTRY_RECORD_MAX <= UINT16_MAX, "an object record counts its promise in 16 bits");
_Static_assert(CATALOG_NAME_MAX <= UINT8_MAX && CATALOG_HINT_MAX <= UINT8_MAX,
	       "names and hints are counted in 8 bits");

static void seal(uint8_t *buf, size_t body_bytes)
{
	put_le32(buf + body_bytes, crc32c(0, buf, body_bytes));
}

/* What all versions share: 0 intact and of a version up to newest, -EIO, -EPROTO. */
static int envelope_check(const uint8_t *p, size_t len, uint8_t newest)
{
	if (len < 1 + CRC_BYTES || get_le32(p + len - CRC_BYTES) != crc32c(0, p, len - CRC_BYTES))
		return -EIO;
	if (p[0] > newest)
		return -EPROTO;
	return p[0] ? 0 : -EIO;
}

void entry_fini(struct entry *e)
{
	free(e->target);
	e->target = NULL;
}

void object_record_fini(struct object_record *r)
{
	free(r->crc);
	r->crc = NULL;
	if (r->promise_entry)
		entry_fini(r->promise_entry);
	free(r->promise_entry);
	r->promise_entry = NULL;
}

/* ---- entry ---- */

/* The rules that a target_len of its own does not tell. */
static bool entry_is_sound(const struct entry *e, size_t target_len)
{
	if (!(e->mode & S_IFMT) || e->policy.class > MCFS_CLASS_PINNED)
		return false;
	if (!!S_ISREG(e->mode) != !!e->object_id)
		return false;
	if (S_ISLNK(e->mode))
		return target_len > 0 && target_len <= CATALOG_SYMLINK_MAX && e->size == target_len;
	return target_len == 0;
}

int entry_record_encode(const struct entry *e, uint8_t *buf, size_t buf_bytes, size_t *len_out)
{
	size_t hint_len = e->policy.hint_len;
	size_t target_len = e->target ? strnlen(e->target, CATALOG_SYMLINK_MAX + 1) : 0;
	size_t body = ENTRY_FIXED + hint_len + target_len;

	if (!entry_is_sound(e, target_len))
		return -EINVAL;
	if (buf_bytes < body + CRC_BYTES)
		return -ENOBUFS;
	buf[ENTRY_VERSION] = ENTRY_RECORD_VERSION;
	buf[ENTRY_FLAGS] = (uint8_t)((e->policy.class_is_set ? ENTRY_FLAG_CLASS_IS_SET : 0) |
				     (e->policy.pin ? ENTRY_FLAG_PIN : 0));
	buf[ENTRY_CLASS] = e->policy.class;
	buf[ENTRY_HINT_LEN] = e->policy.hint_len;
	put_le32(buf + ENTRY_MODE, e->mode);
	put_le32(buf + ENTRY_UID, e->uid);
	put_le32(buf + ENTRY_GID, e->gid);
	put_le64(buf + ENTRY_INO, e->ino);
	put_le64(buf + ENTRY_OBJECT_ID, e->object_id);
	put_le64(buf + ENTRY_SIZE, e->size);
	put_le64(buf + ENTRY_ATIME, (uint64_t)e->atime_ns);
	put_le64(buf + ENTRY_MTIME, (uint64_t)e->mtime_ns);
	put_le64(buf + ENTRY_CTIME, (uint64_t)e->ctime_ns);
	put_le64(buf + ENTRY_BTIME, (uint64_t)e->btime_ns);
	put_le32(buf + ENTRY_TTL, e->policy.ttl_s);
	put_le16(buf + ENTRY_TARGET_LEN, (uint16_t)target_len);
	memcpy(buf + ENTRY_FIXED, e->policy.hint, hint_len);
	if (target_len)
		memcpy(buf + ENTRY_FIXED + hint_len, e->target, target_len);
	seal(buf, body);
	*len_out = body + CRC_BYTES;
	return 0;
}

static void entry_fixed_decode(const uint8_t *p, struct entry *e)
{
	e->mode = get_le32(p + ENTRY_MODE);
	e->uid = get_le32(p + ENTRY_UID);
	e->gid = get_le32(p + ENTRY_GID);
	e->ino = get_le64(p + ENTRY_INO);
	e->object_id = get_le64(p + ENTRY_OBJECT_ID);
	e->size = get_le64(p + ENTRY_SIZE);
	e->atime_ns = (int64_t)get_le64(p + ENTRY_ATIME);
	e->mtime_ns = (int64_t)get_le64(p + ENTRY_MTIME);
	e->ctime_ns = (int64_t)get_le64(p + ENTRY_CTIME);
	e->btime_ns = (int64_t)get_le64(p + ENTRY_BTIME);
	e->policy.class = p[ENTRY_CLASS];
	e->policy.class_is_set = !!(p[ENTRY_FLAGS] & ENTRY_FLAG_CLASS_IS_SET);
	e->policy.pin = !!(p[ENTRY_FLAGS] & ENTRY_FLAG_PIN);
	e->policy.ttl_s = get_le32(p + ENTRY_TTL);
	e->policy.hint_len = p[ENTRY_HINT_LEN];
}

int entry_record_decode(const void *buf, size_t len, struct entry *entry_out)
{
	const uint8_t *p = buf;
	struct entry e = {.target = NULL};
	int rc = envelope_check(p, len, ENTRY_RECORD_VERSION);

	if (rc)
		return rc;
	if (len < ENTRY_FIXED + CRC_BYTES)
		return -EIO;
	size_t hint_len = p[ENTRY_HINT_LEN], target_len = get_le16(p + ENTRY_TARGET_LEN);
	const uint8_t *target = p + ENTRY_FIXED + hint_len;
	if (len != ENTRY_FIXED + hint_len + target_len + CRC_BYTES ||
	    p[ENTRY_FLAGS] & ~(ENTRY_FLAG_CLASS_IS_SET | ENTRY_FLAG_PIN))
		return -EIO;
	entry_fixed_decode(p, &e);
	if (!entry_is_sound(&e, target_len) || (target_len && memchr(target, '\0', target_len)))
		return -EIO;
	memcpy(e.policy.hint, p + ENTRY_FIXED, hint_len);
	if (target_len) {
		e.target = malloc(target_len + 1);
		if (!e.target)
			return -ENOMEM;
		memcpy(e.target, target, target_len);
		e.target[target_len] = '\0';
	}
	*entry_out = e;
	return 0;
}

/* ---- object ---- */

static bool object_is_sound(const struct object_record *r)
{
	uint64_t n_chunks = r->size / CATALOG_CRC_CHUNK + !!(r->size % CATALOG_CRC_CHUNK);

	return r->object_id && r->class <= MCFS_CLASS_PINNED &&
	       (r->n_crc == 0 || r->n_crc == n_chunks) && !memchr(r->name, '\0', r->name_len) &&
	       !memchr(r->name, '/', r->name_len);
}

size_t object_record_bytes(const struct object_record *r)
{
	return OBJECT_FIXED + (size_t)r->name_len + (size_t)r->n_crc * 4 +
	       (r->promise_entry ? ENTRY_RECORD_MAX : 0) + CRC_BYTES;
}

static void object_fixed_encode(const struct object_record *r, uint8_t *buf)
{
	buf[OBJECT_VERSION] = OBJECT_RECORD_VERSION;
	buf[OBJECT_FLAGS] = (uint8_t)((r->pin ? OBJECT_FLAG_PIN : 0) |
				      (r->is_promise ? OBJECT_FLAG_PROMISE : 0));
	buf[OBJECT_CLASS] = r->class;
	buf[OBJECT_NAME_LEN] = r->name_len;
	put_le32(buf + OBJECT_N_CRC, r->n_crc);
	put_le64(buf + OBJECT_ID, r->object_id);
	put_le64(buf + OBJECT_SIZE, r->size);
	put_le64(buf + OBJECT_DRAM_FRAME, r->dram_frame);
	put_le64(buf + OBJECT_SSD_FRAME, r->ssd_frame);
	put_le64(buf + OBJECT_CHARGED, r->charged_bytes);
	put_le64(buf + OBJECT_PARENT, r->parent);
	put_le64(buf + OBJECT_INO, r->ino);
	put_le32(buf + OBJECT_TTL, r->ttl_s);
}

int object_record_encode(const struct object_record *r, uint8_t *buf, size_t buf_bytes,
			 size_t *len_out)
{
	size_t at = OBJECT_FIXED, promise_len = 0;

	if (!!r->is_promise != !!r->promise_entry || (r->n_crc && !r->crc) || !object_is_sound(r))
		return -EINVAL;
	if (buf_bytes < OBJECT_FIXED + (size_t)r->name_len + (size_t)r->n_crc * 4 + CRC_BYTES)
		return -ENOBUFS;
	object_fixed_encode(r, buf);
	memcpy(buf + at, r->name, r->name_len);
	at += r->name_len;
	for (uint32_t i = 0; i < r->n_crc; i++, at += 4)
		put_le32(buf + at, r->crc[i]);
	if (r->promise_entry) {
		int rc = entry_record_encode(r->promise_entry, buf + at, buf_bytes - CRC_BYTES - at,
					     &promise_len);
		if (rc)
			return rc;
		at += promise_len;
	}
	put_le16(buf + OBJECT_PROMISE_LEN, (uint16_t)promise_len);
	seal(buf, at);
	*len_out = at + CRC_BYTES;
	return 0;
}

static void object_fixed_decode(const uint8_t *p, struct object_record *r)
{
	r->object_id = get_le64(p + OBJECT_ID);
	r->size = get_le64(p + OBJECT_SIZE);
	r->dram_frame = get_le64(p + OBJECT_DRAM_FRAME);
	r->ssd_frame = get_le64(p + OBJECT_SSD_FRAME);
	r->charged_bytes = get_le64(p + OBJECT_CHARGED);
	r->parent = get_le64(p + OBJECT_PARENT);
	r->ino = get_le64(p + OBJECT_INO);
	r->ttl_s = p[OBJECT_VERSION] == 1 ? 0 : get_le32(p + OBJECT_TTL);
	r->class = p[OBJECT_CLASS];
	r->pin = !!(p[OBJECT_FLAGS] & OBJECT_FLAG_PIN);
	r->is_promise = !!(p[OBJECT_FLAGS] & OBJECT_FLAG_PROMISE);
	r->name_len = p[OBJECT_NAME_LEN];
	r->n_crc = get_le32(p + OBJECT_N_CRC);
}

int object_record_decode(const void *buf, size_t len, struct object_record *record_out)
{
	const uint8_t *p = buf;
	struct object_record r = {.crc = NULL};
	autofree uint32_t *crc = NULL;
	autofree struct entry *promise = NULL;
	int rc = envelope_check(p, len, OBJECT_RECORD_VERSION);

	if (rc)
		return rc;
	size_t fixed = p[OBJECT_VERSION] == 1 ? OBJECT_FIXED_V1 : OBJECT_FIXED;
	if (len < fixed + CRC_BYTES ||
	    p[OBJECT_FLAGS] & ~(OBJECT_FLAG_PIN | OBJECT_FLAG_PROMISE))
		return -EIO;
	object_fixed_decode(p, &r);
	size_t promise_len = get_le16(p + OBJECT_PROMISE_LEN), crc_at = fixed + (size_t)r.name_len;
	size_t promise_at = crc_at + (size_t)r.n_crc * 4;
	/* The length is what bounds both the reads below and the allocation. */
	if (len != promise_at + promise_len + CRC_BYTES || !!promise_len != !!r.is_promise)
		return -EIO;
	memcpy(r.name, p + fixed, r.name_len);
	if (!object_is_sound(&r))
		return -EIO;
	if (r.n_crc) {
		crc = malloc((size_t)r.n_crc * sizeof(*crc));
		if (!crc)
			return -ENOMEM;
		for (uint32_t i = 0; i < r.n_crc; i++)
			crc[i] = get_le32(p + crc_at + (size_t)i * 4);
	}
	if (promise_len) {
		promise = malloc(sizeof(*promise));
		if (!promise)
			return -ENOMEM;
		rc = entry_record_decode(p + promise_at, promise_len, promise);
		if (rc)
			return rc;
	}
	*record_out = r;
	record_out->crc = crc;
	record_out->promise_entry = promise;
	crc = NULL;
	promise = NULL;
	return 0;
}

bool object_record_is_old(const void *buf, size_t len)
{
	return len && *(const uint8_t *)buf < OBJECT_RECORD_VERSION;
}

/* ---- control ---- */

void control_record_encode(uint64_t value, uint8_t buf[CONTROL_RECORD_BYTES])
{
	buf[0] = CONTROL_RECORD_VERSION;
	put_le64(buf + 1, value);
	seal(buf, CONTROL_RECORD_BYTES - CRC_BYTES);
}

int control_record_decode(const void *buf, size_t len, uint64_t *value_out)
{
	const uint8_t *p = buf;
	int rc = envelope_check(p, len, CONTROL_RECORD_VERSION);

	if (rc)
		return rc;
	if (len != CONTROL_RECORD_BYTES)
		return -EIO;
	*value_out = get_le64(p + 1);
	return 0;
}
