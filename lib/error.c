/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static __thread struct {
	int error;
	char text[400];
	char plain[128];
} last;

static int real_ioctl(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}

struct lib_kernel lib_kernel = {.ioctl = real_ioctl, .read = read, .poll = poll};

int lib_errno(int error)
{
	/* What FUSE says to requests that were under way when the connection was cut. */
	return error == ECONNABORTED ? -ENOTCONN : -error;
}

uint64_t lib_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int lib_ioctl(int fd, unsigned long request, void *arg)
{
	return lib_kernel.ioctl(fd, request, arg) < 0 ? lib_errno(errno) : 0;
}

int lib_fail(int error, const char *fmt, ...)
{
	va_list args;

	last.error = error;
	va_start(args, fmt);
	int n = vsnprintf(last.text, sizeof(last.text), fmt, args);
	va_end(args);
	if (n >= 0 && (size_t)n < sizeof(last.text))
		snprintf(last.text + n, sizeof(last.text) - (size_t)n, ": %s",
			 strerror_r(-error, last.plain, sizeof(last.plain)));
	return error;
}

void lib_forget_error(void)
{
	last.error = 0;
}

LIB_PUBLIC const char *mcfs_strerror(int error)
{
	if (error < 0 && error == last.error)
		return last.text;
	return strerror_r(error < 0 ? -error : error, last.plain, sizeof(last.plain));
}
