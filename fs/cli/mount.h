/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount: a mounted mooncakefs as its control files show it.
 *
 * All functions say on stderr what is wrong, with path and errno, before they return an error; they
 * may block as long as the daemon does. Thread safety: none is needed.
 */
#ifndef MCFS_CLI_MOUNT_H
#define MCFS_CLI_MOUNT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The mount point to talk to: option (--mount) if given, else the mount that holds path if that is
 * given, else $MOONCAKE_MOUNT, else the default. That it is a mooncakefs mount is checked.
 * Returns 0 or -ENODEV (no such mount), or the errno of a failed call.
 */
int mount_find(const char *option, const char *path, char mount_out[PATH_MAX]);

/* True when path is the root of a mooncakefs mount that answers; else errno says why not. Prints nothing. */
bool mount_is_live(const char *path);

/*
 * The whole of MOUNT/.mooncake/NAME, NUL-terminated, to be freed by the caller. Returns 0,
 * -ENODEV: not a mooncakefs mount; -EFBIG: beyond 64 MiB; the errno of open or read.
 */
int mount_read(const char *mount, const char *name, char **text_out, size_t *len_out);

/* status.json, parsed; a new reference. Also -EINVAL: not a JSON object. */
int mount_status(const char *mount, json_t **status_out);

/* The same without a word, for who has a screen to put back first; also from another thread. */
int mount_try_status(const char *mount, json_t **status_out);

/* The tier called name in a status document, borrowed; NULL when there is none. */
const json_t *status_tier(const json_t *status, const char *name);

/* The unsigned number object[key]; false when it is missing or no such number. NULL object is fine. */
bool status_number(const json_t *object, const char *key, uint64_t *out);

/* The string object[key], borrowed, or NULL. */
const char *status_text(const json_t *object, const char *key);

#endif
