/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakectl top: what a mount does, round after round.
 *
 * On a terminal a screen that is drawn anew: each round, and when the terminal changes its size. Else
 * one text, or with --json one line, per round. Signals come through a descriptor, so that the
 * terminal is put back whatever ends it; readings come from a thread, so that a daemon that does not
 * answer holds up neither.
 */
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/sampler.h"
#include "cli/screen.h"
#include "cli/top.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

#define DEFAULT_DELAY_S 1.0
#define MIN_DELAY_S 0.1
#define MAX_DELAY_S 3600.0
#define PLAIN_COLUMNS 80
#define SILENCE_S 2 /* without an answer for this long, the screen says so */

const char top_details[] =
	"Rates are those of the last round. What passthrough serves does not reach the daemon\n"
	"and is not in them. On a terminal: q quits.\n\n"
	"Options:\n"
	"  -d SECONDS          length of a round, 0.1 to 3600 (default 1)\n"
	"  -n ROUNDS           end after so many rounds (default: never)\n"
	"  --mount DIR         mount point (default: the mount that holds PATH, else\n"
	"                      $MOONCAKE_MOUNT, else " CLI_DEFAULT_MOUNT ")\n";

struct top {
	char mount[PATH_MAX];
	bool json;
	bool on_screen;
	double delay_s;
	uint64_t rounds_left; /* 0: without end */
	struct screen screen;
	struct sampler *sampler;
	int signal_fd;
	json_t *before, *now; /* the last two readings; before is NULL at first */
	int64_t asked_ns, next_ns;
	bool is_waiting;
	bool is_over;
	int exit_code;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void end(struct top *t, int exit_code)
{
	t->is_over = true;
	t->exit_code = exit_code;
}

/* With the terminal put back before a word is said. */
static void fail(struct top *t, const char *what, int error)
{
	screen_close(&t->screen);
	cli_error("%s: %s", what, strerror(error));
	end(t, CLI_FAILED);
}

/* ---- output ---- */

static void show_screen(struct top *t, const struct top_round *r)
{
	size_t columns, rows;

	screen_size(&columns, &rows);
	autofree char *view = columns < TOP_MIN_COLUMNS ? strdup("too narrow\n") :
							  top_view(r, columns, rows);
	int rc = view ? screen_draw(view, 1) : -ENOMEM;
	if (rc)
		fail(t, "terminal", -rc);
}

static void show_plain(struct top *t, const struct top_round *r)
{
	autofree char *line = NULL;
	autofree char *view = NULL;

	if (t->json) {
		json_t *object = top_json(r);
		line = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(13)) : NULL;
		json_decref(object);
	} else
		view = top_view(r, PLAIN_COLUMNS, 0);
	if (!line && !view) {
		fail(t, "output", ENOMEM);
		return;
	}
	printf("%s\n", line ? line : view);
	if (fflush(stdout))
		end(t, CLI_FAILED); /* main says why */
}

static void show(struct top *t)
{
	static struct top_round round;

	if (!t->now)
		return;
	top_round_take(&round, t->mount, t->before, t->now);
	double silent_s = t->is_waiting ? (double)(now_ns() - t->asked_ns) / 1e9 : 0;
	if (silent_s >= SILENCE_S)
		round.silent_s = silent_s;
	if (t->on_screen)
		show_screen(t, &round);
	else if (t->before)
		show_plain(t, &round);
}

/* ---- events ---- */

static void take_sample(struct top *t)
{
	json_t *status = NULL;
	int rc = sampler_take(t->sampler, &status);

	if (rc == -EAGAIN)
		return;
	t->is_waiting = false;
	if (rc) {
		screen_close(&t->screen);
		cli_error("%s: the mount is gone: %s", t->mount, strerror(-rc));
		end(t, CLI_FAILED);
		return;
	}
	json_decref(t->before);
	t->before = t->now;
	t->now = status;
	show(t);
	if (t->before && t->rounds_left && !--t->rounds_left && !t->is_over)
		end(t, CLI_OK);
}

/* Ctrl-Z: the shell gets its terminal, and we take it again when we go on. */
static void suspend(struct top *t)
{
	screen_close(&t->screen);
	raise(SIGSTOP);
	if (!t->on_screen)
		return;
	int rc = screen_open(&t->screen);
	if (rc)
		fail(t, "terminal", -rc);
	else
		show(t);
}

static void take_signal(struct top *t)
{
	struct signalfd_siginfo info;

	if (read(t->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGWINCH:
		if (t->on_screen)
			show(t);
		break;
	case SIGTSTP:
		suspend(t);
		break;
	default:
		end(t, CLI_OK);
	}
}

static void take_keys(struct top *t)
{
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	if (n <= 0) /* the terminal is gone */
		end(t, CLI_OK);
	for (ssize_t i = 0; i < n; i++)
		if (keys[i] == 'q' || keys[i] == 'Q')
			end(t, CLI_OK);
}

static void ask(struct top *t)
{
	int64_t now = now_ns();

	if (now < t->next_ns)
		return;
	if (sampler_ask(t->sampler)) {
		t->asked_ns = now;
		t->is_waiting = true;
	} else
		show(t); /* how long the daemon has been silent */
	/* From round to round without drift; after a pause from now on. */
	int64_t delay_ns = (int64_t)(t->delay_s * 1e9);
	t->next_ns = t->next_ns + delay_ns > now ? t->next_ns + delay_ns : now + delay_ns;
}

static void run_rounds(struct top *t)
{
	t->next_ns = now_ns();
	while (!t->is_over) {
		ask(t);
		int64_t wait_ms = (t->next_ns - now_ns()) / 1000000 + 1;
		struct pollfd fds[] = {
			{.fd = t->signal_fd, .events = POLLIN},
			{.fd = sampler_fd(t->sampler), .events = POLLIN},
			{.fd = t->on_screen && t->screen.has_keys ? STDIN_FILENO : -1,
			 .events = POLLIN},
		};
		if (t->is_over || poll(fds, 3, wait_ms > 0 ? (int)wait_ms : 0) <= 0)
			continue;
		if (fds[0].revents)
			take_signal(t);
		if (fds[2].revents && !t->is_over)
			take_keys(t);
		if (fds[1].revents && !t->is_over)
			take_sample(t);
	}
}

/* ---- start ---- */

static int parse_delay(const struct command *cmd, const char *text, double *out)
{
	char *rest;
	double value = strtod(text, &rest);

	if (rest == text || *rest || !isfinite(value) || value < MIN_DELAY_S || value > MAX_DELAY_S)
		return usage_error(cmd, "-d %s: seconds from 0.1 to 3600 are expected", text);
	*out = value;
	return -1;
}

static int parse(const struct command *cmd, int argc, char **argv, struct top *t,
		 struct common_options *options)
{
	static const struct option known[] = {COMMON_OPTIONS, MOUNT_OPTION, {0}};
	int value, rc = -1;

	while (rc < 0 && (value = getopt_long(argc, argv, "d:n:", known, NULL)) != -1) {
		if (value == 'd')
			rc = parse_delay(cmd, optarg, &t->delay_s);
		else if (value != 'n')
			rc = common_option(cmd, value, options);
		else if (parse_u64(optarg, 1, UINT32_MAX, &t->rounds_left))
			rc = usage_error(cmd, "-n %s: a number of rounds is expected", optarg);
	}
	return rc < 0 ? common_operands(cmd, argc, argv, 0, 1) : rc;
}

/* Before the sampler starts, whose thread is to take none of them. */
static int open_signals(struct top *t)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaddset(&set, signals[i]);
	t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (t->signal_fd < 0)
		return -errno;
	return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int run_top(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	struct top t = {.delay_s = DEFAULT_DELAY_S, .signal_fd = -1, .exit_code = CLI_OK};
	int rc = parse(cmd, argc, argv, &t, &options);

	if (rc >= 0)
		return rc;
	if (mount_find(options.mount, argv[optind], t.mount))
		return CLI_FAILED;
	t.json = options.json;
	t.on_screen = !t.json && isatty(STDOUT_FILENO);
	rc = open_signals(&t);
	if (!rc)
		rc = sampler_start(t.mount, &t.sampler);
	if (!rc && t.on_screen)
		rc = screen_open(&t.screen);
	if (rc)
		fail(&t, "cannot start", -rc);
	else
		run_rounds(&t);
	screen_close(&t.screen);
	if (t.sampler && !sampler_stop(t.sampler)) {
		fflush(stdout);
		_exit(t.exit_code);
	}
	json_decref(t.before);
	json_decref(t.now);
	if (t.signal_fd >= 0)
		close(t.signal_fd);
	return t.exit_code;
}
