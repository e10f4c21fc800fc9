/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mount.h"

#include "base/cleanup.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CONTROL_DIR ".mooncake"
#define MAX_CONTROL_BYTES ((size_t)64 << 20)

static bool control_path(const char *mount, const char *name, char path_out[PATH_MAX])
{
	int n = snprintf(path_out, PATH_MAX, "%s/" CONTROL_DIR "/%s",
			 strcmp(mount, "/") ? mount : "", name);

	return n > 0 && n < PATH_MAX;
}

bool mount_is_live(const char *path)
{
	char probe[PATH_MAX];
	struct stat st;

	if (!control_path(path, "status.json", probe)) {
		errno = ENAMETOOLONG;
		return false;
	}
	if (stat(probe, &st))
		return false;
	errno = ENOENT;
	return S_ISREG(st.st_mode);
}

/* Returns the negative errno after telling what it means for a mount. */
static int mount_error(const char *mount, int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		cli_error("%s: not a mooncakefs mount (no " CONTROL_DIR "/status.json)", mount);
		return -ENODEV;
	case ENOTCONN:
	case ECONNABORTED:
		cli_error("%s: the daemon of this mount is gone (%s); 'umount %s' clears it", mount,
			  strerror(error), mount);
		return -error;
	default:
		cli_error("%s: %s", mount, strerror(error));
		return -error;
	}
}

/* Goes up from path until a directory has the control files. */
static int mount_above(const char *path, char mount_out[PATH_MAX])
{
	char at[PATH_MAX];

	if (!realpath(path, at)) {
		int error = errno;
		if (error == ENOTCONN)
			return mount_error(path, error);
		cli_error("%s: %s", path, strerror(error));
		return -error;
	}
	for (;;) {
		if (mount_is_live(at)) {
			strcpy(mount_out, at);
			return 0;
		}
		if (errno == ENOTCONN || errno == ECONNABORTED)
			return mount_error(at, errno);
		char *slash = strrchr(at, '/');
		if (!slash || !at[1])
			break;
		slash[slash == at] = '\0';
	}
	cli_error("%s: not in a mooncakefs mount (no " CONTROL_DIR "/status.json above it)", path);
	return -ENODEV;
}

int mount_find(const char *option, const char *path, char mount_out[PATH_MAX])
{
	if (!option && path)
		return mount_above(path, mount_out);
	if (!option)
		option = getenv("MOONCAKE_MOUNT");
	if (!option || !*option)
		option = CLI_DEFAULT_MOUNT;
	if (strlen(option) >= PATH_MAX) {
		cli_error("mount point: %s", strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	strcpy(mount_out, option);
	if (mount_is_live(option))
		return 0;
	return mount_error(option, errno);
}

/* Control files have no size to rely on: reads up to the end. */
static int read_all(int fd, char **text_out, size_t *len_out)
{
	size_t len = 0, capacity = 64 << 10;
	autofree char *text = malloc(capacity);

	if (!text)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, text + len, capacity - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
		if (len < capacity - 1)
			continue;
		if (capacity >= MAX_CONTROL_BYTES)
			return -EFBIG;
		char *grown = realloc(text, capacity * 2);
		if (!grown)
			return -ENOMEM;
		text = grown;
		capacity *= 2;
	}
	text[len] = '\0';
	*text_out = text;
	*len_out = len;
	text = NULL;
	return 0;
}

int mount_read(const char *mount, const char *name, char **text_out, size_t *len_out)
{
	char path[PATH_MAX];

	if (!control_path(mount, name, path))
		return mount_error(mount, ENAMETOOLONG);
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return mount_error(mount, errno);
	int rc = read_all(fd, text_out, len_out);
	if (rc)
		cli_error("%s: %s", path, strerror(-rc));
	return rc;
}

int mount_status(const char *mount, json_t **status_out)
{
	autofree char *text = NULL;
	size_t len = 0;
	json_error_t cause;

	int rc = mount_read(mount, "status.json", &text, &len);
	if (rc)
		return rc;
	json_t *status = json_loadb(text, len, 0, &cause);
	if (!status) {
		cli_error("%s/" CONTROL_DIR "/status.json: not valid JSON: %s at line %d", mount,
			  cause.text, cause.line);
		return -EINVAL;
	}
	if (!json_is_object(status)) {
		cli_error("%s/" CONTROL_DIR "/status.json: not a JSON object", mount);
		json_decref(status);
		return -EINVAL;
	}
	*status_out = status;
	return 0;
}

int mount_try_status(const char *mount, json_t **status_out)
{
	char path[PATH_MAX];
	autofree char *text = NULL;
	size_t len = 0;

	if (!control_path(mount, "status.json", path))
		return -ENAMETOOLONG;
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = read_all(fd, &text, &len);
	if (rc)
		return rc;
	json_t *status = json_loadb(text, len, 0, NULL);
	if (!json_is_object(status)) {
		json_decref(status);
		return -EINVAL;
	}
	*status_out = status;
	return 0;
}

const json_t *status_tier(const json_t *status, const char *name)
{
	const json_t *tiers = json_object_get(status, "tiers");

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *tier = json_array_get(tiers, i);
		const char *have = status_text(tier, "name");
		if (have && !strcmp(have, name))
			return tier;
	}
	return NULL;
}

bool status_number(const json_t *object, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value) && json_integer_value(value) >= 0)
		*out = (uint64_t)json_integer_value(value);
	else if (json_is_real(value) && json_real_value(value) >= 0 &&
		 json_real_value(value) < 1.8e19)
		*out = (uint64_t)json_real_value(value);
	else
		return false;
	return true;
}

const char *status_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}
