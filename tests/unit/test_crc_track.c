/* SPDX-License-Identifier: Apache-2.0 */
/* crc_track: whatever the pattern of writes, what finish says is the checksum of the bytes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "mcfs/catalog.h"
#include "object/crc_track.h"

#define CHUNK ((uint64_t)CATALOG_CRC_CHUNK)
#define MAX (3 * CHUNK)

/* ---- fixture ---- */

static char *file; /* what is in the frame */
static struct crc_track t;
static int n_reads, read_error;

static void setup(void)
{
	file = calloc(1, MAX);
	t = (struct crc_track){ 0 };
	n_reads = read_error = 0;
}

static void teardown(void)
{
	crc_track_fini(&t);
	free(file);
}

TestSuite(crc_track, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static int read_file(void *arg, void *buf, size_t len, uint64_t off)
{
	n_reads++;
	cr_assert_leq(off + len, MAX);
	memcpy(buf, file + off, len);
	return read_error;
}

static void put(uint64_t off, size_t len, int seed)
{
	for (size_t k = 0; k < len; k++)
		file[off + k] = (char)(seed * 31 + (int)(k * 7));
	crc_track_write(&t, file + off, len, off);
}

/* Finishes, compares with the file, and returns how many chunks were read again. */
static int finish(uint64_t size)
{
	uint32_t *crc = NULL, n = 99;

	n_reads = 0;
	cr_assert_eq(crc_track_finish(&t, size, read_file, NULL, &crc, &n), 0);
	cr_assert_eq(n, (size + CHUNK - 1) / CHUNK);
	for (uint32_t k = 0; k < n; k++) {
		size_t len = size - k * CHUNK < CHUNK ? (size_t)(size - k * CHUNK) : (size_t)CHUNK;
		cr_expect_eq(crc[k], crc32c(0, file + k * CHUNK, len), "chunk %u of %llu bytes", k,
			     (unsigned long long)size);
	}
	free(crc);
	return n_reads;
}

/* ---- tests ---- */

Test(crc_track, nothing_has_no_checksums)
{
	uint32_t *crc = (uint32_t *)&crc, n = 99;

	cr_assert_eq(crc_track_finish(&t, 0, read_file, NULL, &crc, &n), 0);
	cr_expect_null(crc);
	cr_expect_eq(n, 0);
}

Test(crc_track, sequential_writes_read_nothing_again)
{
	uint64_t size = 0;

	for (; size < 2 * CHUNK + 5000; size += 5000)
		put(size, 5000, (int)size);
	cr_expect_eq(finish(size), 0);
}

Test(crc_track, one_write_over_chunk_ends)
{
	put(0, (size_t)(2 * CHUNK + 100), 1);
	cr_expect_eq(finish(2 * CHUNK + 100), 0);
}

Test(crc_track, backward_writes_are_read_again)
{
	put(1000, 1000, 1);
	put(0, 1000, 2);
	cr_expect_eq(finish(2000), 1);
}

Test(crc_track, an_overwrite_in_the_middle_is_read_again)
{
	put(0, 4000, 1);
	put(1000, 100, 2);
	put(4000, 100, 3);
	cr_expect_eq(finish(4100), 1);
}

Test(crc_track, an_overwrite_from_the_start_of_all_that_is_known_is_not)
{
	put(0, 1000, 1);
	put(0, 2000, 2);
	cr_expect_eq(finish(2000), 0);
}

Test(crc_track, an_overwrite_from_the_start_of_a_part_is)
{
	put(0, 2000, 1);
	put(0, 1000, 2);
	cr_expect_eq(finish(2000), 1);
}

Test(crc_track, a_hole_is_read_again)
{
	put(0, 100, 1);
	put(CHUNK + 50, 100, 2);
	cr_expect_eq(finish(CHUNK + 150), 2);
}

Test(crc_track, a_cut_inside_is_read_again)
{
	put(0, 5000, 1);
	crc_track_cut(&t, 3000);
	cr_expect_eq(finish(3000), 1);
}

Test(crc_track, a_cut_at_a_chunk_end_is_not)
{
	put(0, (size_t)CHUNK, 1);
	put(CHUNK, 500, 2);
	crc_track_cut(&t, CHUNK);
	cr_expect_eq(finish(CHUNK), 0);
}

Test(crc_track, zeros_after_a_cut_and_a_growth_are_counted)
{
	put(0, 5000, 1);
	crc_track_cut(&t, 1000);
	memset(file + 1000, 0, 4000);
	cr_expect_eq(finish(5000), 1);
}

Test(crc_track, a_write_behind_a_cut_goes_on_with_the_shorter_file)
{
	put(0, 1000, 1);
	crc_track_cut(&t, 0);
	put(0, 300, 2);
	crc_track_cut(&t, 300);
	put(300, 300, 3);
	cr_expect_eq(finish(600), 0);
}

Test(crc_track, what_is_forgotten_is_read_again)
{
	put(0, (size_t)(2 * CHUNK), 1);
	file[CHUNK + 3] ^= 1;
	crc_track_forget(&t, CHUNK + 3, 1);
	cr_expect_eq(finish(2 * CHUNK), 1);
}

Test(crc_track, loaded_checksums_are_believed)
{
	uint32_t crc[2];

	put(0, (size_t)CHUNK + 700, 1);
	crc[0] = crc32c(0, file, CHUNK);
	crc[1] = crc32c(0, file + CHUNK, 700);
	crc_track_load(&t, crc, 2, CHUNK + 700);
	put(CHUNK + 700, 300, 2);
	cr_expect_eq(finish(CHUNK + 1000), 0);
}

Test(crc_track, a_failed_read_is_told)
{
	uint32_t *crc = NULL, n = 99;

	put(10, 10, 1);
	read_error = -EIO;
	cr_expect_eq(crc_track_finish(&t, 20, read_file, NULL, &crc, &n), -EIO);
	cr_expect_null(crc);
	cr_expect_eq(n, 99);
}

Test(crc_track, any_pattern_gives_the_checksum_of_the_bytes)
{
	unsigned int seed = 7;

	for (int round = 0; round < 30; round++) {
		uint64_t size = 0;
		memset(file, 0, MAX);
		crc_track_fini(&t);
		for (int step = 0; step < 12; step++) {
			uint64_t off = (uint64_t)rand_r(&seed) % (2 * CHUNK);
			size_t len = 1 + (size_t)rand_r(&seed) % (CHUNK / 2);
			if (rand_r(&seed) % 3 == 0)
				off = size; /* appends */
			if (off + len > MAX)
				continue;
			if (rand_r(&seed) % 5 == 0) {
				memset(file + off, 0, MAX - off);
				crc_track_cut(&t, off < size ? off : size);
				size = off;
				continue;
			}
			put(off, len, step);
			size = off + len > size ? off + len : size;
		}
		finish(size);
	}
}
