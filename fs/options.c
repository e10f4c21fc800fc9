/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/host_port.h"
#include "base/parse.h"
#include "mcfs/directory.h"
#include "mcfs/tier.h"
#include "mcfs/transport.h"

#define MIN_DRAM_BYTES (8ull << 20)

static int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int usage_error(const char *fmt, ...)
{
	va_list args;

	fputs("mooncakefs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputs(" (see mooncakefs --help)\n", stderr);
	return EXIT_USAGE;
}

static void set_string(char **slot, const char *value)
{
	free(*slot);
	*slot = strdup(value);
}

/* ---- one setter per option: value is never NULL; returns an EXIT_ code ---- */

static int set_dram(struct options *o, const char *value)
{
	if (parse_size(value, &o->dram_bytes))
		return usage_error("option dram=%s: not a size like 512M or 64G", value);
	if (o->dram_bytes < MIN_DRAM_BYTES)
		return usage_error("option dram=%s: at least 8M is needed", value);
	return EXIT_OK;
}

/* DIR[:SIZE]; a colon before a slash belongs to the name. */
static int set_ssd(struct options *o, const char *value)
{
	autofree char *dir = strdup(value);
	char *colon = strrchr(dir, ':');
	uint64_t bytes = 0;

	if (colon && colon[1] && !strchr(colon, '/')) {
		if (parse_size(colon + 1, &bytes) || !bytes)
			return usage_error("option ssd=%s: \"%s\" is not a size", value, colon + 1);
		*colon = '\0';
	}
	if (*dir != '/')
		return usage_error("option ssd=%s: the directory must be an absolute path", value);
	for (size_t len = strlen(dir); len > 1 && dir[len - 1] == '/'; len--)
		dir[len - 1] = '\0';
	for (uint32_t k = 0; k < o->n_ssds; k++)
		if (!strcmp(o->ssds[k].dir, dir))
			return usage_error("option ssd=%s: this directory is given twice", value);
	if (o->n_ssds == OPTIONS_MAX_SSDS)
		return usage_error("option ssd=%s: more than %d directories", value,
				   OPTIONS_MAX_SSDS);
	o->ssds[o->n_ssds].bytes = bytes;
	set_string(&o->ssds[o->n_ssds++].dir, dir);
	return EXIT_OK;
}

static int set_writeback(struct options *o, const char *value)
{
	static const char *const modes[] = { [WRITEBACK_EVICT] = "evict",
					     [WRITEBACK_SECOND] = "second",
					     [WRITEBACK_ALWAYS] = "always" };

	for (size_t k = 0; k < sizeof(modes) / sizeof(*modes); k++)
		if (!strcmp(value, modes[k])) {
			o->writeback = (enum writeback_mode)k;
			return EXIT_OK;
		}
	return usage_error("option writeback=%s: evict, second or always", value);
}

static int set_writeback_rate(struct options *o, const char *value)
{
	if (parse_size(value, &o->writeback_rate))
		return usage_error("option writeback_rate=%s: not a size like 200M (bytes per second)",
				   value);
	return EXIT_OK;
}

static int set_state(struct options *o, const char *value)
{
	if (*value != '/')
		return usage_error("option state=%s: must be an absolute path", value);
	set_string(&o->state_dir, value);
	return EXIT_OK;
}

static int set_node(struct options *o, const char *value)
{
	if (!*value || strlen(value) > 64 || strpbrk(value, "\"\\ \t"))
		return usage_error("option node=%s: 1 to 64 characters without blanks or quotes", value);
	set_string(&o->node, value);
	return EXIT_OK;
}

static int set_log(struct options *o, const char *value)
{
	set_string(&o->log_target, value);
	return EXIT_OK;
}

static int set_metrics(struct options *o, const char *value)
{
	char host[HOST_BYTES], port[PORT_BYTES];

	if (host_port_split(value, host, port))
		return usage_error("option metrics=%s: not HOST:PORT, like localhost:9100", value);
	set_string(&o->metrics_address, value);
	return EXIT_OK;
}

static int set_directory(struct options *o, const char *value)
{
	const char *at = strrchr(value, '@');

	/* What is before the @ is not shown: it may be a password. */
	if (directory_url_check(value))
		return usage_error("option directory=%s%s: not redis://[[USER:]PASSWORD@]HOST[:PORT][/DB]",
				   at ? "..." : "", at ? at : value);
	set_string(&o->directory, value);
	return EXIT_OK;
}

/* Unlike host_port_split, port 0 will do: any free one. */
static int set_address(char **slot, const char *option, const char *value)
{
	char host[HOST_BYTES], port[PORT_BYTES];
	size_t len = strlen(value);
	bool is_any_port = len > 2 && !strcmp(value + len - 2, ":0");
	autofree char *with_port = NULL;

	if (asprintf(&with_port, "%.*s:1", (int)(len - 2), value) < 0)
		abort();
	if (host_port_split(is_any_port ? with_port : value, host, port))
		return usage_error("option %s=%s: not HOST:PORT, like 10.0.0.1:7400 or [::1]:7400", option, value);
	set_string(slot, value);
	return EXIT_OK;
}

static int set_listen(struct options *o, const char *value)
{
	return set_address(&o->listen, "listen", value);
}

static int set_advertise(struct options *o, const char *value)
{
	return set_address(&o->advertise, "advertise", value);
}

static int set_key(struct options *o, const char *value)
{
	if (*value != '/')
		return usage_error("option key=%s: must be an absolute path", value);
	set_string(&o->key_file, value);
	return EXIT_OK;
}

static int set_cluster(struct options *o, const char *value)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (strlen(value) > 63 || value[strspn(value, allowed)])
		return usage_error("option cluster=%s: at most 63 letters, digits, '.', '_' and '-'", value);
	set_string(&o->cluster, value);
	return EXIT_OK;
}

static int set_rdma_device(struct options *o, const char *value)
{
	set_string(&o->rdma_device, value);
	return EXIT_OK;
}

static int set_transport(struct options *o, const char *value)
{
	if (strcmp(value, "auto") && strcmp(value, "tcp") && strcmp(value, "rdma"))
		return usage_error("option transport=%s: auto, tcp or rdma", value);
	if (strcmp(value, "auto") && !transport_find(value))
		return usage_error("option transport=%s: this build has no RDMA (libibverbs and librdmacm)", value);
	set_string(&o->transport, value);
	return EXIT_OK;
}

static int set_max_objects(struct options *o, const char *value)
{
	if (parse_u64(value, 16, UINT32_MAX, &o->max_objects))
		return usage_error("option max_objects=%s: a number from 16 to 4294967295", value);
	return EXIT_OK;
}

static int set_space_wait(struct options *o, const char *value)
{
	uint64_t seconds;

	if (parse_u64(value, 0, 3600, &seconds))
		return usage_error("option space_wait=%s: seconds, 0 to 3600", value);
	o->space_wait_ms = (uint32_t)seconds * 1000;
	return EXIT_OK;
}

static int set_passthrough(struct options *o, const char *value)
{
	if (strcmp(value, "auto") && strcmp(value, "off"))
		return usage_error("option passthrough=%s: auto or off", value);
	o->passthrough_off = !strcmp(value, "off");
	return EXIT_OK;
}

static int set_allow_other(struct options *o, const char *value)
{
	(void)value;
	o->allow_other = true;
	return EXIT_OK;
}

static int set_nonempty(struct options *o, const char *value)
{
	(void)value;
	o->nonempty = true;
	return EXIT_OK;
}

static const struct option_row {
	const char *name;
	bool takes_value;
	int (*set)(struct options *o, const char *value);
	const char *help;
} rows[] = {
	{ "dram", true, set_dram, "SIZE     DRAM budget (default: a quarter of the available memory)" },
	{ "ssd", true, set_ssd,
	  "DIR[:SIZE] a disk's directory, repeatable (default: STATE/ssd, 9/10 of its free space)" },
	{ "writeback", true, set_writeback,
	  "evict|second|always  when objects are copied to disk (default: evict)" },
	{ "writeback_rate", true, set_writeback_rate,
	  "SIZE     bytes per second of that, 0: no limit (default: 0)" },
	{ "state", true, set_state, "DIR      catalog and DRAM frames (default: /var/lib/mooncakefs)" },
	{ "node", true, set_node, "NAME     this node's name (default: the host name)" },
	{ "directory", true, set_directory,
	  "URL      redis://[[USER:]PASSWORD@]HOST[:PORT][/DB] of the cluster (default: this node is alone)" },
	{ "listen", true, set_listen, "HOST:PORT where peers connect to, needed with directory=; port 0: any" },
	{ "advertise", true, set_advertise, "HOST:PORT what peers are told instead (default: what listen has bound)" },
	{ "key", true, set_key, "FILE     cluster key, 64 hex digits; needed unless listen is a loopback address" },
	{ "cluster", true, set_cluster, "NAME     which cluster of that directory (default: mooncake)" },
	{ "transport", true, set_transport, "auto|tcp|rdma how bytes move between nodes (default: auto)" },
	{ "rdma_device", true, set_rdma_device, "NAME     the RDMA device to use, of several (default: what serves listen=)" },
	{ "passthrough", true, set_passthrough, "auto|off  off: serve every read by direct_io" },
	{ "max_objects", true, set_max_objects, "N        bound on objects (default: dram / 4 KiB + ssd / 64 KiB)" },
	{ "space_wait", true, set_space_wait,
	  "SECONDS  how long a write waits for space before ENOSPC (default: 5)" },
	{ "log", true, set_log, "stderr|syslog|FILE[:LEVEL]  error, warn, info, debug or trace" },
	{ "metrics", true, set_metrics, "HOST:PORT metrics also at http://HOST:PORT/metrics" },
	{ "allow_other", false, set_allow_other, "other users may use the mount" },
	{ "nonempty", false, set_nonempty, "mount over a directory that has entries" },
};

/* Options of the kernel's mount(2), handed on as they are. */
static const char *const kernel_flags[] = { "ro",     "rw",      "suid",    "nosuid",
					    "dev",    "nodev",   "exec",    "noexec",
					    "atime",  "noatime", "dirsync", "sync",
					    "async",  "nodiratime", "relatime" };

static void add_fuse_opt(struct options *o, const char *text)
{
	char *joined = NULL;

	if (asprintf(&joined, "%s%s%s", o->fuse_opts ? o->fuse_opts : "", o->fuse_opts ? "," : "",
		     text) < 0)
		abort();
	free(o->fuse_opts);
	o->fuse_opts = joined;
}

static int set_option(struct options *o, char *text)
{
	char *value = strchr(text, '=');
	size_t name_len = value ? (size_t)(value - text) : strlen(text);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct option_row *row = &rows[i];
		if (strlen(row->name) != name_len || strncmp(row->name, text, name_len) != 0)
			continue;
		if (row->takes_value && (!value || !value[1]))
			return usage_error("option %s needs a value", row->name);
		if (!row->takes_value && value)
			return usage_error("option %s takes no value", row->name);
		return row->set(o, value ? value + 1 : "");
	}
	for (size_t i = 0; i < sizeof(kernel_flags) / sizeof(*kernel_flags); i++)
		if (!strcmp(text, kernel_flags[i])) {
			add_fuse_opt(o, text);
			return EXIT_OK;
		}
	if (!strncmp(text, "fsname=", 7)) {
		add_fuse_opt(o, text);
		return EXIT_OK;
	}
	return usage_error("unknown option \"%s\"", text);
}

static int set_option_list(struct options *o, const char *list)
{
	autofree char *copy = strdup(list);
	char *save = NULL;

	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		int rc = set_option(o, t);
		if (rc)
			return rc;
	}
	return EXIT_OK;
}

static int read_config(struct options *o, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	int rc = EXIT_OK, n = 0;

	if (!f)
		return usage_error("configuration file %s: %s", path, strerror(errno));
	errno = 0;
	while (rc == EXIT_OK && getline(&line, &cap, f) >= 0) {
		n++;
		line[strcspn(line, "#\r\n")] = '\0';
		char *text = line + strspn(line, " \t");
		for (size_t len = strlen(text); len && strchr(" \t", text[len - 1]); len--)
			text[len - 1] = '\0';
		if (*text && set_option(o, text)) {
			fprintf(stderr, "mooncakefs: in configuration file %s, line %d\n", path, n);
			rc = EXIT_USAGE;
		}
	}
	if (rc == EXIT_OK && ferror(f))
		rc = usage_error("configuration file %s: %s", path, strerror(errno));
	free(line);
	fclose(f);
	return rc;
}

/* One per 4 KiB of dram, and one per 64 KiB of ssd that was given; one without a size counts as 8 drams. */
static uint64_t default_max_objects(const struct options *o)
{
	uint64_t n = o->dram_bytes / 4096;

	for (uint32_t k = 0; o->has_ssd && k < o->n_ssds; k++)
		n += (o->ssds[k].bytes ? o->ssds[k].bytes : o->dram_bytes * 8) / 65536;
	return n < UINT32_MAX ? n : UINT32_MAX;
}

static int fill_defaults(struct options *o)
{
	char host[HOST_NAME_MAX + 1] = "node";

	if (!o->state_dir)
		set_string(&o->state_dir, "/var/lib/mooncakefs");
	o->has_ssd = o->n_ssds > 0;
	if (!o->n_ssds && asprintf(&o->ssds[0].dir, "%s/ssd", o->state_dir) < 0)
		return EXIT_RUNTIME;
	if (!o->n_ssds)
		o->n_ssds = 1;
	if (!o->node) {
		gethostname(host, sizeof(host) - 1);
		set_string(&o->node, host);
	}
	if (o->directory && !o->listen)
		return usage_error("option directory needs listen=HOST:PORT too");
	if (!o->directory && (o->listen || o->advertise || o->key_file || o->cluster))
		return usage_error("option %s needs directory= too",
				   o->listen ? "listen" : o->advertise ? "advertise" : o->key_file ? "key" : "cluster");
	if (!o->cluster)
		set_string(&o->cluster, "mooncake");
	if (!o->transport)
		set_string(&o->transport, "auto");
	if (!o->log_target)
		set_string(&o->log_target, o->foreground ? "stderr" : "syslog");
	if (!o->dram_bytes)
		o->dram_bytes = dram_budget_default();
	if (!o->max_objects)
		o->max_objects = default_max_objects(o);
	return EXIT_OK;
}

static int set_mountpoint(struct options *o, const char *text)
{
	if (*text == '/') {
		set_string(&o->mountpoint, text);
	} else {
		char cwd[PATH_MAX];
		if (!getcwd(cwd, sizeof(cwd)) || asprintf(&o->mountpoint, "%s/%s", cwd, text) < 0)
			return usage_error("mount point %s: %s", text, strerror(errno));
	}
	for (size_t len = strlen(o->mountpoint); len > 1 && o->mountpoint[len - 1] == '/'; len--)
		o->mountpoint[len - 1] = '\0';
	return EXIT_OK;
}

int options_parse(int argc, char **argv, struct options *o)
{
	int opt, rc = EXIT_OK;

	*o = (struct options){ .space_wait_ms = 5000 };
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help"))
			o->show_help = true;
		else if (!strcmp(argv[i], "--version"))
			o->show_version = true;
	}
	if (o->show_help || o->show_version)
		return EXIT_OK;
	opterr = 0;
	while (rc == EXIT_OK && (opt = getopt(argc, argv, "fhVc:o:")) != -1) {
		switch (opt) {
		case 'f': o->foreground = true; break;
		case 'h': o->show_help = true; return EXIT_OK;
		case 'V': o->show_version = true; return EXIT_OK;
		case 'c': rc = read_config(o, optarg); break;
		case 'o': rc = set_option_list(o, optarg); break;
		default: return usage_error("unknown option or missing value: -%c", optopt);
		}
	}
	if (rc)
		return rc;
	if (optind >= argc)
		return usage_error("mount point missing");
	if (optind + 1 < argc)
		return usage_error("more than one mount point: \"%s\"", argv[optind + 1]);
	rc = set_mountpoint(o, argv[optind]);
	return rc ? rc : fill_defaults(o);
}

void options_fini(struct options *o)
{
	free(o->mountpoint);
	free(o->state_dir);
	for (uint32_t k = 0; k < o->n_ssds; k++)
		free(o->ssds[k].dir);
	free(o->node);
	free(o->log_target);
	free(o->metrics_address);
	free(o->directory);
	free(o->listen);
	free(o->advertise);
	free(o->key_file);
	free(o->cluster);
	free(o->transport);
	free(o->rdma_device);
	free(o->fuse_opts);
	*o = (struct options){ 0 };
}

void options_print_help(void)
{
	printf("usage: mooncakefs [-f] [-c FILE] [-o OPTION,...] MOUNTPOINT\n\n"
	       "Mounts LLM KV-cache objects and model weights as files, at memory speed.\n"
	       "Returns when the mount answers.\n\n"
	       "  -f        stay in the foreground, log to stderr\n"
	       "  -c FILE   read options from FILE, one per line\n"
	       "  -h, -V    this help, the version\n\nOptions (-o):\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		printf("  %s%s%s\n", rows[i].name, rows[i].takes_value ? "=" : "  ", rows[i].help);
	printf("  ro, nosuid, nodev, noexec, noatime, ...  as for mount(8)\n\n"
	       "Exit status: 0 mounted, 1 runtime error, 2 usage error. See mooncakefs(8).\n");
}
