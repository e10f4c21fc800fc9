/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_place: see the table in disk_place.h.
 *
 * Three passes: what each directory holds, which claims the list's entries by id; then what those
 * without a marker are; then numbers for new disks, when all others are known.
 */
#include "tier/disk_place.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/log.h"

enum content {
	CONTENT_MISSING,
	CONTENT_MARKED,
	CONTENT_FRAMES, /* no marker */
	CONTENT_EMPTY
};

struct search {
	const struct ssd_conf *conf;
	struct disk_place *places;
	struct disk_list list;
	dev_t state_dev;
	bool is_changed; /* the list is to be written */
	struct look {
		enum content content;
		struct disk_identity marker;
		bool is_new, needs_marker;
	} looks[SSD_MAX_DIRS];
};

static void set_failed(struct disk_place *p, int err, const char *why)
{
	p->err = err;
	p->why = why;
	errno = -err;
	log_error("ssd: %s: %s: %m; the node goes on without this disk", p->path, why);
}

/* ---- directories ---- */

/* mkdir -p; the last one is private. */
static int make_dirs(const char *path)
{
	autofree char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (char *p = copy + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			if (mkdir(copy, 0755) && errno != EEXIST)
				return -errno;
			*p = '/';
		}
	return mkdir(copy, 0700) && errno != EEXIST ? -errno : 0;
}

/* 1 if there is a directory of the fan-out, 0 if none, or a negative errno. */
static int has_frames(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int found = 0;

	if (!dir)
		return -errno;
	errno = 0;
	while (!found && (e = readdir(dir)))
		found = strlen(e->d_name) == 2 && isxdigit((unsigned char)e->d_name[0]) &&
			isxdigit((unsigned char)e->d_name[1]);
	int rc = found ? 1 : -errno;
	closedir(dir);
	return rc;
}

/* Where the directory is, and that it may be written to. Sets the place's error if not. */
static bool is_usable(struct disk_place *p)
{
	struct statvfs fs;
	struct stat st;

	if (stat(p->path, &st) || statvfs(p->path, &fs))
		set_failed(p, -errno, "stat");
	else if (!S_ISDIR(st.st_mode))
		set_failed(p, -ENOTDIR, "open");
	else if (fs.f_flag & ST_RDONLY)
		set_failed(p, -EROFS, "open");
	if (p->err)
		return false;
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	return true;
}

/* ---- first pass: what is there ---- */

static int refuse_twice(const struct search *s, uint32_t k)
{
	const struct disk_place *p = &s->places[k];

	for (uint32_t j = 0; j < k; j++)
		if (s->places[j].ino == p->ino && s->places[j].dev == p->dev) {
			log_error("ssd: %s and %s are one directory", s->places[j].path, p->path);
			return -EINVAL;
		}
	return 0;
}

static int look_at(struct search *s, uint32_t k)
{
	struct disk_place *p = &s->places[k];
	struct look *look = &s->looks[k];
	struct stat st;

	if (stat(p->path, &st) && errno == ENOENT) {
		look->content = CONTENT_MISSING;
		return 0;
	}
	if (!is_usable(p))
		return 0;
	int rc = refuse_twice(s, k);
	if (rc)
		return rc;
	rc = disk_marker_read(p->path, &look->marker);
	if (rc == -EINVAL) {
		log_error(
			"ssd: %s: it cannot be told which disk this is; if it is the right one, remove "
			"%s/" DISK_MARKER_NAME,
			p->path, p->path);
		return rc;
	}
	if (!rc) {
		look->content = CONTENT_MARKED;
		return 0;
	}
	rc = rc == -ENOENT ? has_frames(p->path) : rc;
	if (rc < 0)
		set_failed(p, rc, "read");
	look->content = rc > 0 ? CONTENT_FRAMES : CONTENT_EMPTY;
	return 0;
}

static void take_identity(struct disk_place *p, const struct disk_identity *identity)
{
	p->identity = *identity;
	p->is_known = true;
}

/* The number is another place's, or another disk's of the list. */
static bool is_number_taken(const struct search *s, uint32_t number)
{
	for (uint32_t k = 0; k < s->conf->n_dirs; k++)
		if (s->places[k].is_known && s->places[k].identity.number == number)
			return true;
	return disk_list_has_number(&s->list, number);
}

static bool is_claimed(const struct search *s, const struct disk_entry *e)
{
	for (uint32_t k = 0; k < s->conf->n_dirs; k++)
		if (s->places[k].is_known && !strcmp(s->places[k].identity.id, e->identity.id))
			return true;
	return false;
}

/* A disk that the list knows by its marker's id. */
static int recognize(struct search *s, struct disk_place *p, const struct look *look,
		     struct disk_entry *e)
{
	if (e->identity.number != look->marker.number || is_claimed(s, e)) {
		log_error(
			"ssd: %s: disk %u (%s) is a copy of, or was changed since, disk %u of " DISK_LIST_NAME
			" at %s",
			p->path, look->marker.number, look->marker.id, e->identity.number, e->path);
		return -EINVAL;
	}
	take_identity(p, &look->marker);
	if (!strcmp(e->path, p->path))
		return 0;
	log_info("ssd: disk %u has moved from %s to %s", e->identity.number, e->path, p->path);
	s->is_changed = true;
	return disk_entry_set_path(e, p->path);
}

static int claim_known(struct search *s)
{
	for (uint32_t k = 0; k < s->conf->n_dirs; k++) {
		struct disk_entry *e = s->looks[k].content == CONTENT_MARKED && !s->places[k].err ?
					       disk_list_by_id(&s->list, s->looks[k].marker.id) :
					       NULL;
		int rc = e ? recognize(s, &s->places[k], &s->looks[k], e) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- second pass: what the others are ---- */

static int add_known(struct search *s, struct disk_place *p, const struct disk_identity *identity)
{
	struct disk_entry *e = disk_list_add(&s->list, identity, p->path);

	if (!e)
		return -ENOMEM;
	e->is_beside_state = s->conf->state_dir && p->dev == s->state_dev;
	s->is_changed = true;
	take_identity(p, identity);
	return 0;
}

/* A marker that the list does not know. */
static int meet_stranger(struct search *s, uint32_t k, const struct disk_entry *expected)
{
	struct disk_place *p = &s->places[k];
	struct look *look = &s->looks[k];

	if (expected) {
		log_error(
			"ssd: %s holds disk %s, but disk %u (%s) belongs there: mount the right disk, or "
			"remove the entry of disk %u from %s/" DISK_LIST_NAME,
			p->path, look->marker.id, expected->identity.number, expected->identity.id,
			expected->identity.number, s->conf->state_dir);
		return -EINVAL;
	}
	if (s->list.is_new) {
		if (is_number_taken(s, look->marker.number)) {
			log_error(
				"ssd: %s is disk %u, as another directory is: they belong to different "
				"nodes",
				p->path, look->marker.number);
			return -EINVAL;
		}
		return add_known(s, p, &look->marker);
	}
	int rc = has_frames(p->path);
	if (rc > 0) {
		log_error("ssd: %s holds frames of another node (disk %s): empty it first", p->path,
			  look->marker.id);
		return -EINVAL;
	}
	if (rc < 0)
		set_failed(p, rc, "read");
	look->is_new = true;
	return 0;
}

static int meet_frames(struct search *s, uint32_t k)
{
	struct disk_identity identity = {.number = 0};

	if (is_number_taken(s, 0)) {
		log_error("ssd: %s has frames, but no " DISK_MARKER_NAME
			  " that says which disk it is",
			  s->places[k].path);
		return -EINVAL;
	}
	int rc = disk_identity_make(&identity);
	s->looks[k].needs_marker = true;
	return rc ? rc : add_known(s, &s->places[k], &identity);
}

/* A path that the list knows, without the disk that was there. */
static void meet_absence(struct search *s, uint32_t k, const struct disk_entry *expected)
{
	struct disk_place *p = &s->places[k];
	struct look *look = &s->looks[k];

	take_identity(p, &expected->identity);
	if (p->err)
		return;
	if (look->content == CONTENT_FRAMES) {
		log_warn("ssd: %s has lost its " DISK_MARKER_NAME "; it is written anew", p->path);
		look->needs_marker = true;
		return;
	}
	if (expected->is_beside_state) {
		log_warn("ssd: %s was emptied; disk %u begins anew", p->path, p->identity.number);
		look->needs_marker = true;
		return;
	}
	set_failed(p, look->content == CONTENT_MISSING ? -ENOENT : -ENODEV,
		   "the disk is not there (is it mounted?)");
}

/* The entry of a disk that was found elsewhere has that path by now. */
static int meet(struct search *s, uint32_t k)
{
	struct disk_place *p = &s->places[k];
	const struct disk_entry *expected = disk_list_by_path(&s->list, p->path);

	if (p->is_known)
		return 0;
	if (s->looks[k].content == CONTENT_MARKED && !p->err)
		return meet_stranger(s, k, expected);
	if (expected) {
		meet_absence(s, k, expected);
		return 0;
	}
	if (p->err)
		return 0;
	if (s->looks[k].content == CONTENT_FRAMES)
		return meet_frames(s, k);
	s->looks[k].is_new = true;
	return 0;
}

/* ---- third pass: make what is new ---- */

static int make_new(struct search *s, uint32_t k)
{
	struct disk_place *p = &s->places[k];
	struct disk_identity identity = {.number = 0};

	while (is_number_taken(s, identity.number))
		if (++identity.number > DISK_MAX_NUMBER) {
			log_error(
				"ssd: %s: no disk number is left; remove entries of disks that are gone "
				"from " DISK_LIST_NAME,
				p->path);
			return -EINVAL;
		}
	int rc = disk_identity_make(&identity);
	if (rc)
		return rc;
	rc = disk_marker_write(p->path, &identity);
	if (rc) {
		set_failed(p, rc, "write " DISK_MARKER_NAME);
		return 0;
	}
	return add_known(s, p, &identity);
}

static int make(struct search *s, uint32_t k)
{
	struct disk_place *p = &s->places[k];
	const struct look *look = &s->looks[k];

	if (p->err || !(look->is_new || look->needs_marker))
		return 0;
	if (look->content == CONTENT_MISSING) {
		int rc = make_dirs(p->path);
		if (rc)
			set_failed(p, rc, "mkdir");
		if (rc || !is_usable(p))
			return 0;
		rc = refuse_twice(s, k);
		if (rc)
			return rc;
	}
	if (look->is_new)
		return make_new(s, k);
	/* A full disk is no reason to give its frames up: the marker is tried again at the next start. */
	int rc = disk_marker_write(p->path, &p->identity);
	if (rc && rc != -ENOSPC && rc != -EDQUOT)
		set_failed(p, rc, "write " DISK_MARKER_NAME);
	return 0;
}

static int find_all(struct search *s)
{
	const struct ssd_conf *conf = s->conf;
	int rc = 0;

	for (uint32_t k = 0; !rc && k < conf->n_dirs; k++) {
		s->places[k] = (struct disk_place){.path = conf->dirs[k].path};
		rc = look_at(s, k);
	}
	if (!rc)
		rc = claim_known(s);
	for (uint32_t k = 0; !rc && k < conf->n_dirs; k++)
		rc = meet(s, k);
	for (uint32_t k = 0; !rc && k < conf->n_dirs; k++)
		rc = make(s, k);
	if (!rc && s->is_changed)
		rc = disk_list_save(conf->state_dir, &s->list);
	return rc;
}

/* Nothing works and nothing ever did: the configuration is wrong. */
static int check_any(const struct search *s)
{
	for (uint32_t k = 0; k < s->conf->n_dirs; k++)
		if (!s->places[k].err || s->places[k].is_known)
			return 0;
	return s->places[0].err;
}

int disk_places_find(const struct ssd_conf *conf, struct disk_place *places)
{
	struct search s = {.conf = conf, .places = places};
	struct stat st;

	if (conf->n_dirs < 1 || conf->n_dirs > SSD_MAX_DIRS)
		return -EINVAL;
	if (conf->state_dir && stat(conf->state_dir, &st)) {
		int err = errno;
		log_error("ssd: state directory %s: %m", conf->state_dir);
		return -err;
	}
	s.state_dev = conf->state_dir ? st.st_dev : 0;
	int rc = disk_list_load(conf->state_dir, &s.list);
	if (rc)
		return rc;
	rc = find_all(&s);
	disk_list_fini(&s.list);
	return rc ? rc : check_any(&s);
}
