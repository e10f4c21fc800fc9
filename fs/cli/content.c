/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/content.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define GAMMA UINT64_C(0x9e3779b97f4a7c15)
#define MAGIC UINT64_C(0x314b4c425346434d) /* "MCFSBLK1" in little-endian order */
#define CHUNK_WORDS 512 /* the scratch of a check stays in the first-level cache */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

void content_name(uint64_t id, char name_out[CONTENT_NAME_BYTES])
{
	uint64_t key = htole64(id);
	XXH128_hash_t hash = XXH3_128bits(&key, sizeof(key));

	snprintf(name_out, CONTENT_NAME_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
		 (uint64_t)hash.low64);
}

/* Words [first, first + n) of a block that is len bytes long. */
static void make_words(uint64_t id, size_t len, size_t first, uint64_t *words, size_t n)
{
	const uint64_t header[] = {MAGIC, id, len};
	uint64_t state = mix(id + GAMMA) + first * GAMMA;

	for (size_t i = 0; i < n; i++, state += GAMMA)
		words[i] = htole64(mix(state));
	for (size_t i = first; i < 3 && i - first < n; i++)
		words[i - first] = htole64(header[i]);
}

void content_fill(uint64_t id, void *buf, size_t len)
{
	uint64_t words[CHUNK_WORDS] = {0};

	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(words) ? len - done : sizeof(words);
		make_words(id, len, done / 8, words, (n + 7) / 8);
		memcpy((char *)buf + done, words, n);
		done += n;
	}
}

size_t content_check(uint64_t id, const void *buf, size_t len)
{
	uint64_t words[CHUNK_WORDS] = {0};
	const char *have = buf;

	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(words) ? len - done : sizeof(words);
		make_words(id, len, done / 8, words, (n + 7) / 8);
		if (memcmp(have + done, words, n)) {
			for (size_t i = 0; i < n; i++)
				if (have[done + i] != ((const char *)words)[i])
					return done + i;
		}
		done += n;
	}
	return len;
}
