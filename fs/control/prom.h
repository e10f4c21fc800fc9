/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prom: writes the Prometheus text exposition format, version 0.0.4.
 * https://prometheus.io/docs/instrumenting/exposition_formats/
 *
 * A family is its HELP and TYPE lines followed by all of its samples, in one piece and once. Names
 * are given whole. labels is what stands between the braces, as prom_label makes it; "" for none.
 * Thread safety: one stream is used by one thread.
 */
#ifndef MCFS_PROM_H
#define MCFS_PROM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum prom_type { PROM_COUNTER, PROM_GAUGE, PROM_HISTOGRAM };

/* help: one line without backslashes. */
void prom_family(FILE *f, const char *name, enum prom_type type, const char *help);
void prom_sample(FILE *f, const char *name, const char *labels, uint64_t value);
void prom_sample_real(FILE *f, const char *name, const char *labels, double value);

/* A family of one sample without labels. */
void prom_single(FILE *f, const char *name, enum prom_type type, const char *help, uint64_t value);

#define PROM_LABELS_BYTES 9216 /* two paths with every byte escaped, and their names */

/*
 * Appends name="value" to labels (which holds "" at first), escaped, with bytes that are not UTF-8
 * replaced by '?'. labels has PROM_LABELS_BYTES; what does not fit is left out as a whole.
 */
void prom_label(char *labels, const char *name, const char *value);

#endif
