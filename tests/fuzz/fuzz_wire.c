/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message of the peer protocol: what a decoder takes keeps the rules of wire.h, and comes out of the
 * encoder as it was. The first byte says as which type the payload is taken when there is no header for it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void must_be_same(const uint8_t *in, size_t len, const uint8_t *out, ssize_t out_len)
{
	must(out_len == (ssize_t)len && !memcmp(in, out, len));
}

static void take_fixed(uint8_t type, const uint8_t *in, size_t len)
{
	uint8_t out[WIRE_SMALL_BYTES];
	struct wire_welcome welcome;
	struct wire_hello hello;
	struct wire_read r;
	uint32_t v32;
	uint64_t v64;

	if (type == WIRE_HELLO && !wire_hello_decode(in, len, &hello))
		must_be_same(in, len, out, wire_hello_encode(&hello, out));
	else if (type == WIRE_WELCOME && !wire_welcome_decode(in, len, &welcome))
		must_be_same(in, len, out, wire_welcome_encode(&welcome, out));
	else if (type == WIRE_READ && !wire_read_decode(in, len, &r))
		must_be_same(in, len, out, wire_read_encode(&r, out));
	else if (type == WIRE_PONG && !wire_u32_decode(in, len, &v32))
		must_be_same(in, len, out, wire_u32_encode(v32, out));
	else if (type == WIRE_RELEASE && !wire_u64_decode(in, len, &v64))
		must_be_same(in, len, out, wire_u64_encode(v64, out));
}

static void take_chunk(const uint8_t *in, size_t len)
{
	uint8_t out[WIRE_SMALL_BYTES];
	struct wire_chunk c;

	if (len < WIRE_CHUNK_BYTES || wire_chunk_decode(in, (uint32_t)len, &c))
		return;
	must(c.len == len - WIRE_CHUNK_BYTES && c.len <= PEER_CHUNK_BYTES);
	must(c.off / PEER_CHUNK_BYTES == (c.off + c.len - 1) / PEER_CHUNK_BYTES);
	must_be_same(in, WIRE_CHUNK_BYTES, out, wire_chunk_encode(&c, out));
}

static void must_be_names(const char *dir, const char *name)
{
	must(strlen(dir) <= PEER_PATH_MAX && dir[0] == '/' && !strstr(dir, "//") && !strstr(dir, "/../"));
	must(strlen(name) && strlen(name) <= PEER_NAME_MAX && !strchr(name, '/'));
}

static void take_grant(const uint8_t *in, size_t len)
{
	static uint8_t out[WIRE_ASK_BYTES];
	static struct wire_grant g;

	if (wire_grant_decode(in, len, &g))
		return;
	must(g.n && g.n <= PEER_GRANTS_MAX);
	for (uint32_t k = 0; k < g.n; k++)
		must_be_names(g.dir, g.names[k].name);
	must(wire_grant_bytes(&g) == len);
	must_be_same(in, len, out, wire_grant_encode(&g, out, sizeof(out)));
}

static void take_granted(const uint8_t *in, size_t len)
{
	struct peer_grant g;

	if (wire_granted_decode(in, len, &g))
		return;
	must(g.grant && !g.n_crc == !g.crc);
	must(wire_granted_bytes(&g) == len);
	uint8_t *out = malloc(len);
	must_be_same(in, len, out, wire_granted_encode(&g, out, len));
	free(out);
	free(g.crc);
}

static void take_invalidate(const uint8_t *in, size_t len)
{
	static struct peer_invalidation v[PEER_INVALIDATE_MAX];
	uint32_t budget_ms;
	size_t n;

	if (wire_invalidate_decode(in, len, v, &n, &budget_ms))
		return;
	must(n && n <= PEER_INVALIDATE_MAX);
	for (size_t k = 0; k < n; k++)
		must_be_names(v[k].dir, v[k].name);
	must(wire_invalidate_bytes(v, n) == len);
	uint8_t *out = malloc(len);
	must_be_same(in, len, out, wire_invalidate_encode(v, n, budget_ms, out, len));
	free(out);
}

static void take_payload(uint8_t type, const uint8_t *in, size_t len)
{
	take_fixed(type, in, len);
	if (type == WIRE_CHUNK)
		take_chunk(in, len);
	else if (type == WIRE_GRANT)
		take_grant(in, len);
	else if (type == WIRE_GRANTED)
		take_granted(in, len);
	else if (type == WIRE_INVALIDATE)
		take_invalidate(in, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t out[WIRE_HEADER_BYTES];
	struct wire_header h;

	if (size)
		take_payload(data[0], data + 1, size - 1);
	if (size < WIRE_HEADER_BYTES || wire_header_decode(data, &h))
		return 0;
	must(h.type && h.type < WIRE_N_TYPES && h.status <= 0 && h.length <= WIRE_PAYLOAD_MAX);
	must(!h.status || !h.length);
	must(!wire_is_other_version(data));
	wire_header_encode(&h, out);
	must_be_same(data, sizeof(out), out, sizeof(out));
	if (h.length <= size - WIRE_HEADER_BYTES)
		take_payload(h.type, data + WIRE_HEADER_BYTES, h.length);
	return 0;
}
