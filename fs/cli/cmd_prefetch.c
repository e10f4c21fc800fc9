/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl prefetch: opens files, which brings what other nodes hold to this one, and waits for it, several at a time. */
#include "cli/cli.h"
#include "cli/crew.h"
#include "cli/text.h"
#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define N_THREADS 16
#define LOOK_MS 100
#define PIECE_BYTES (1 << 20)
#define NOTE_MS 5
#define NOTE_MAX_MS 5000

struct prefetch {
	char **paths;
	atomic_ullong n_files, bytes, n_failed;
};

static volatile sig_atomic_t is_interrupted;

static void interrupt(int signo)
{
	(void)signo;
	is_interrupted = 1;
}

static bool is_remote(int fd)
{
	char state[sizeof("remote")];

	return fgetxattr(fd, "user.mooncake.state", state, sizeof(state)) == 6 && !memcmp(state, "remote", 6);
}

/* Its bytes have come; that this node has it is noted behind them. ESTALE: it has been replaced meanwhile. */
static int await_object(int fd)
{
	for (int n = 0; !is_interrupted && is_remote(fd); n++) {
		if (n * NOTE_MS >= NOTE_MAX_MS) {
			errno = ESTALE;
			return -1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = NOTE_MS * 1000000 }, NULL);
	}
	return 0;
}

/* Of a file that lies elsewhere the bytes come behind the open: one of each piece is waited for. */
static int await_bytes(struct prefetch *p, int fd, off_t size)
{
	char byte;

	if (!is_remote(fd)) {
		atomic_fetch_add(&p->bytes, (unsigned long long)size);
		return 0;
	}
	for (off_t at = 0, end; at < size && !is_interrupted; at = end) {
		end = size - at < PIECE_BYTES ? size : at + PIECE_BYTES;
		ssize_t n = pread(fd, &byte, 1, at);
		if (n <= 0) {
			errno = n ? errno : EIO;
			return -1;
		}
		atomic_fetch_add(&p->bytes, (unsigned long long)(end - at));
	}
	return await_object(fd);
}

static void bring(void *arg, unsigned worker, size_t item)
{
	struct prefetch *p = arg;
	struct stat st;

	(void)worker;
	if (is_interrupted)
		return;
	int fd = open(p->paths[item], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || (S_ISREG(st.st_mode) && await_bytes(p, fd, st.st_size))) {
		cli_error("%s: %m", p->paths[item]);
		atomic_fetch_add(&p->n_failed, 1);
	} else if (S_ISREG(st.st_mode) && !is_interrupted) {
		atomic_fetch_add(&p->n_files, 1);
	}
	if (fd >= 0)
		close(fd);
}

int run_prefetch(const struct command *cmd, int argc, char **argv)
{
	struct sigaction action = {.sa_handler = interrupt};
	struct common_options options = {0};
	static struct prefetch p; /* until the end of the process */
	struct crew *crew;
	char size[TEXT_BYTES];
	int rc = common_parse(cmd, argc, argv, false, 1, -1, &options);

	if (rc >= 0)
		return rc;
	p.paths = argv + optind;
	size_t n = (size_t)(argc - optind);
	rc = crew_start(n < N_THREADS ? (unsigned)n : N_THREADS, bring, &p, &crew);
	if (rc) {
		cli_error("cannot start a thread: %s", strerror(-rc));
		return CLI_FAILED;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	crew_begin(crew, 0, n);
	while (!crew_wait(crew, LOOK_MS) && !is_interrupted)
		continue;
	if (!is_interrupted)
		crew_stop(crew); /* else they may wait for long, and end with the process */
	int exit_code = p.n_failed || is_interrupted ? CLI_FAILED : CLI_OK;
	if (options.json)
		return print_json(json_pack("{s:I, s:I, s:I, s:b}", "files", (json_int_t)p.n_files, "bytes",
					    (json_int_t)p.bytes, "failed", (json_int_t)p.n_failed, "interrupted",
					    (int)is_interrupted),
				  exit_code);
	printf("%llu files, %s%s\n", (unsigned long long)p.n_files, format_size(p.bytes, size, sizeof(size)),
	       is_interrupted ? ", interrupted" : "");
	return exit_code;
}
