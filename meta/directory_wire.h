/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_wire: numbers in the bytes that the directory keeps at the server. Fixed ones are big-endian, so that
 * scripts compare them byte by byte; the others are varints (LEB128) of the shortest form.
 *
 * A reader that met damage stays damaged and answers 0. Thread safe, no state.
 */
#ifndef MCFS_DIRECTORY_WIRE_H
#define MCFS_DIRECTORY_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WIRE_VARINT_MAX 10u

static inline uint8_t *wire_put_be16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	return (uint8_t *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

static inline uint8_t *wire_put_be32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	return (uint8_t *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

static inline uint8_t *wire_put_be64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	return (uint8_t *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

static inline uint8_t *wire_put_varint(uint8_t *p, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

struct wire_reader {
	const uint8_t *p, *end;
	bool is_damaged;
};

/* NULL: fewer than n are left. */
static inline const uint8_t *wire_get_bytes(struct wire_reader *r, size_t n)
{
	const uint8_t *bytes = r->p;

	if (r->is_damaged || (size_t)(r->end - r->p) < n) {
		r->is_damaged = true;
		return NULL;
	}
	r->p += n;
	return bytes;
}

static inline uint64_t wire_get_be(struct wire_reader *r, size_t n)
{
	const uint8_t *bytes = wire_get_bytes(r, n);
	uint64_t v = 0;

	for (size_t i = 0; bytes && i < n; i++)
		v = v << 8 | bytes[i];
	return v;
}

static inline uint64_t wire_get_varint(struct wire_reader *r, uint64_t max)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		const uint8_t *byte = wire_get_bytes(r, 1);
		if (!byte)
			return 0;
		uint64_t bits = *byte & 0x7f;
		if (shift == 63 && bits > 1)
			break;
		v |= bits << shift;
		if (*byte & 0x80)
			continue;
		if ((shift && !bits) || v > max)
			break;
		return v;
	}
	r->is_damaged = true;
	return 0;
}

#endif
