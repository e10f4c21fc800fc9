/* SPDX-License-Identifier: Apache-2.0 */
#include "control/prom.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/utf8.h"

void prom_family(FILE *f, const char *name, enum prom_type type, const char *help)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};

	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

static void name_and_labels(FILE *f, const char *name, const char *labels)
{
	fputs(name, f);
	if (*labels)
		fprintf(f, "{%s}", labels);
}

void prom_sample(FILE *f, const char *name, const char *labels, uint64_t value)
{
	name_and_labels(f, name, labels);
	fprintf(f, " %" PRIu64 "\n", value);
}

void prom_sample_real(FILE *f, const char *name, const char *labels, double value)
{
	name_and_labels(f, name, labels);
	fprintf(f, " %.15g\n", value);
}

void prom_single(FILE *f, const char *name, enum prom_type type, const char *help, uint64_t value)
{
	prom_family(f, name, type, help);
	prom_sample(f, name, "", value);
}

void prom_label(char *labels, const char *name, const char *value)
{
	char clean[PATH_MAX];
	size_t start = strlen(labels), used = start;

	utf8_clean(value, clean, sizeof(clean));
	used += (size_t)snprintf(labels + used, PROM_LABELS_BYTES - used, "%s%s=\"",
				 start ? "," : "", name);
	if (used + 2 > PROM_LABELS_BYTES) {
		labels[start] = '\0';
		return;
	}
	for (const char *p = clean; *p; p++) {
		/* The longest that may follow is an escape, the quote and the NUL. */
		if (used + 4 > PROM_LABELS_BYTES) {
			labels[start] = '\0';
			return;
		}
		if (*p == '\\' || *p == '"' || *p == '\n')
			labels[used++] = '\\';
		labels[used++] = (char)(*p == '\n' ? 'n' : *p);
	}
	labels[used++] = '"';
	labels[used] = '\0';
}
