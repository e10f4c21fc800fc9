/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a letter that the directory hands over. What decodes must encode to the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/letter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct peer_invalidation v[PEER_INVALIDATE_MAX];
	static uint8_t buf[LETTER_BYTES_MAX];
	size_t n, len;

	if (size > LETTER_BYTES_MAX || letter_decode(data, size, v, &n))
		return 0;
	if (letter_encode(v, n, buf, &len) != n || len != size || memcmp(buf, data, size))
		abort();
	return 0;
}
