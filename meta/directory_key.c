/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hex.h"

#define HEX_MIN 32u
#define HEX_MAX 64u
#define HEX_MARK '/'

static const char hex_digits[] = "0123456789abcdef";

int directory_prefix_check(const char *prefix)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strlen(prefix);

	return !len || len > DIRECTORY_PREFIX_MAX || strspn(prefix, allowed) != len ? -EINVAL : 0;
}

struct directory_hash directory_path_hash(const char *path)
{
	XXH128_hash_t h = XXH3_128bits(path, strlen(path));

	return (struct directory_hash){.high = h.high64, .low = h.low64};
}

unsigned directory_bucket_of(uint64_t cookie)
{
	return (unsigned)(cookie >> 55);
}

size_t directory_bucket_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, struct directory_hash h,
			    unsigned bucket)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:d:{%016" PRIx64 "%016" PRIx64 ":%02x}", prefix,
				h.high, h.low, bucket);
}

void directory_bucket_key_move(char *key, size_t len, unsigned bucket)
{
	key[len - 3] = hex_digits[bucket >> 4 & 15];
	key[len - 2] = hex_digits[bucket & 15];
}

size_t directory_slots_key(char key[DIRECTORY_KEY_BYTES], const char *prefix)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:n", prefix);
}

size_t directory_lease_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:n:{%u}", prefix, slot);
}

size_t directory_box_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:box:{%u}", prefix, slot);
}

size_t directory_ack_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot, uint64_t letter)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:box:{%u}:%016" PRIx64, prefix, slot, letter);
}

size_t directory_events_key(char key[DIRECTORY_KEY_BYTES], const char *prefix)
{
	return (size_t)snprintf(key, DIRECTORY_KEY_BYTES, "%s:ev", prefix);
}

static bool name_is_hex(const char *name, size_t len)
{
	if (len < HEX_MIN || len > HEX_MAX || len % 2)
		return false;
	for (size_t i = 0; i < len; i++)
		if (hex_value(name[i]) < 0 || (name[i] >= 'A' && name[i] <= 'F'))
			return false;
	return true;
}

int directory_field_encode(const char *name, uint8_t field[DIRECTORY_FIELD_MAX], size_t *len_out)
{
	size_t len = strnlen(name, DIRECTORY_NAME_MAX + 1);

	if (len > DIRECTORY_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || memchr(name, '/', len))
		return -EINVAL;
	if (!name_is_hex(name, len)) {
		memcpy(field, name, len);
		*len_out = len;
		return 0;
	}
	field[0] = HEX_MARK;
	for (size_t i = 0; i < len; i += 2)
		field[1 + i / 2] = (uint8_t)hex_byte(name + i);
	*len_out = 1 + len / 2;
	return 0;
}

int directory_field_decode(const void *field, size_t len, char name_out[DIRECTORY_NAME_MAX + 1])
{
	const uint8_t *p = field;

	if (!len || len > DIRECTORY_NAME_MAX)
		return -EIO;
	if (p[0] != HEX_MARK) {
		if (memchr(p, '/', len) || memchr(p, '\0', len) || name_is_hex(field, len))
			return -EIO;
		memcpy(name_out, p, len);
		name_out[len] = '\0';
		return 0;
	}
	if (len < 1 + HEX_MIN / 2 || len > 1 + HEX_MAX / 2)
		return -EIO;
	for (size_t i = 1; i < len; i++) {
		name_out[2 * i - 2] = hex_digits[p[i] >> 4];
		name_out[2 * i - 1] = hex_digits[p[i] & 15];
	}
	name_out[2 * len - 2] = '\0';
	return 0;
}
