/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>

#include "rocks_error.h"

static void expect(const char *text, int error)
{
	int rc = rocks_text_errno(text);

	cr_expect_eq(rc, error, "'%s' gave %d", text, rc);
}

Test(rocks_error, tells_a_held_lock)
{
	expect("IO error: While lock file: /c/LOCK: Resource temporarily unavailable", -EBUSY);
	expect("IO error: lock hold by current process, acquire time 1 acquiring thread 2: /c/LOCK: No locks "
	       "available",
	       -EBUSY);
}

Test(rocks_error, tells_a_lock_that_cannot_be_opened_from_one_that_is_held)
{
	expect("IO error: While open a file for lock: /c/LOCK: Permission denied", -EACCES);
	expect("IO error: While open a file for lock: /c/LOCK: Read-only file system", -EROFS);
}

Test(rocks_error, finds_the_reason_of_the_system)
{
	expect("IO error: No space left on device: While appending to file: /c/1.log: No space left on device",
	       -ENOSPC);
	expect("IO error: While appending to file: /c/1.log: Disk quota exceeded", -EDQUOT);
	expect("IO error: While open a file for random read: /c/1.sst: Too many open files",
	       -EMFILE);
	expect("IO error: No such file or directory: While opening a file for sequentially reading: /c/CURRENT: No "
	       "such file or directory",
	       -ENOENT);
	expect("IO error: While pread offset 0 len 4096: /c/1.sst: Input/output error", -EIO);
}

Test(rocks_error, calls_corruption_and_what_it_does_not_know_an_io_error)
{
	expect("Corruption: block checksum mismatch: stored = 1, computed = 2 in /c/1.sst", -EIO);
	expect("Corruption: in file /c/Permission denied", -EIO);
	expect("Invalid argument: Column families not opened: later", -EIO);
	expect("", -EIO);
	expect("No locks", -EIO);
}
