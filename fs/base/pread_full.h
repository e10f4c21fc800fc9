/* SPDX-License-Identifier: Apache-2.0 */
/* pread_full: pread(2) until all of it is there. Thread safe. */
#ifndef MCFS_PREAD_FULL_H
#define MCFS_PREAD_FULL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* The bytes read, fewer than len at the end of the file only, or a negative errno. */
static inline ssize_t pread_full(int fd, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

#endif
