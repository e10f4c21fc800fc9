/* SPDX-License-Identifier: Apache-2.0 */
/* parse: sizes as people write them. Thread safe. */
#ifndef MCFS_PARSE_H
#define MCFS_PARSE_H

#include <stddef.h>
#include <stdint.h>

/*
 * "4096", "512K", "64M", "1.5G", "2T" (powers of 1024; an optional "iB" or "B" follows the letter).
 * Returns 0, -EINVAL for anything else (empty, negative, trailing text), -ERANGE above 2^63 - 1.
 */
int parse_size(const char *text, uint64_t *bytes_out);

/* Unsigned decimal number within [min, max]: 0, -EINVAL or -ERANGE. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* "1.5 GiB" style; buf holds at least 16 bytes; returns buf. */
char *format_size(uint64_t bytes, char *buf, size_t len);

#endif
