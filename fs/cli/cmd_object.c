/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakectl stat, lookup, pin, unpin, class: the extended attributes of objects.
 *
 * Every path is tried; the ones that fail are told and make the exit status 1.
 */
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define XATTR_PREFIX "user.mooncake."
#define XATTR_MAX 65536 /* the kernel's limit: 7,281 MiB of checksums */

static const char *const attributes[] = {"tier",   "state", "eta_us", "holders", "version",
					 "crc32c", "class", "pin",    "ttl_s",	 "hint"};

#define N_ATTRIBUTES (sizeof(attributes) / sizeof(*attributes))

/* NULL when the path does not have it, for whatever reason. */
static const char *attribute_get(const char *path, const char *name, char buf[XATTR_MAX])
{
	char full[64];

	snprintf(full, sizeof(full), XATTR_PREFIX "%s", name);
	ssize_t n = getxattr(path, full, buf, XATTR_MAX - 1);
	if (n < 0)
		return NULL;
	buf[n] = '\0';
	return buf;
}

/* Numbers that fit a double come as numbers; versions and checksums stay text. */
static json_t *attribute_json(const char *path, const char *name)
{
	char buf[XATTR_MAX], *end;
	const char *value = attribute_get(path, name, buf);

	if (!value)
		return json_null();
	if (!strcmp(name, "eta_us") || !strcmp(name, "ttl_s") || !strcmp(name, "pin")) {
		errno = 0;
		long long number = strtoll(value, &end, 10);
		if (*value && !*end && !errno)
			return json_integer(number);
	}
	return text_json(value);
}

static const char *type_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	default:
		return "other";
	}
}

static json_t *failure_json(const char *path, int error)
{
	return json_pack("{s:o, s:s}", "path", text_json(path), "error", strerror(error));
}

static json_t *stat_json(const char *path, const struct stat *st)
{
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", st->st_mode & 07777);
	json_t *object = json_pack("{s:o, s:s, s:I, s:s, s:I, s:I, s:I, s:I}", "path",
				   text_json(path), "type", type_name(st->st_mode), "size_bytes",
				   (json_int_t)st->st_size, "mode", mode, "uid",
				   (json_int_t)st->st_uid, "gid", (json_int_t)st->st_gid, "inode",
				   (json_int_t)st->st_ino, "mtime", (json_int_t)st->st_mtime);
	for (size_t i = 0; object && i < N_ATTRIBUTES; i++)
		json_object_set_new(object, attributes[i], attribute_json(path, attributes[i]));
	return object;
}

static void stat_print(const char *path, const struct stat *st)
{
	static const struct table_column columns[] = {{0}, {.is_elastic = true}};
	char cell[64], size[TEXT_BYTES], value[XATTR_MAX];
	struct tm tm;
	struct table *t = table_create(columns, 2);

	if (!t)
		return;
	table_row(t, "path", path);
	snprintf(cell, sizeof(cell), "%s, mode %04o, owner %u:%u", type_name(st->st_mode),
		 st->st_mode & 07777, st->st_uid, st->st_gid);
	table_row(t, "type", cell);
	snprintf(cell, sizeof(cell), "%s bytes", text_count((uint64_t)st->st_size, size));
	table_row(t, "size", cell);
	if (localtime_r(&st->st_mtime, &tm) && strftime(cell, sizeof(cell), "%F %T %z", &tm))
		table_row(t, "modified", cell);
	for (size_t i = 0; i < N_ATTRIBUTES; i++)
		table_row(t, attributes[i], attribute_get(path, attributes[i], value));
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

int run_stat(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	int exit_code = CLI_OK;
	int rc = common_parse(cmd, argc, argv, false, 1, -1, &options);

	if (rc >= 0)
		return rc;
	json_t *all = json_array();
	for (int i = optind; i < argc; i++) {
		struct stat st;
		if (stat(argv[i], &st)) {
			int error = errno;
			cli_error("%s: %s", argv[i], strerror(error));
			json_array_append_new(all, failure_json(argv[i], error));
			exit_code = CLI_FAILED;
		} else if (options.json) {
			json_array_append_new(all, stat_json(argv[i], &st));
		} else {
			if (i > optind)
				putchar('\n');
			stat_print(argv[i], &st);
		}
	}
	if (options.json)
		return print_json(all, exit_code);
	json_decref(all);
	return exit_code;
}

static json_t *lookup_json(const char *path, bool exists)
{
	struct stat st;

	json_t *object = json_pack("{s:o, s:b}", "path", text_json(path), "exists", exists);
	if (!object)
		return NULL;
	for (size_t i = 0; i < 3; i++) /* tier, state, eta_us */
		json_object_set_new(object, attributes[i],
				    exists ? attribute_json(path, attributes[i]) : json_null());
	json_object_set_new(object, "size_bytes",
			    exists && !stat(path, &st) ? json_integer((json_int_t)st.st_size) :
							 json_null());
	return object;
}

static void lookup_row(struct table *t, const char *path, bool exists)
{
	char state[XATTR_MAX], tier[XATTR_MAX], eta[XATTR_MAX], ready[TEXT_BYTES], *end;

	if (!exists) {
		table_row(t, "missing", NULL, NULL, path);
		return;
	}
	const char *eta_us = attribute_get(path, "eta_us", eta);
	if (eta_us) {
		unsigned long long us = strtoull(eta_us, &end, 10);
		if (*eta_us && !*end)
			eta_us = us ? text_latency(us * 1000, ready) : "now";
	}
	const char *known = attribute_get(path, "state", state);
	table_row(t, known ? known : "exists", attribute_get(path, "tier", tier), eta_us, path);
}

int run_lookup(const struct command *cmd, int argc, char **argv)
{
	static const struct table_column columns[] = {
		{.title = "STATE"},
		{.title = "TIER"},
		{.title = "READY IN", .is_right = true},
		{.title = "PATH", .is_elastic = true},
	};
	struct common_options options = {0};
	int exit_code = CLI_OK;
	int rc = common_parse(cmd, argc, argv, false, 1, -1, &options);

	if (rc >= 0)
		return rc;
	json_t *all = json_array();
	struct table *t = table_create(columns, 4);
	for (int i = optind; t && i < argc; i++) {
		bool exists = !access(argv[i], F_OK);
		if (!exists) {
			exit_code = CLI_FAILED;
			if (errno != ENOENT && errno != ENOTDIR)
				cli_error("%s: %m", argv[i]);
		}
		if (options.json)
			json_array_append_new(all, lookup_json(argv[i], exists));
		else
			lookup_row(t, argv[i], exists);
	}
	if (!options.json && t)
		table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
	if (options.json)
		return print_json(all, exit_code);
	json_decref(all);
	return exit_code;
}

/* Sets one attribute on the paths from argv[first] on. */
static int set_all(const char *name, const char *value, int argc, char **argv, int first,
		   bool as_json)
{
	char full[64];
	int exit_code = CLI_OK;
	json_t *all = json_array();

	snprintf(full, sizeof(full), XATTR_PREFIX "%s", name);
	for (int i = first; i < argc; i++) {
		if (!setxattr(argv[i], full, value, strlen(value), 0)) {
			json_array_append_new(all, json_pack("{s:o, s:s}", "path",
							     text_json(argv[i]), name, value));
			continue;
		}
		int error = errno;
		cli_error("%s: cannot set %s to %s: %s", argv[i], full, value, strerror(error));
		json_array_append_new(all, failure_json(argv[i], error));
		exit_code = CLI_FAILED;
	}
	if (as_json)
		return print_json(all, exit_code);
	json_decref(all);
	return exit_code;
}

int run_pin(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	int rc = common_parse(cmd, argc, argv, false, 1, -1, &options);

	if (rc >= 0)
		return rc;
	return set_all("pin", !strcmp(cmd->name, "pin") ? "1" : "0", argc, argv, optind,
		       options.json);
}

int run_class(const struct command *cmd, int argc, char **argv)
{
	static const char *const classes[] = {"cache", "keep", "pinned"};
	struct common_options options = {0};
	int rc = common_parse(cmd, argc, argv, false, 2, -1, &options);

	if (rc >= 0)
		return rc;
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (!strcmp(argv[optind], classes[i]))
			return set_all("class", classes[i], argc, argv, optind + 1, options.json);
	return usage_error(cmd, "class: unknown class '%s', expected cache, keep or pinned",
			   argv[optind]);
}
