/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_key: what nodes tell each other so that one can read the other's memory, as bytes. Little-endian, versioned;
 * decoders believe nothing. Pure computation, no verbs: built also where there is no RDMA. Thread safe.
 *
 * A key, of 36 + 4 * n_rkeys bytes. It goes over the authenticated connections of the peers:
 *
 *    0  u8   RDMA_KEY_VERSION
 *    1  u8   n_rkeys, 1 .. RDMA_DEVICES_MAX
 *    2  u16  port of the holder's rdma_cm listener, not 0
 *    4  16   token of the holder's process
 *   20  u64  address of the memory, in the holder's process
 *   28  u64  length in bytes, not 0; address + length does not wrap
 *   36  u32  rkey of the memory on the holder's device 0, then 1, ...; 0: not registered there
 *
 * Private data of rdma_cm. The kernel pads them with zeros, so they may be longer than what was sent:
 *
 *   REQ, 24 bytes: version; 0; u16 asker's TCP port; u16 holder's TCP port; u16 0; token of the key
 *   REP,  4 bytes: version; the holder's device that this queue pair is on; 0; 0
 *   REJ,  4 bytes: version; enum rdma_refusal; 0; 0
 */
#ifndef TRANSPORT_RDMA_RDMA_KEY_H
#define TRANSPORT_RDMA_RDMA_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/transport.h"

#define RDMA_KEY_VERSION 1
#define RDMA_CM_VERSION 1
#define RDMA_TOKEN_BYTES 16
/* Devices of one node: as many rkeys as fit a key. */
#define RDMA_DEVICES_MAX 7
#define RDMA_KEY_FIXED_BYTES 36

struct rdma_key {
	uint8_t token[RDMA_TOKEN_BYTES];
	uint16_t port;
	uint64_t addr, len; /* bytes */
	uint32_t n_rkeys;
	uint32_t rkeys[RDMA_DEVICES_MAX];
};

/* Bytes written. */
size_t rdma_key_encode(const struct rdma_key *k, uint8_t out[TRANSPORT_KEY_BYTES]);
/* -EPROTONOSUPPORT: another version; -EINVAL: not a key. */
int rdma_key_decode(const uint8_t *in, size_t len, struct rdma_key *out);

#define RDMA_REQ_BYTES 24
#define RDMA_REP_BYTES 4
#define RDMA_REJ_BYTES 4

/* Ports as the asker sees its TCP connection: they tell the holder to which of its connections the queue pair belongs. */
struct rdma_req {
	uint16_t asker_port, holder_port;
	uint8_t token[RDMA_TOKEN_BYTES];
};

enum rdma_refusal {
	RDMA_REFUSED_VERSION = 1,
	RDMA_REFUSED_TOKEN,	 /* not given out by this process */
	RDMA_REFUSED_CONNECTION, /* no such TCP connection is open here */
	RDMA_REFUSED_LIMIT,	 /* no queue pair to be had */
	RDMA_N_REFUSALS,
};

void rdma_req_encode(const struct rdma_req *r, uint8_t out[RDMA_REQ_BYTES]);
/* -EPROTONOSUPPORT: another version; -EINVAL. */
int rdma_req_decode(const uint8_t *in, size_t len, struct rdma_req *out);
void rdma_rep_encode(uint8_t device, uint8_t out[RDMA_REP_BYTES]);
int rdma_rep_decode(const uint8_t *in, size_t len, uint8_t *device_out);
void rdma_rej_encode(enum rdma_refusal why, uint8_t out[RDMA_REJ_BYTES]);
int rdma_rej_decode(const uint8_t *in, size_t len, enum rdma_refusal *why_out);

#endif
