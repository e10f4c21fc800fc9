/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_node.h"

#include <errno.h>
#include <string.h>

#include "directory_wire.h"

#define FORMAT 1

_Static_assert(17 + 2 * WIRE_VARINT_MAX + sizeof(((struct directory_node *)0)->name) +
			       sizeof(((struct directory_node *)0)->address) + 6 * WIRE_VARINT_MAX <=
		       DIRECTORY_NODE_MAX,
	       "a node fits in its buffer");

static uint8_t *text_put(uint8_t *p, const char *text, size_t size)
{
	size_t len = strnlen(text, size - 1);

	p = wire_put_varint(p, len);
	memcpy(p, text, len);
	return p + len;
}

size_t directory_node_encode(const struct directory_node *n, uint8_t buf[DIRECTORY_NODE_MAX])
{
	uint8_t *p = wire_put_be64(buf, n->id);

	p = wire_put_be64(p, n->incarnation);
	*p++ = FORMAT;
	p = text_put(p, n->name, sizeof(n->name));
	p = text_put(p, n->address, sizeof(n->address));
	p = wire_put_varint(p, n->load);
	p = wire_put_varint(p, n->dram_bytes);
	p = wire_put_varint(p, n->dram_used_bytes);
	p = wire_put_varint(p, n->ssd_bytes);
	p = wire_put_varint(p, n->ssd_used_bytes);
	p = wire_put_varint(p, n->n_objects);
	return (size_t)(p - buf);
}

static void text_get(struct wire_reader *r, char *out, size_t size)
{
	size_t len = (size_t)wire_get_varint(r, size - 1);
	const uint8_t *bytes = wire_get_bytes(r, len);

	if (!bytes)
		return;
	if (memchr(bytes, '\0', len)) {
		r->is_damaged = true;
		return;
	}
	memcpy(out, bytes, len);
	out[len] = '\0';
}

int directory_node_decode(const void *buf, size_t len, struct directory_node *out)
{
	struct wire_reader r = {.p = buf, .end = (const uint8_t *)buf + len};
	struct directory_node n = {.id = wire_get_be(&r, 8)};

	n.incarnation = wire_get_be(&r, 8);
	if (wire_get_be(&r, 1) < FORMAT)
		return -EIO;
	text_get(&r, n.name, sizeof(n.name));
	text_get(&r, n.address, sizeof(n.address));
	n.load = (uint32_t)wire_get_varint(&r, UINT32_MAX);
	n.dram_bytes = wire_get_varint(&r, UINT64_MAX);
	n.dram_used_bytes = wire_get_varint(&r, UINT64_MAX);
	n.ssd_bytes = wire_get_varint(&r, UINT64_MAX);
	n.ssd_used_bytes = wire_get_varint(&r, UINT64_MAX);
	n.n_objects = wire_get_varint(&r, UINT64_MAX);
	if (r.is_damaged)
		return -EIO;
	*out = n;
	return 0;
}

int directory_claim_decode(const void *buf, size_t len, uint64_t *id_out, uint32_t *seconds_out)
{
	struct wire_reader r = {.p = buf, .end = (const uint8_t *)buf + len};

	if (len != DIRECTORY_CLAIM_BYTES)
		return -EIO;
	*id_out = wire_get_be(&r, 8);
	*seconds_out = (uint32_t)wire_get_be(&r, 4);
	return 0;
}
