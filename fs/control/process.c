/* SPDX-License-Identifier: Apache-2.0 */
#include "control/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static double boot_time_s; /* read once, so that the start time does not move with the clock */

static double clock_s(clockid_t id)
{
	struct timespec ts;

	return clock_gettime(id, &ts) ? 0 : (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void find_boot_time(void)
{
	boot_time_s = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_BOOTTIME);
}

/* proc(5): the fields after the name in brackets, which may itself hold blanks and brackets. */
static void read_stat(struct process_stats *out)
{
	char text[1024];
	uint64_t n_threads, start_ticks, virtual_bytes, rss_pages;
	autoclose int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return;
	text[n] = '\0';
	const char *rest = strrchr(text, ')');
	/* From field 3 on: 17 of no interest, 20 threads, 21, 22 start, 23 virtual, 24 resident. */
	if (!rest || sscanf(rest + 1,
			    " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
			    " %" SCNu64 " %*s %" SCNu64 " %" SCNu64 " %" SCNu64,
			    &n_threads, &start_ticks, &virtual_bytes, &rss_pages) != 4)
		return;
	pthread_once(&boot_once, find_boot_time);
	out->n_threads = n_threads;
	out->start_time_s = boot_time_s + (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
	out->virtual_bytes = virtual_bytes;
	out->rss_bytes = rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Since Linux 6.2 the folder's size is the number; before, the entries must be counted. */
static uint64_t count_fds(void)
{
	struct stat st;
	uint64_t n = 0;

	if (!stat("/proc/self/fd", &st) && st.st_size > 0)
		return (uint64_t)st.st_size;
	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	/* Not ".", "..", and the descriptor that lists. */
	return n > 3 ? n - 3 : 0;
}

void process_get_stats(struct process_stats *out)
{
	struct rlimit limit;

	*out = (struct process_stats){.cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID)};
	read_stat(out);
	out->n_fds = count_fds();
	if (!getrlimit(RLIMIT_NOFILE, &limit))
		out->max_fds = limit.rlim_cur;
}
