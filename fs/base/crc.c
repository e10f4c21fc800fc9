/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc.h"

#include <isa-l/crc.h>

/* crc32_iscsi takes its length as an int. */
#define STEP_BYTES (1u << 30)

uint32_t crc32c(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;

	/* ISA-L leaves both inversions of the standard to its caller; inverting on the way in and
	 * out is also what makes the results chain. */
	crc = ~crc;
	while (len) {
		size_t n = len < STEP_BYTES ? len : STEP_BYTES;
		/* It only reads, though its prototype says otherwise. */
		crc = crc32_iscsi((unsigned char *)(uintptr_t)p, (int)n, crc);
		p += n;
		len -= n;
	}
	return ~crc;
}
