/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog_key.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Inlined: a lookup hashes one short name, and a call into the library would dispatch first. */
#define XXH_INLINE_ALL
#include <xxhash.h>

static void put_be64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static uint64_t get_be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

/*
 * XXH3-64, seed 0, of the name's bytes: part of the disk format and of every cookie that a client
 * holds. 63 bits, since a cookie travels as a signed off_t.
 */
static uint64_t name_cookie(const char *name, size_t len)
{
	uint64_t cookie = XXH3_64bits(name, len) >> 1;

	return cookie > 2 ? cookie : cookie + 3;
}

uint64_t catalog_name_cookie(const char *name)
{
	return name_cookie(name, strlen(name));
}

void names_position_encode(uint8_t key[NAMES_KEY_PREFIX], uint64_t parent, uint64_t cookie)
{
	put_be64(key, parent);
	put_be64(key + 8, cookie);
}

int names_key_encode(uint8_t *key, size_t *key_len_out, uint64_t parent, const char *name)
{
	size_t len = strnlen(name, CATALOG_NAME_MAX + 1);

	if (!len)
		return -EINVAL;
	if (len > CATALOG_NAME_MAX)
		return -ENAMETOOLONG;
	names_position_encode(key, parent, name_cookie(name, len));
	memcpy(key + NAMES_KEY_PREFIX, name, len);
	*key_len_out = NAMES_KEY_PREFIX + len;
	return 0;
}

int names_key_decode(const uint8_t *key, size_t key_len, uint64_t *parent_out, uint64_t *cookie_out,
		     const char **name_out, size_t *name_len_out)
{
	if (key_len <= NAMES_KEY_PREFIX || key_len > NAMES_KEY_MAX)
		return -EIO;
	uint64_t cookie = get_be64(key + 8);
	const uint8_t *name = key + NAMES_KEY_PREFIX;
	size_t name_len = key_len - NAMES_KEY_PREFIX;
	if (cookie <= 2 || cookie >= CATALOG_COOKIE_END || memchr(name, '\0', name_len))
		return -EIO;
	*parent_out = get_be64(key);
	*cookie_out = cookie;
	*name_out = (const char *)name;
	*name_len_out = name_len;
	return 0;
}

void objects_key_encode(uint8_t key[OBJECTS_KEY_BYTES], uint64_t object_id)
{
	put_be64(key, object_id);
}

int objects_key_decode(const uint8_t *key, size_t key_len, uint64_t *object_id_out)
{
	if (key_len != OBJECTS_KEY_BYTES)
		return -EIO;
	*object_id_out = get_be64(key);
	return 0;
}
