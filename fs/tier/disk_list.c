/* SPDX-License-Identifier: Apache-2.0 */
/* disk_list: see disk_list.h. Readers take what they understand and nothing else. */
#include "tier/disk_list.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define MARKER_FORMAT 1

/* ---- files ---- */

/* -ENOENT quietly; the caller owns *out. */
static int read_json(const char *path, json_t **out)
{
	json_error_t error;
	FILE *file = fopen(path, "re");

	if (!file) {
		int err = errno;
		if (err != ENOENT)
			log_error("ssd: open %s: %m", path);
		return -err;
	}
	*out = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
	int is_unreadable = ferror(file);
	fclose(file);
	if (*out)
		return 0;
	log_error("ssd: %s is damaged: %s (line %d)", path, error.text, error.line);
	return is_unreadable ? -EIO : -EINVAL;
}

static int write_and_sync(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		text += n;
		len -= (size_t)n;
	}
	return fsync(fd) ? -errno : 0;
}

static int replace_file(int dir_fd, const char *name, const char *text)
{
	char tmp[64];
	int rc;

	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	autoclose int fd =
		openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = write_and_sync(fd, text, strlen(text));
	if (!rc && renameat(dir_fd, tmp, dir_fd, name))
		rc = -errno;
	if (rc)
		(void)unlinkat(dir_fd, tmp, 0);
	return rc ? rc : fsync(dir_fd) ? -errno : 0;
}

/* Takes the reference to json. */
static int write_json(const char *dir, const char *name, json_t *json)
{
	autofree char *dump = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
	autofree char *text = NULL;

	json_decref(json);
	if (!dump || asprintf(&text, "%s\n", dump) < 0)
		return -ENOMEM;
	autoclose int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir_fd < 0 ? -errno : replace_file(dir_fd, name, text);
	if (rc)
		log_error("ssd: write %s/%s: %s", dir, name, strerror(-rc));
	return rc;
}

/* ---- identities ---- */

int disk_identity_make(struct disk_identity *out)
{
	unsigned char bytes[DISK_ID_DIGITS / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	for (size_t k = 0; k < sizeof(bytes); k++)
		snprintf(out->id + 2 * k, 3, "%02x", bytes[k]);
	return 0;
}

static bool parse_identity(const json_t *json, struct disk_identity *out)
{
	const json_t *number = json_object_get(json, "number");
	const char *id = json_string_value(json_object_get(json, "id"));

	if (!json_is_integer(number) || json_integer_value(number) < 0 ||
	    json_integer_value(number) > DISK_MAX_NUMBER || !id ||
	    strspn(id, "0123456789abcdef") != DISK_ID_DIGITS || id[DISK_ID_DIGITS])
		return false;
	out->number = (uint32_t)json_integer_value(number);
	memcpy(out->id, id, sizeof(out->id));
	return true;
}

/* ---- the marker ---- */

static bool parse_marker(const json_t *json, struct disk_identity *out)
{
	return json_integer_value(json_object_get(json, "format")) == MARKER_FORMAT &&
	       parse_identity(json, out);
}

int disk_marker_parse(const char *text, size_t len, struct disk_identity *out)
{
	json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	bool is_good = json && parse_marker(json, out);

	json_decref(json);
	return is_good ? 0 : -EINVAL;
}

int disk_marker_read(const char *dir, struct disk_identity *out)
{
	autofree char *path = NULL;
	struct disk_identity found;
	json_t *json = NULL;

	if (asprintf(&path, "%s/" DISK_MARKER_NAME, dir) < 0)
		return -ENOMEM;
	int rc = read_json(path, &json);
	if (rc)
		return rc;
	bool is_good = parse_marker(json, &found);
	json_decref(json);
	if (!is_good) {
		log_error("ssd: %s is damaged, or of a newer version", path);
		return -EINVAL;
	}
	*out = found;
	return 0;
}

int disk_marker_write(const char *dir, const struct disk_identity *identity)
{
	return write_json(dir, DISK_MARKER_NAME,
			  json_pack("{s:i, s:i, s:s}", "format", MARKER_FORMAT, "number",
				    (int)identity->number, "id", identity->id));
}

void disk_marker_remove(const char *dir)
{
	autofree char *path = NULL;

	if (asprintf(&path, "%s/" DISK_MARKER_NAME, dir) >= 0 && unlink(path) && errno != ENOENT)
		log_warn("ssd: unlink %s: %m", path);
}

/* ---- the list ---- */

static bool parse_entries(const json_t *disks, struct disk_list *list)
{
	struct disk_identity identity;
	const json_t *disk;
	size_t k;

	if (!json_is_array(disks))
		return false;
	json_array_foreach(disks, k, disk)
	{
		const char *path = json_string_value(json_object_get(disk, "path"));
		if (!path || !parse_identity(disk, &identity) ||
		    disk_list_has_number(list, identity.number) ||
		    disk_list_by_id(list, identity.id))
			return false;
		struct disk_entry *e = disk_list_add(list, &identity, path);
		if (!e)
			return false;
		e->is_beside_state = json_is_true(json_object_get(disk, "is_beside_state"));
	}
	return true;
}

int disk_list_parse(const char *text, size_t len, struct disk_list *out)
{
	json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	struct disk_list list = {.v = NULL};
	bool is_good = json && parse_entries(json, &list);

	json_decref(json);
	if (is_good)
		*out = list;
	else
		disk_list_fini(&list);
	return is_good ? 0 : -EINVAL;
}

int disk_list_load(const char *state_dir, struct disk_list *out)
{
	autofree char *path = NULL;
	json_t *json = NULL;

	*out = (struct disk_list){.is_new = true};
	if (!state_dir)
		return 0;
	if (asprintf(&path, "%s/" DISK_LIST_NAME, state_dir) < 0)
		return -ENOMEM;
	int rc = read_json(path, &json);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	out->is_new = false;
	bool is_good = parse_entries(json, out);
	json_decref(json);
	if (is_good)
		return 0;
	log_error(
		"ssd: %s is damaged; move it away, and with every disk in its place it is made anew",
		path);
	disk_list_fini(out);
	return -EINVAL;
}

int disk_list_save(const char *state_dir, const struct disk_list *list)
{
	json_t *disks = json_array();

	if (!state_dir) {
		json_decref(disks);
		return 0;
	}
	for (uint32_t k = 0; k < list->n; k++) {
		const struct disk_entry *e = &list->v[k];
		if (json_array_append_new(disks,
					  json_pack("{s:i, s:s, s:s, s:b}", "number",
						    (int)e->identity.number, "id", e->identity.id,
						    "path", e->path, "is_beside_state",
						    (int)e->is_beside_state))) {
			json_decref(disks);
			log_error("ssd: write %s/" DISK_LIST_NAME ": path %s is not UTF-8",
				  state_dir, e->path);
			return -EINVAL;
		}
	}
	return write_json(state_dir, DISK_LIST_NAME, disks);
}

void disk_list_fini(struct disk_list *list)
{
	for (uint32_t k = 0; k < list->n; k++)
		free(list->v[k].path);
	free(list->v);
	*list = (struct disk_list){.v = NULL};
}

struct disk_entry *disk_list_by_path(struct disk_list *list, const char *path)
{
	for (uint32_t k = 0; k < list->n; k++)
		if (!strcmp(list->v[k].path, path))
			return &list->v[k];
	return NULL;
}

struct disk_entry *disk_list_by_id(struct disk_list *list, const char *id)
{
	for (uint32_t k = 0; k < list->n; k++)
		if (!strcmp(list->v[k].identity.id, id))
			return &list->v[k];
	return NULL;
}

bool disk_list_has_number(const struct disk_list *list, uint32_t number)
{
	for (uint32_t k = 0; k < list->n; k++)
		if (list->v[k].identity.number == number)
			return true;
	return false;
}

struct disk_entry *disk_list_add(struct disk_list *list, const struct disk_identity *identity,
				 const char *path)
{
	struct disk_entry *v = realloc(list->v, (list->n + 1) * sizeof(*v));

	if (!v)
		return NULL;
	list->v = v;
	v[list->n] = (struct disk_entry){.identity = *identity, .path = strdup(path)};
	return v[list->n].path ? &v[list->n++] : NULL;
}

int disk_entry_set_path(struct disk_entry *e, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(e->path);
	e->path = copy;
	return 0;
}
