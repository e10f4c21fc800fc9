/* SPDX-License-Identifier: Apache-2.0 */
/* text: numbers and names as people read them. Thread safe. */
#ifndef MCFS_CLI_TEXT_H
#define MCFS_CLI_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_BYTES 32 /* enough for every result below */

/* All of them write to buf and return it. */
char *text_count(uint64_t n, char buf[TEXT_BYTES]);	   /* "1,234,567" */
char *text_latency(uint64_t ns, char buf[TEXT_BYTES]);	   /* "12.3 us", "4.56 ms", "7.89 s" */
char *text_duration(double seconds, char buf[TEXT_BYTES]); /* "12 s", "3 min 04 s", "2 h 05 min" */
char *text_percent(uint64_t part, uint64_t whole, char buf[TEXT_BYTES]); /* "36.64 %", "-" of 0 */

/*
 * A JSON string of any file name. Bytes that are not UTF-8 become "\xNN", since JSON cannot hold
 * them. Returns a new reference, NULL when out of memory.
 */
json_t *text_json(const char *name);

#endif
