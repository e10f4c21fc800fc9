/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many: one directory with very many objects of a few bytes, as make_state also leaves it: object k is
 * called "%07u" and holds k in 8 bytes, zeros after them. What is measured are rates, latencies and what
 * the daemon and the kernel keep in memory for it; each phase is a process of its own, because daemons
 * come and go between them.
 *
 * Phases add rows to m->rows and print them. They return 0 or a negative errno, logged.
 */
#ifndef BENCH_MANY_H
#define BENCH_MANY_H

#include <sys/types.h>

#include "bench_util.h"
#include "job.h"
#include "report.h"

#define MANY_ROWS 16

struct many {
	const char *dir;     /* in the mount */
	const char *raw_dir; /* on a raw tmpfs; create only */
	const char *catalog; /* the daemon's; figures only */
	const char *mode;    /* of the rows: after what */
	pid_t daemon_pid;
	uint32_t n_objects;
	uint32_t n_plain; /* of them made through plain files */
	uint32_t object_bytes;
	uint64_t since_ns; /* CLOCK_REALTIME, when the daemon was started; first_read only */
	struct row rows[MANY_ROWS];
	size_t n_rows;
};

/* The first n_plain through plain files, the rest by batches of a session. The directory is made. */
int many_create(struct many *m);
/* Reads the directory from end to end, twice; all names must be there. */
int many_list(struct many *m);
/* 100,000 names at random, and the same again. */
int many_stat(struct many *m);
/* Tries until an object can be opened and read, for a minute. */
int many_first_read(struct many *m);
/* Memory of the daemon, bytes of the catalog. */
int many_figures(struct many *m);

/* ---- what phases share ---- */

void many_name(uint32_t k, char out[16]);
void many_path(const struct many *m, uint32_t k, char out[JOB_PATH_MAX]);
void many_payload(const struct many *m, uint32_t k, char *out);
/* Adds and prints a row; bar 0: none. p50_us NaN: none. */
void many_add(struct many *m, const char *job, double value, const char *unit, double p50_us,
	      double bar);
/* With the ratio to another side; no bar. */
void many_add_against(struct many *m, const char *job, double value, const char *unit,
		      double p50_us, const char *against, double ratio);
/* Resident memory of the daemon in bytes, 0 when it cannot be told. */
uint64_t many_daemon_rss(const struct many *m);
/* A sample of the mount's metrics, with its labels; NaN when there is none. */
double many_metric(const struct many *m, const char *key);

#endif
