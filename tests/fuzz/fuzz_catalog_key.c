/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a key of the names and of the objects table: decoding must not go wrong, and the position
 * and the number that come out must make the same key again. A name's own hash need not be that of the
 * key: two names may be made to share one, and a decoder cannot tell.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "meta/catalog_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void try_name(const uint8_t *data, size_t size)
{
	uint8_t key[NAMES_KEY_MAX];
	uint64_t parent, cookie;
	const char *name;
	size_t name_len;

	if (names_key_decode(data, size, &parent, &cookie, &name, &name_len))
		return;
	must(name_len > 0 && name_len <= CATALOG_NAME_MAX && !memchr(name, '\0', name_len));
	must((const uint8_t *)name + name_len == data + size);
	names_position_encode(key, parent, cookie);
	must(!memcmp(key, data, NAMES_KEY_PREFIX));
}

static void try_object(const uint8_t *data, size_t size)
{
	uint8_t key[OBJECTS_KEY_BYTES];
	uint64_t id;

	if (objects_key_decode(data, size, &id))
		return;
	objects_key_encode(key, id);
	must(size == sizeof(key) && !memcmp(key, data, size));
}

/* As a name of a user: what encodes decodes to the same. */
static void try_user_name(const uint8_t *data, size_t size)
{
	char text[CATALOG_NAME_MAX + 2];
	uint8_t key[NAMES_KEY_MAX];
	uint64_t parent, cookie;
	size_t key_len, name_len;
	const char *name;

	if (size >= sizeof(text))
		size = sizeof(text) - 1;
	memcpy(text, data, size);
	text[size] = '\0';
	if (names_key_encode(key, &key_len, 7, text))
		return;
	must(!names_key_decode(key, key_len, &parent, &cookie, &name, &name_len));
	must(parent == 7 && cookie == catalog_name_cookie(text));
	must(name_len == strlen(text) && !memcmp(name, text, name_len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Of exactly this size, so that a sanitizer sees a read past the end. */
	uint8_t *copy = malloc(size ? size : 1);

	must(copy);
	memcpy(copy, data, size);
	try_name(copy, size);
	try_object(copy, size);
	try_user_name(copy, size);
	free(copy);
	return 0;
}
