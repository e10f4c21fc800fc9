/* SPDX-License-Identifier: Apache-2.0 */
#include "control/prom.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- fixture ---- */

static FILE *f;
static char *text;
static size_t len;

static void setup(void)
{
	f = open_memstream(&text, &len);
	cr_assert(f);
}

static void teardown(void)
{
	fclose(f);
	free(text);
}

TestSuite(prom, .init = setup, .fini = teardown);

static const char *written(void)
{
	fflush(f);
	return text;
}

/* ---- success ---- */

Test(prom, writes_a_family)
{
	char labels[PROM_LABELS_BYTES] = "";

	prom_label(labels, "tier", "dram");
	prom_label(labels, "path", "/a b");
	prom_family(f, "x_bytes", PROM_GAUGE, "of x");
	prom_sample(f, "x_bytes", labels, UINT64_MAX);
	prom_sample_real(f, "x_bytes", "", 0.25);

	cr_expect_str_eq(written(), "# HELP x_bytes of x\n# TYPE x_bytes gauge\n"
				    "x_bytes{tier=\"dram\",path=\"/a b\"} 18446744073709551615\n"
				    "x_bytes 0.25\n");
}

Test(prom, escapes_label_values)
{
	char labels[PROM_LABELS_BYTES] = "";

	prom_label(labels, "path", "a\"b\\c\nd\xff\xc3\xbc");

	cr_expect_str_eq(labels, "path=\"a\\\"b\\\\c\\nd?\xc3\xbc\"");
}

/* ---- failure ---- */

Test(prom, leaves_out_a_label_that_does_not_fit)
{
	char labels[PROM_LABELS_BYTES] = "", path[PATH_MAX];

	memset(path, '"', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	prom_label(labels, "a", path);
	size_t one = strlen(labels);
	cr_expect_eq(one, 2 * (sizeof(path) - 1) + 4);
	prom_label(labels, "b", path);
	cr_expect_eq(strlen(labels), one);
	prom_label(labels, "c", "fits");
	cr_expect_str_eq(labels + one, ",c=\"fits\"");
}
