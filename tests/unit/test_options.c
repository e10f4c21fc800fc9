/* SPDX-License-Identifier: Apache-2.0 */
/* options: what each one does, and what is said of a bad one. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

/* ---- fixture ---- */

static struct options o;
static char config[] = "/tmp/mcfs-options-XXXXXX";

static void setup(void)
{
	cr_redirect_stderr();
}

static void teardown(void)
{
	options_fini(&o);
	unlink(config);
}

TestSuite(options, .init = setup, .fini = teardown);

/* ---- helpers ---- */

/* Arguments as of a command line, up to NULL. */
static int parse(const char *first, ...)
{
	char *argv[16] = { "mooncakefs", (char *)(uintptr_t)first };
	int argc = first ? 2 : 1;
	va_list args;

	va_start(args, first);
	while (first && (argv[argc] = va_arg(args, char *)))
		argc++;
	va_end(args);
	options_fini(&o);
	optind = 0; /* getopt begins anew */
	return options_parse(argc, argv, &o);
}

static int parse_opt(const char *opt)
{
	return parse("-o", opt, "/mnt", NULL);
}

static void write_config(const char *text)
{
	int fd = mkstemp(config);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* What has been written to stderr since the last call. */
static const char *said(void)
{
	static char text[8192];
	FILE *f = cr_get_redirected_stderr();
	size_t n = fread(text, 1, sizeof(text) - 1, f);

	text[n] = '\0';
	return text;
}

static void expect_refused(const char *opt)
{
	cr_expect_eq(parse_opt(opt), EXIT_USAGE, "-o %s", opt);
}

/* ---- every option ---- */

Test(options, defaults)
{
	char host[HOST_NAME_MAX + 1] = "";

	gethostname(host, sizeof(host) - 1);
	cr_assert_eq(parse("/mnt", NULL), EXIT_OK);
	cr_expect_str_eq(o.mountpoint, "/mnt");
	cr_expect_str_eq(o.state_dir, "/var/lib/mooncakefs");
	cr_expect_str_eq(o.ssds[0].dir, "/var/lib/mooncakefs/ssd");
	cr_expect_str_eq(o.node, host);
	cr_expect_str_eq(o.log_target, "syslog");
	cr_expect_gt(o.dram_bytes, 0);
	cr_expect_eq(o.ssds[0].bytes, 0);
	cr_expect_eq(o.max_objects, o.dram_bytes / 4096);
	cr_expect_eq(o.space_wait_ms, 5000);
	cr_expect_eq(o.n_ssds, 1);
	cr_expect_eq(o.writeback, WRITEBACK_EVICT);
	cr_expect_eq(o.writeback_rate, 0);
	cr_expect_not(o.passthrough_off || o.allow_other || o.nonempty || o.foreground ||
		      o.show_help || o.show_version || o.plain_dram);
	cr_expect_null(o.fuse_opts);
	cr_expect_null(o.metrics_address);
}

Test(options, each_one_is_taken)
{
	cr_assert_eq(parse("-f", "-o", "dram=64M,ssd=/disk:10G,state=/s", "-o",
			   "node=a-1,passthrough=off,max_objects=1000,space_wait=7", "-o",
			   "log=/var/log/m:debug,allow_other,nonempty", "-o", "metrics=[::1]:9100", "/mnt",
			   NULL), EXIT_OK);
	cr_expect(o.foreground && o.passthrough_off && o.allow_other && o.nonempty);
	cr_expect_eq(o.dram_bytes, 64ull << 20);
	cr_expect_str_eq(o.ssds[0].dir, "/disk");
	cr_expect_eq(o.ssds[0].bytes, 10ull << 30);
	cr_expect_str_eq(o.state_dir, "/s");
	cr_expect_str_eq(o.node, "a-1");
	cr_expect_eq(o.max_objects, 1000);
	cr_expect_eq(o.space_wait_ms, 7000);
	cr_expect_str_eq(o.log_target, "/var/log/m:debug");
	cr_expect_str_eq(o.metrics_address, "[::1]:9100");
}

Test(options, some_follow_others)
{
	cr_assert_eq(parse("-f", "-o", "state=/s,dram=8M", "/mnt", NULL), EXIT_OK);
	cr_expect_str_eq(o.ssds[0].dir, "/s/ssd");
	cr_expect_str_eq(o.log_target, "stderr");
	cr_expect_eq(o.max_objects, (8u << 20) / 4096);
	cr_assert_eq(parse_opt("passthrough=off,passthrough=auto"), EXIT_OK);
	cr_expect_not(o.passthrough_off, "the last one counts");
}

Test(options, a_transport_is_one_that_is_built_in)
{
	cr_assert_eq(parse_opt("transport=auto"), EXIT_OK);
	cr_expect_str_eq(o.transport, "auto");
	cr_assert_eq(parse_opt("transport=tcp"), EXIT_OK);
#ifdef MCFS_RDMA
	cr_assert_eq(parse_opt("transport=rdma"), EXIT_OK);
	cr_expect_str_eq(o.transport, "rdma");
#else
	cr_assert_eq(parse_opt("transport=rdma"), EXIT_USAGE);
#endif
	cr_assert_eq(parse_opt("transport=loopback"), EXIT_USAGE, "of tests alone");
}

Test(options, an_ssd_may_have_colons_in_its_name)
{
	cr_assert_eq(parse_opt("ssd=/a:b/c"), EXIT_OK);
	cr_expect_str_eq(o.ssds[0].dir, "/a:b/c");
	cr_expect_eq(o.ssds[0].bytes, 0);
	cr_assert_eq(parse_opt("ssd=/a:b/c:1M"), EXIT_OK);
	cr_expect_str_eq(o.ssds[0].dir, "/a:b/c");
	cr_expect_eq(o.ssds[0].bytes, 1u << 20);
}

Test(options, an_ssd_may_be_given_for_each_disk)
{
	char list[512] = "ssd=/0";

	cr_assert_eq(parse("-o", "ssd=/a:1G,ssd=/b/,dram=8M", "-o", "ssd=/c", "/mnt", NULL),
		     EXIT_OK);
	cr_assert_eq(o.n_ssds, 3);
	cr_expect_str_eq(o.ssds[0].dir, "/a");
	cr_expect_eq(o.ssds[0].bytes, 1u << 30);
	cr_expect_str_eq(o.ssds[1].dir, "/b");
	cr_expect_str_eq(o.ssds[2].dir, "/c");
	cr_expect_eq(o.ssds[2].bytes, 0);
	for (int k = 1; k < OPTIONS_MAX_SSDS; k++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), ",ssd=/%d", k);
	cr_assert_eq(parse_opt(list), EXIT_OK);
	cr_expect_eq(o.n_ssds, OPTIONS_MAX_SSDS);
	strcat(list, ",ssd=/more");
	expect_refused(list);
}

Test(options, a_directory_given_twice_is_named)
{
	cr_assert_eq(parse_opt("ssd=/disk/a:1G,ssd=/disk/b,ssd=/disk/a/"), EXIT_USAGE);
	fflush(stderr);
	const char *text = said();
	cr_expect_not_null(strstr(text, "ssd=/disk/a/: this directory is given twice"), "%s", text);
}

Test(options, a_directory_of_the_cluster_is_a_url_whose_password_stays_unsaid)
{
	expect_refused("listen=127.0.0.1:0,directory=redis://");
	expect_refused("listen=127.0.0.1:0,directory=redis://h:x");
	expect_refused("listen=127.0.0.1:0,directory=http://h");
	cr_assert_eq(parse_opt("listen=127.0.0.1:0,directory=redis://:secret@h:x"), EXIT_USAGE);
	fflush(stderr);
	const char *text = said();
	cr_expect_not_null(strstr(text, "option directory=...@h:x"), "%s", text);
	cr_expect_null(strstr(text, "secret"), "%s", text);
	cr_assert_eq(parse_opt("listen=127.0.0.1:0,directory=redis://:secret@h:1"), EXIT_OK);
}

Test(options, write_back_has_a_mode_and_a_rate)
{
	cr_assert_eq(parse_opt("writeback=second,writeback_rate=200M"), EXIT_OK);
	cr_expect_eq(o.writeback, WRITEBACK_SECOND);
	cr_expect_eq(o.writeback_rate, 200u << 20);
	cr_assert_eq(parse_opt("writeback=always,writeback_rate=0"), EXIT_OK);
	cr_expect_eq(o.writeback, WRITEBACK_ALWAYS);
	cr_expect_eq(o.writeback_rate, 0);
}

Test(options, options_of_the_kernel_are_handed_on)
{
	cr_assert_eq(parse_opt("ro,dram=8M,nosuid,fsname=x"), EXIT_OK);
	cr_expect_str_eq(o.fuse_opts, "ro,nosuid,fsname=x");
}

Test(options, mount_points_become_absolute)
{
	char cwd[PATH_MAX], want[PATH_MAX + 8];

	cr_assert_not_null(getcwd(cwd, sizeof(cwd)));
	snprintf(want, sizeof(want), "%s/here", strcmp(cwd, "/") ? cwd : "");
	cr_assert_eq(parse("here", NULL), EXIT_OK);
	cr_expect_str_eq(o.mountpoint, want);
	cr_assert_eq(parse("/mnt///", NULL), EXIT_OK);
	cr_expect_str_eq(o.mountpoint, "/mnt");
	cr_assert_eq(parse("/", NULL), EXIT_OK);
	cr_expect_str_eq(o.mountpoint, "/");
}

Test(options, help_and_version_need_nothing_else)
{
	cr_assert_eq(parse("--help", NULL), EXIT_OK);
	cr_expect(o.show_help);
	cr_assert_eq(parse("-o", "nonsense", "--version", NULL), EXIT_OK);
	cr_expect(o.show_version);
	cr_assert_eq(parse("-h", NULL), EXIT_OK);
	cr_expect(o.show_help);
	cr_assert_eq(parse("-V", NULL), EXIT_OK);
	cr_expect(o.show_version);
}

/* ---- bad ones: status 2 ---- */

Test(options, bad_values_are_refused)
{
	static const char *const bad[] = {
		"dram=", "dram", "dram=x", "dram=-1", "dram=8388607", "dram=1M", "dram=99999999T",
		"ssd=", "ssd=disk", "ssd=/d:0", "ssd=/d:x", "ssd=/a,ssd=/a:1G",
		"ssd=/a,ssd=/b,ssd=/a//", "writeback=", "writeback=never", "writeback_rate=fast",
		"writeback_rate=-1",
		"state=", "state=relative", "node=", "node=a b", "node=a\"b",
		"passthrough=on", "passthrough=", "max_objects=15", "max_objects=4294967296",
		"max_objects=x", "space_wait=3601", "space_wait=-1", "space_wait=1.5", "log=",
		"metrics=", "metrics=9100", "metrics=:9100", "metrics=host:0", "metrics=::1:9100",
		"allow_other=1", "nonempty=yes",
	};

	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		expect_refused(bad[k]);
	char long_node[80] = "node=";
	memset(long_node + 5, 'n', 65);
	expect_refused(long_node);
	long_node[5 + 64] = '\0';
	cr_expect_eq(parse_opt(long_node), EXIT_OK, "64 characters are allowed");
}

Test(options, messages_name_option_and_value)
{
	cr_assert_eq(parse_opt("dram=banana"), EXIT_USAGE);
	fflush(stderr);
	const char *text = said();
	cr_expect_not_null(strstr(text, "dram=banana"), "%s", text);
	cr_expect_not_null(strstr(text, "--help"), "%s", text);
}

Test(options, unknown_ones_are_refused)
{
	expect_refused("drum=8M");
	expect_refused("dramx=8M");
	expect_refused("dra=8M");
	expect_refused("RO");
	cr_expect_eq(parse("-x", "/mnt", NULL), EXIT_USAGE);
	cr_expect_eq(parse("/mnt", "-o", NULL), EXIT_USAGE, "-o without a value");
}

Test(options, there_is_one_mount_point)
{
	cr_expect_eq(parse(NULL), EXIT_USAGE);
	cr_expect_eq(parse("-f", NULL), EXIT_USAGE);
	cr_expect_eq(parse("/a", "/b", NULL), EXIT_USAGE);
}

/* ---- the configuration file ---- */

Test(options, a_file_holds_one_option_a_line)
{
	write_config("# a comment\n\n  dram=16M  # another\n\tallow_other\t\nnode=n1\r\nssd=/d:1G");
	cr_assert_eq(parse("-c", config, "/mnt", NULL), EXIT_OK);
	cr_expect_eq(o.dram_bytes, 16u << 20);
	cr_expect(o.allow_other);
	cr_expect_str_eq(o.node, "n1");
	cr_expect_str_eq(o.ssds[0].dir, "/d");
	cr_expect_eq(o.ssds[0].bytes, 1u << 30);
}

Test(options, what_follows_a_file_overrides_it)
{
	write_config("dram=16M\nnode=n1\n");
	cr_assert_eq(parse("-c", config, "-o", "dram=32M", "/mnt", NULL), EXIT_OK);
	cr_expect_eq(o.dram_bytes, 32u << 20);
	cr_expect_str_eq(o.node, "n1");
}

Test(options, an_error_in_a_file_names_file_and_line)
{
	char where[128];

	write_config("dram=16M\n# fine\nspace_wait=often\nnode=n1\n");
	cr_assert_eq(parse("-c", config, "/mnt", NULL), EXIT_USAGE);
	fflush(stderr);
	const char *text = said();
	snprintf(where, sizeof(where), "%s, line 3", config);
	cr_expect_not_null(strstr(text, where), "%s", text);
	cr_expect_not_null(strstr(text, "space_wait=often"), "%s", text);
}

Test(options, a_file_that_is_missing_is_an_error)
{
	cr_expect_eq(parse("-c", "/nonexistent/mcfs.conf", "/mnt", NULL), EXIT_USAGE);
	fflush(stderr);
	cr_expect_not_null(strstr(said(), "/nonexistent/mcfs.conf"));
}
