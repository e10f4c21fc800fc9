/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "wire.h"

static bool part_is_valid(const char *part, size_t len)
{
	if (!len || len > PEER_NAME_MAX)
		return false;
	return !(part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.')));
}

bool wire_name_is_valid(const char *name)
{
	size_t len = strnlen(name, PEER_NAME_MAX + 1);

	return part_is_valid(name, len) && !memchr(name, '/', len);
}

bool wire_dir_is_canonical(const char *dir)
{
	size_t len = strnlen(dir, PEER_PATH_MAX + 1);

	if (!len || len > PEER_PATH_MAX || dir[0] != '/')
		return false;
	if (len == 1)
		return true;
	for (const char *part = dir + 1;; part++) {
		const char *end = strchrnul(part, '/');
		if (!part_is_valid(part, (size_t)(end - part)))
			return false;
		if (!*end)
			return true;
		part = end;
	}
}
