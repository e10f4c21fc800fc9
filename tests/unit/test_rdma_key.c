/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma/rdma_key.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const struct rdma_key example = {
	.token = "0123456789abcde",
	.port = 0x1234,
	.addr = 0x7f0011223344,
	.len = 0x5566,
	.n_rkeys = 2,
	.rkeys = {0xa1b2c3d4, 0x99},
};

Test(rdma_key, has_these_bytes)
{
	static const uint8_t wanted[] = {
		1,   2,	  0x34, 0x12, '0', '1',	 '2',  '3',  '4',  '5',	 '6',  '7', '8', '9',  'a',
		'b', 'c', 'd',	'e',  0,   0x44, 0x33, 0x22, 0x11, 0x00, 0x7f, 0,   0,	 0x66, 0x55,
		0,   0,	  0,	0,    0,   0,	 0xd4, 0xc3, 0xb2, 0xa1, 0x99, 0,   0,	 0};
	uint8_t out[TRANSPORT_KEY_BYTES];

	cr_assert_eq(rdma_key_encode(&example, out), sizeof(wanted));
	cr_assert_eq(memcmp(out, wanted, sizeof(wanted)), 0);
}

Test(rdma_key, comes_back_as_it_was)
{
	uint8_t bytes[TRANSPORT_KEY_BYTES];
	struct rdma_key k = example, got;

	for (k.n_rkeys = 1; k.n_rkeys <= RDMA_DEVICES_MAX; k.n_rkeys++) {
		size_t len = rdma_key_encode(&k, bytes);
		cr_assert_leq(len, TRANSPORT_KEY_BYTES);
		cr_assert_eq(rdma_key_decode(bytes, len, &got), 0);
		cr_assert_eq(got.n_rkeys, k.n_rkeys);
		cr_assert_eq(got.port, k.port);
		cr_assert_eq(got.addr, k.addr);
		cr_assert_eq(got.len, k.len);
		cr_assert_eq(memcmp(got.token, k.token, RDMA_TOKEN_BYTES), 0);
		cr_assert_eq(memcmp(got.rkeys, k.rkeys, 4 * k.n_rkeys), 0);
	}
}

Test(rdma_key, of_another_length_or_version_is_refused)
{
	uint8_t bytes[TRANSPORT_KEY_BYTES + 1] = {0};
	struct rdma_key got = {.port = 7};
	size_t len = rdma_key_encode(&example, bytes);

	for (size_t n = 0; n <= sizeof(bytes); n++)
		if (n != len)
			cr_assert_eq(rdma_key_decode(bytes, n, &got), -EINVAL, "%zu", n);
	bytes[0] = RDMA_KEY_VERSION + 1;
	cr_assert_eq(rdma_key_decode(bytes, len, &got), -EPROTONOSUPPORT);
	cr_assert_eq(got.port, 7, "an output is written on success only");
}

Test(rdma_key, that_makes_no_sense_is_refused)
{
	struct rdma_key bad[] = {example, example, example}, got;
	uint8_t bytes[TRANSPORT_KEY_BYTES];

	bad[0].port = 0;
	bad[1].len = 0;
	bad[2].addr = UINT64_MAX - 10; /* wraps */
	for (size_t k = 0; k < 3; k++)
		cr_assert_eq(rdma_key_decode(bytes, rdma_key_encode(&bad[k], bytes), &got), -EINVAL,
			     "%zu", k);
	size_t len = rdma_key_encode(&example, bytes);
	bytes[1] = 0;
	cr_assert_eq(rdma_key_decode(bytes, len, &got), -EINVAL);
	bytes[1] = RDMA_DEVICES_MAX + 1;
	cr_assert_eq(rdma_key_decode(bytes, len, &got), -EINVAL);
}

/* ---- private data ---- */

Test(rdma_private_data, comes_back_through_the_padding_of_the_kernel)
{
	struct rdma_req r = {.asker_port = 50000, .holder_port = 7000, .token = "fedcba987654321"},
			got;
	enum rdma_refusal why;
	uint8_t bytes[200] = {0}, device;

	rdma_req_encode(&r, bytes);
	cr_assert_eq(rdma_req_decode(bytes, 56, &got), 0);
	cr_assert_eq(memcmp(&got, &r, sizeof(r)), 0);
	memset(bytes, 0, sizeof(bytes));
	rdma_rep_encode(6, bytes);
	cr_assert_eq(rdma_rep_decode(bytes, 196, &device), 0);
	cr_assert_eq(device, 6);
	memset(bytes, 0, sizeof(bytes));
	rdma_rej_encode(RDMA_REFUSED_TOKEN, bytes);
	cr_assert_eq(rdma_rej_decode(bytes, 148, &why), 0);
	cr_assert_eq(why, RDMA_REFUSED_TOKEN);
}

Test(rdma_private_data, that_makes_no_sense_is_refused)
{
	enum rdma_refusal why;
	struct rdma_req got;
	uint8_t bytes[56] = {0}, device;

	rdma_req_encode(&(struct rdma_req){1, 2, ""}, bytes);
	for (size_t n = 0; n < RDMA_REQ_BYTES; n++)
		cr_assert_eq(rdma_req_decode(bytes, n, &got), -EINVAL);
	bytes[1] = 1;
	cr_assert_eq(rdma_req_decode(bytes, 56, &got), -EINVAL);
	bytes[0] = RDMA_CM_VERSION + 1;
	cr_assert_eq(rdma_req_decode(bytes, 56, &got), -EPROTONOSUPPORT);
	cr_assert_eq(rdma_rep_decode(bytes, 56, &device), -EPROTONOSUPPORT);
	cr_assert_eq(rdma_rej_decode(bytes, 56, &why), -EPROTONOSUPPORT);
	rdma_rep_encode(RDMA_DEVICES_MAX, bytes);
	cr_assert_eq(rdma_rep_decode(bytes, 56, &device), -EINVAL);
	rdma_rep_encode(0, bytes);
	cr_assert_eq(rdma_rep_decode(bytes, 3, &device), -EINVAL);
	rdma_rej_encode(RDMA_N_REFUSALS, bytes);
	cr_assert_eq(rdma_rej_decode(bytes, 56, &why), -EINVAL);
	rdma_rej_encode(0, bytes);
	cr_assert_eq(rdma_rej_decode(bytes, 56, &why), -EINVAL);
}
