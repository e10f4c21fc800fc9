/* SPDX-License-Identifier: Apache-2.0 */
/* utf8: names for outputs that take nothing but UTF-8 (JSON, Prometheus text). Thread safe. */
#ifndef MCFS_UTF8_H
#define MCFS_UTF8_H

#include <stddef.h>

/*
 * Copies text to out, NUL-terminated, with every byte that is not part of a well-formed character
 * (RFC 3629) replaced by '?'. What does not fit in len bytes is left out, whole characters at a time.
 * len > 0. Returns out.
 */
char *utf8_clean(const char *text, char *out, size_t len);

#endif
