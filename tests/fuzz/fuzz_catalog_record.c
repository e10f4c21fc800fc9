/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an entry, an object and a control record: decoding must not go wrong, and what decodes
 * must encode to the same bytes. A fuzzer does not find checksums, so each input is tried as it is and
 * once more with its checksums made right.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "meta/catalog_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void try_entry(const uint8_t *data, size_t size)
{
	uint8_t buf[ENTRY_RECORD_MAX];
	struct entry e;
	size_t len;

	if (entry_record_decode(data, size, &e))
		return;
	must(!entry_record_encode(&e, buf, sizeof(buf), &len));
	must(len == size && !memcmp(buf, data, size));
	entry_fini(&e);
}

static void try_object(const uint8_t *data, size_t size)
{
	struct object_record r;
	size_t len;

	if (object_record_decode(data, size, &r))
		return;
	size_t bytes = object_record_bytes(&r);
	uint8_t *buf = malloc(bytes);
	must(buf && bytes >= size);
	must(!object_record_encode(&r, buf, bytes, &len));
	/* An older version becomes one of the newest. */
	must(object_record_is_old(data, size) ? len == size + 4
					      : len == size && !memcmp(buf, data, size));
	free(buf);
	object_record_fini(&r);
}

static void try_control(const uint8_t *data, size_t size)
{
	uint8_t buf[CONTROL_RECORD_BYTES];
	uint64_t value;

	if (control_record_decode(data, size, &value))
		return;
	control_record_encode(value, buf);
	must(size == sizeof(buf) && !memcmp(buf, data, size));
}

static void try_all(const uint8_t *data, size_t size)
{
	try_entry(data, size);
	try_object(data, size);
	try_control(data, size);
}

static void seal(uint8_t *p, size_t size)
{
	uint32_t crc = crc32c(0, p, size - 4);

	for (int i = 0; i < 4; i++)
		p[size - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

/* Bytes 64 and 65 of an object count the promise, a sealed record right before the checksum. */
static void seal_promise(uint8_t *p, size_t size)
{
	if (size < 74)
		return;
	size_t promise = p[64] | (size_t)p[65] << 8;
	if (promise >= 5 && promise <= size - 74)
		seal(p + size - 4 - promise, promise);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_all(data, size);
	if (size < 5)
		return 0;
	/* Of exactly this size, so that a sanitizer sees a read past the end. */
	uint8_t *copy = malloc(size);
	must(copy);
	memcpy(copy, data, size);
	seal(copy, size);
	try_all(copy, size);
	seal_promise(copy, size);
	seal(copy, size);
	try_all(copy, size);
	free(copy);
	return 0;
}
