/* SPDX-License-Identifier: Apache-2.0 */
/* disk_health: which errors fail a disk, and how many. */
#include <criterion/criterion.h>
#include <errno.h>

#include "tier/disk_health.h"

#define SECOND INT64_C(1000000000)

static struct disk_health h;
static int64_t now;

static void setup(void)
{
	h = (struct disk_health){.n_errors = 0};
	now = 1000 * SECOND;
}

TestSuite(disk_health, .init = setup);

Test(disk_health, a_disk_that_is_gone_fails_at_once)
{
	static const int errs[] = {-EROFS, -ENODEV, -ENXIO, -ESTALE, -ESHUTDOWN};

	for (size_t k = 0; k < sizeof(errs) / sizeof(*errs); k++) {
		setup();
		cr_expect(disk_health_note(&h, 1, errs[k], now), "%d", errs[k]);
	}
}

Test(disk_health, what_is_not_the_disk_s_is_no_error_of_it)
{
	static const int errs[] = {0,	    -ENOENT, -ENOSPC, -EMFILE,
				   -ENOMEM, -EFBIG,  -EINTR,  -ECANCELED};

	for (size_t k = 0; k < sizeof(errs) / sizeof(*errs); k++)
		cr_expect_not(disk_error_is_io(errs[k]), "%d", errs[k]);
	cr_expect(disk_error_is_io(-EIO));
	cr_expect(disk_error_is_io(-EROFS));
}

Test(disk_health, errors_of_many_frames_fail_it)
{
	for (uint64_t id = 1; id < DISK_MAX_ERRORS; id++)
		cr_expect_not(disk_health_note(&h, id, -EIO, now += SECOND));
	cr_expect(disk_health_note(&h, 100, -EIO, now += SECOND));
	cr_expect_eq(h.n_errors, DISK_MAX_ERRORS);
}

Test(disk_health, one_bad_frame_never_does)
{
	for (int k = 0; k < 1000; k++)
		cr_expect_not(disk_health_note(&h, 1 + k % (DISK_MAX_ERRORS - 1), -EIO, now++));
	cr_expect_eq(h.n_errors, 1000);
}

Test(disk_health, errors_far_apart_do_not)
{
	for (uint64_t id = 1; id < 100; id++)
		cr_expect_not(disk_health_note(
			&h, id, -EIO, now += DISK_ERRORS_NS / (DISK_MAX_ERRORS - 1) + SECOND));
}

Test(disk_health, errors_of_no_frame_each_count)
{
	for (int k = 1; k < DISK_MAX_ERRORS; k++)
		cr_expect_not(disk_health_note(&h, 0, -EIO, now));
	cr_expect(disk_health_note(&h, 0, -EIO, now));
}
