/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the server may answer: a value, a field, a node, a claim. Decoding must not go wrong, and what
 * decodes must encode to the same bytes (a node's may be followed by what a later version appends).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "meta/directory_key.h"
#include "meta/directory_node.h"
#include "meta/directory_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void try_value(const uint8_t *data, size_t size)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	struct directory_value v;
	size_t len;

	if (directory_value_decode(data, size, &v))
		return;
	must(!directory_value_encode(&v, buf, &len));
	must(len == size && !memcmp(buf, data, size));
	directory_value_fini(&v);
}

static void try_field(const uint8_t *data, size_t size)
{
	uint8_t field[DIRECTORY_FIELD_MAX];
	char name[DIRECTORY_NAME_MAX + 1];
	size_t len;

	if (directory_field_decode(data, size, name))
		return;
	must(!directory_field_encode(name, field, &len));
	must(len == size && !memcmp(field, data, size));
}

static void try_node(const uint8_t *data, size_t size)
{
	uint8_t buf[DIRECTORY_NODE_MAX];
	struct directory_node n, again;

	if (directory_node_decode(data, size, &n))
		return;
	size_t len = directory_node_encode(&n, buf);
	must(len <= size && !directory_node_decode(buf, len, &again));
	must(n.id == again.id && !strcmp(n.name, again.name) && !strcmp(n.address, again.address));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t seconds;
	uint64_t id;

	try_value(data, size);
	try_field(data, size);
	try_node(data, size);
	directory_claim_decode(data, size, &id, &seconds);
	return 0;
}
