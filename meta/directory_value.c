/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_value.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/monotonic.h"
#include "directory_wire.h"

_Static_assert(DIRECTORY_SLOTS <= UINT16_MAX + 1 && DIRECTORY_HOLDERS_MAX <= UINT8_MAX, "the byte map's widths");

void directory_value_fini(struct directory_value *v)
{
	free(v->target);
	v->target = NULL;
}

static bool mode_is_of_kind(uint32_t mode, enum directory_kind kind)
{
	switch (kind) {
	case DIRECTORY_FILE:
		return S_ISREG(mode);
	case DIRECTORY_DIR:
		return S_ISDIR(mode);
	case DIRECTORY_SYMLINK:
		return S_ISLNK(mode);
	default:
		return false;
	}
}

/* The rules that a target_len of its own does not tell. */
static bool value_is_sound(const struct directory_value *v, size_t target_len)
{
	if (v->n_holders > DIRECTORY_HOLDERS_MAX)
		return false;
	for (uint32_t i = 0; i < v->n_holders; i++)
		if (v->holders[i] >= DIRECTORY_SLOTS)
			return false;
	if (v->kind == DIRECTORY_TOMBSTONE)
		return v->version && !v->n_holders && !target_len && v->mtime_ns >= 0 &&
		       v->mtime_ns / NS_PER_S <= UINT32_MAX;
	if (!mode_is_of_kind(v->mode, v->kind) || !v->n_holders)
		return false;
	if (!v->version || !v->object)
		return false;
	return v->kind == DIRECTORY_SYMLINK ? target_len > 0 && target_len <= DIRECTORY_TARGET_MAX : !target_len;
}

int directory_value_encode(const struct directory_value *v, uint8_t *buf, size_t *len_out)
{
	size_t target_len = v->target ? strnlen(v->target, DIRECTORY_TARGET_MAX + 1) : 0;
	uint8_t *p = wire_put_be64(buf, v->version);

	if (!value_is_sound(v, target_len))
		return -EINVAL;
	*p++ = (uint8_t)v->kind;
	*p++ = (uint8_t)v->n_holders;
	if (v->kind == DIRECTORY_TOMBSTONE) {
		p = wire_put_be32(p, (uint32_t)(v->mtime_ns / NS_PER_S));
		*len_out = (size_t)(p - buf);
		return 0;
	}
	p = wire_put_be64(p, v->object);
	p = wire_put_varint(p, v->size);
	p = wire_put_varint(p, v->mode);
	p = wire_put_varint(p, v->uid);
	p = wire_put_varint(p, v->gid);
	p = wire_put_be64(p, (uint64_t)v->mtime_ns);
	if (target_len)
		p = (uint8_t *)memcpy(p, v->target, target_len) + target_len;
	for (uint32_t i = 0; i < v->n_holders; i++)
		p = wire_put_be16(p, v->holders[i]);
	*len_out = (size_t)(p - buf);
	return 0;
}

static int target_decode(const uint8_t *bytes, size_t len, char **out)
{
	if (!len || len > DIRECTORY_TARGET_MAX || memchr(bytes, '\0', len))
		return -EIO;
	*out = strndup((const char *)bytes, len);
	return *out ? 0 : -ENOMEM;
}

/* What lies between the head and the holders. */
static int middle_decode(struct wire_reader r, struct directory_value *v)
{
	if (v->kind == DIRECTORY_TOMBSTONE) {
		v->mtime_ns = (int64_t)wire_get_be(&r, 4) * NS_PER_S;
		return r.is_damaged || r.p != r.end ? -EIO : 0;
	}
	v->object = wire_get_be(&r, 8);
	v->size = wire_get_varint(&r, UINT64_MAX);
	v->mode = (uint32_t)wire_get_varint(&r, UINT32_MAX);
	v->uid = (uint32_t)wire_get_varint(&r, UINT32_MAX);
	v->gid = (uint32_t)wire_get_varint(&r, UINT32_MAX);
	v->mtime_ns = (int64_t)wire_get_be(&r, 8);
	if (r.is_damaged)
		return -EIO;
	if (v->kind == DIRECTORY_SYMLINK)
		return target_decode(r.p, (size_t)(r.end - r.p), &v->target);
	return r.p != r.end ? -EIO : 0;
}

int directory_value_decode(const void *buf, size_t len, struct directory_value *value_out)
{
	struct wire_reader r = {.p = buf, .end = (const uint8_t *)buf + len};
	struct directory_value v = {.version = wire_get_be(&r, DIRECTORY_VERSION_BYTES)};

	v.kind = (enum directory_kind)wire_get_be(&r, 1);
	v.n_holders = (uint32_t)wire_get_be(&r, 1);
	size_t tail = v.n_holders * DIRECTORY_SLOT_BYTES;
	if (r.is_damaged || v.kind > DIRECTORY_TOMBSTONE || v.n_holders > DIRECTORY_HOLDERS_MAX ||
	    tail > (size_t)(r.end - r.p))
		return -EIO;
	struct wire_reader holders = {.p = r.end - tail, .end = r.end};
	r.end -= tail;
	for (uint32_t i = 0; i < v.n_holders; i++)
		v.holders[i] = (uint16_t)wire_get_be(&holders, DIRECTORY_SLOT_BYTES);
	int rc = middle_decode(r, &v);
	if (!rc && !value_is_sound(&v, v.target ? strlen(v.target) : 0))
		rc = -EIO;
	if (rc) {
		directory_value_fini(&v);
		return rc;
	}
	*value_out = v;
	return 0;
}
