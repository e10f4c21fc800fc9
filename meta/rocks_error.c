/* SPDX-License-Identifier: Apache-2.0 */
#include "rocks_error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool ends_with_errno(const char *text, int error)
{
	const char *reason = strerror(error);
	size_t n = strlen(text), m = strlen(reason);

	return n >= m && !strcmp(text + n - m, reason);
}

int rocks_text_errno(const char *text)
{
	static const int reasons[] = {EACCES, EPERM,  EROFS,  ENOSPC,  EDQUOT, EMFILE,
				      ENFILE, ENOMEM, ENOENT, ENOTDIR, ELOOP,  ENAMETOOLONG};

	if (!strncmp(text, "Corruption", strlen("Corruption")))
		return -EIO;
	if (ends_with_errno(text, ENOLCK) ||
	    (strstr(text, "/LOCK: ") && ends_with_errno(text, EAGAIN)))
		return -EBUSY;
	if (strstr(text, "No space left on device"))
		return -ENOSPC;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (ends_with_errno(text, reasons[i]))
			return -reasons[i];
	return -EIO;
}
