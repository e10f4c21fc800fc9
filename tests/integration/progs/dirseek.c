// SPDX-License-Identifier: Apache-2.0
/*
 * dirseek - checks d_type and that telldir positions survive changes of the directory
 *
 * usage: dirseek list DIR      prints "TYPE NAME" of each entry; TYPE is f, d, l or ?
 *        dirseek check DIR N   creates N files "keep-*" in DIR, then checks
 *
 * check: remembers the position of every keep-* name, creates and unlinks other names (churn-*) in the
 * meantime, then seeks to (at most 300 of) them in a shuffled order, with the same and with a fresh stream:
 * the next keep-* name must be the one it was. Also lists the directory while names come and go: each
 * keep-* name exactly once. Exit 1 names the first difference.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SEEKS = 300 };

struct mark {
	long position; /* before the name */
	char name[32];
};

static const char *dir_path;

static void die(const char *what)
{
	fprintf(stderr, "dirseek: %s: %s\n", what, strerror(errno));
	exit(99);
}

static void make(const char *prefix, int i)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s-%06d", dir_path, prefix, i);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || close(fd))
		die(path);
}

static void drop(const char *prefix, int i)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s-%06d", dir_path, prefix, i);
	if (unlink(path))
		die(path);
}

static DIR *open_dir(void)
{
	DIR *dir = opendir(dir_path);

	if (!dir)
		die(dir_path);
	return dir;
}

/* Next keep-* name of the stream, NULL at its end. position_out gets where it is. */
static const char *next_keep(DIR *dir, long *position_out)
{
	for (;;) {
		*position_out = telldir(dir);
		errno = 0;
		struct dirent *e = readdir(dir);
		if (!e && errno)
			die("readdir");
		if (!e)
			return NULL;
		if (!strncmp(e->d_name, "keep-", 5))
			return e->d_name;
	}
}

static int read_marks(DIR *dir, struct mark *marks, int n)
{
	long position;
	const char *name;
	int found = 0;

	while ((name = next_keep(dir, &position))) {
		if (found == n) {
			fprintf(stderr, "dirseek: more than %d names, the next is %s\n", n, name);
			exit(1);
		}
		marks[found].position = position;
		snprintf(marks[found++].name, sizeof(marks->name), "%.31s", name);
	}
	return found;
}

static void check_mark(DIR *dir, const struct mark *m, const char *stream)
{
	long position;

	seekdir(dir, m->position);
	const char *name = next_keep(dir, &position);
	if (!name || strcmp(name, m->name)) {
		fprintf(stderr, "dirseek: %s stream: position %ld was before %s, is before %s\n", stream,
			m->position, m->name, name ? name : "the end");
		exit(1);
	}
}

static void check_seeks(DIR *dir, const struct mark *marks, int n)
{
	DIR *fresh = open_dir();
	int n_seeks = n < MAX_SEEKS ? n : MAX_SEEKS;

	for (int i = 0; i < n_seeks; i++) {
		const struct mark *m = &marks[(long)i * 7919 % n];
		check_mark(dir, m, "the same");
		check_mark(fresh, m, "a fresh");
	}
	closedir(fresh);
}

/* Lists while churn-* names come and go between reads. */
static void check_list_under_churn(int n)
{
	char *seen = calloc((size_t)n, 1);
	DIR *dir = open_dir();
	const char *name;
	long position;
	int i = 0, total = 0;

	while ((name = next_keep(dir, &position))) {
		int id = atoi(name + 5);
		if (id < 0 || id >= n || seen[id]++) {
			fprintf(stderr, "dirseek: %s listed twice\n", name);
			exit(1);
		}
		total++;
		if (i < n / 2)
			make("churn", i);
		if (i >= 8 && i - 8 < n / 2)
			drop("churn", i - 8);
		i++;
	}
	closedir(dir);
	if (total != n) {
		fprintf(stderr, "dirseek: %d of %d names listed while others came and went\n", total, n);
		exit(1);
	}
	free(seen);
}

static int check(int n)
{
	struct mark *marks = calloc((size_t)n, sizeof(*marks));

	for (int i = 0; i < n; i++)
		make("keep", i);
	DIR *dir = open_dir();
	int found = read_marks(dir, marks, n);
	if (found != n) {
		fprintf(stderr, "dirseek: %d of %d names listed\n", found, n);
		return 1;
	}
	for (int i = 0; i < n / 4; i++)
		make("churn", i);
	check_seeks(dir, marks, n);
	for (int i = 0; i < n / 4; i++)
		drop("churn", i);
	check_seeks(dir, marks, n);
	rewinddir(dir);
	if (read_marks(dir, marks, n) != n) {
		fprintf(stderr, "dirseek: not all names after rewinddir\n");
		return 1;
	}
	closedir(dir);
	check_list_under_churn(n);
	free(marks);
	return 0;
}

static int list(void)
{
	DIR *dir = open_dir();
	struct dirent *e;

	while ((e = readdir(dir))) {
		char type = e->d_type == DT_REG ? 'f' : e->d_type == DT_DIR ? 'd' :
			    e->d_type == DT_LNK ? 'l' : '?';
		printf("%c %s\n", type, e->d_name);
	}
	closedir(dir);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "list")) {
		dir_path = argv[2];
		return list();
	}
	if (argc == 4 && !strcmp(argv[1], "check")) {
		dir_path = argv[2];
		return check(atoi(argv[3]));
	}
	fprintf(stderr, "usage: dirseek list DIR | check DIR N\n");
	return 99;
}
