/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakectl scrub: has the daemon of a mount read all SSD frames again, and shows how far it is.
 *
 * The order goes through .mooncake/control, progress and result come from the object "scrub" of
 * .mooncake/status.json. Ctrl-C ends the scrub; --detach leaves it to the daemon.
 */
#include "base/parse.h"
#include "cli/bar.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 200

const char scrub_details[] =
	"Every frame in the SSD directories is read from the disk and compared with its\n"
	"checksums, in the background. A bad copy is dropped and counted: the object lives on\n"
	"by its copy in DRAM, else its name goes. Ctrl-C ends the scrub.\n\n"
	"Exit status: 0 all are good, 1 bad copies were found or it did not finish.\n\n"
	"Options:\n"
	"  --rate SIZE         read no more per second, as in 200M (default: no limit)\n"
	"  --detach            return at once; 'mooncakectl status --json' has the progress\n"
	"  --stop              end a scrub that is running\n"
	"  --mount DIR         mount point (default: the mount that holds PATH, else\n"
	"                      $MOONCAKE_MOUNT, else " CLI_DEFAULT_MOUNT ")\n";

struct scrub_options {
	uint64_t rate_bytes;
	bool detaches, stops;
	char mount[PATH_MAX];
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signo)
{
	(void)signo;
	is_interrupted = 1;
}

static int send_order(const char *mount, const char *order)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/.mooncake/control", mount);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? write(fd, order, strlen(order)) : -1;
	int error = errno;
	if (fd >= 0)
		close(fd);
	if (n >= 0)
		return 0;
	if (error == EBUSY)
		cli_error("%s: a scrub is running already; --stop ends it", mount);
	else if (error == EACCES || error == EPERM)
		cli_error("%s: %s: a scrub needs root", path, strerror(error));
	else
		cli_error("%s: %s", path, strerror(error));
	return -error;
}

/* The object "scrub" of the status, a new reference. */
static int read_status(const char *mount, json_t **out)
{
	json_t *status;
	int rc = mount_status(mount, &status);

	if (rc)
		return rc;
	*out = json_incref(json_object_get(status, "scrub"));
	json_decref(status);
	if (*out)
		return 0;
	cli_error("%s: the daemon is of a version that cannot scrub", mount);
	return -ENOSYS;
}

static bool is_in_state(const json_t *scrub, const char *state)
{
	const char *text = status_text(scrub, "state");

	return text && !strcmp(text, state);
}

/* Until it is not running any more; *out is its last status. */
static int wait_end(const struct scrub_options *o, bool shows, json_t **out)
{
	struct bar bar;
	bool has_told = false;
	int rc;

	bar_init(&bar, shows);
	while (!(rc = read_status(o->mount, out)) && is_in_state(*out, "running")) {
		uint64_t checked = 0, frames = 0;
		status_number(*out, "checked", &checked);
		status_number(*out, "frames", &frames);
		bar_update(&bar, "scrub: frames", checked, frames);
		json_decref(*out);
		if (is_interrupted && !has_told) {
			has_told = true;
			rc = send_order(o->mount, "scrub stop\n");
		}
		if (rc)
			break;
		poll(NULL, 0, POLL_MS);
	}
	bar_wipe(&bar);
	return rc;
}

static void print_result(const char *mount, const json_t *scrub)
{
	uint64_t checked = 0, bytes = 0, bad = 0, ms = 0, without = 0;
	char n[TEXT_BYTES], b[TEXT_BYTES], size[TEXT_BYTES], time[TEXT_BYTES];
	const char *state = status_text(scrub, "state");

	status_number(scrub, "checked", &checked);
	status_number(scrub, "checked_bytes", &bytes);
	status_number(scrub, "bad", &bad);
	status_number(scrub, "elapsed_ms", &ms);
	status_number(scrub, "without_checksum", &without);
	printf("%s: scrub %s: %s frames, %s in %s, %s bad copies dropped\n", mount,
	       state ? state : "unknown", text_count(checked, n),
	       format_size(bytes, size, sizeof(size)), text_duration((double)ms / 1000, time),
	       text_count(bad, b));
	if (without)
		printf("%s of them have no checksums yet: their size alone was checked\n",
		       text_count(without, n));
}

static int scrub_parse(const struct command *cmd, int argc, char **argv, struct scrub_options *o,
		       struct common_options *options)
{
	enum { OPTION_RATE = OPTION_OWN, OPTION_DETACH, OPTION_STOP };
	static const struct option known[] = {COMMON_OPTIONS,
					      MOUNT_OPTION,
					      {"rate", required_argument, NULL, OPTION_RATE},
					      {"detach", no_argument, NULL, OPTION_DETACH},
					      {"stop", no_argument, NULL, OPTION_STOP},
					      {0}};
	int value, rc;

	while ((value = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (value == OPTION_RATE) {
			char *per_second = strstr(optarg, "/s");
			if (per_second && !per_second[2])
				*per_second = '\0';
			if (parse_size(optarg, &o->rate_bytes) || !o->rate_bytes)
				return usage_error(cmd, "--rate: '%s' is not a size", optarg);
		} else if (value == OPTION_DETACH) {
			o->detaches = true;
		} else if (value == OPTION_STOP) {
			o->stops = true;
		} else if ((rc = common_option(cmd, value, options)) >= 0) {
			return rc;
		}
	}
	return common_operands(cmd, argc, argv, 0, 1);
}

static int scrub_order(const struct scrub_options *o)
{
	char order[64] = "scrub\n";

	if (o->stops)
		return send_order(o->mount, "scrub stop\n");
	if (o->rate_bytes)
		snprintf(order, sizeof(order), "scrub %llu\n", (unsigned long long)o->rate_bytes);
	return send_order(o->mount, order);
}

int run_scrub(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	struct scrub_options o = {.rate_bytes = 0};
	struct sigaction action = {.sa_handler = on_interrupt};
	json_t *scrub;
	int rc = scrub_parse(cmd, argc, argv, &o, &options);

	if (rc >= 0)
		return rc;
	/* Before it begins: Ctrl-C ends the scrub, not only this program. */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (mount_find(options.mount, argv[optind], o.mount) || scrub_order(&o))
		return CLI_FAILED;
	rc = o.detaches ? read_status(o.mount, &scrub) : wait_end(&o, !options.json, &scrub);
	if (rc)
		return CLI_FAILED;
	uint64_t bad = 0;
	status_number(scrub, "bad", &bad);
	bool is_as_told = is_in_state(scrub, "finished") || o.detaches || o.stops;
	rc = is_as_told && !bad ? CLI_OK : CLI_FAILED;
	if (options.json)
		return print_json(scrub, rc);
	print_result(o.mount, scrub);
	json_decref(scrub);
	return rc;
}
