/* SPDX-License-Identifier: Apache-2.0 */
/* rocks_error: the translator of RocksDB's words. Thread safe, no state. */
#ifndef MCFS_ROCKS_ERROR_H
#define MCFS_ROCKS_ERROR_H

/*
 * text: a RocksDB Status as its C API hands it out, "<code>: <subcode>: <what>: <file>: <reason>".
 * The reason is strerror's, in the locale of this process, and so is what it is compared with.
 *
 * Returns -EBUSY (the LOCK is held, by whomever), the errno behind the reason where there is one, and
 * -EIO for corruption and all else.
 */
int rocks_text_errno(const char *text);

#endif
