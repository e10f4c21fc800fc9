/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/crash_verify.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct check {
	const char *dir;
	const struct crash_ledger *l, *before;
	bool can_vanish;
	uint64_t *buf;
	struct crash_content there[CRASH_NAMES];
	unsigned at[CRASH_NAMES]; /* the change that it is, the latest that it can be */
	struct crash_found *out;
};

static void wrong(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void wrong(struct check *c, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("WRONG ", stdout);
	vprintf(fmt, args);
	putchar('\n');
	va_end(args);
	c->out->n_wrong++;
}

/* ---- one name ---- */

static unsigned first_possible(const struct check *c, unsigned name)
{
	return c->before ? atomic_load(&c->before->names[name].durable) :
			   c->l->names[name].returned;
}

/* Whether the bytes of a change may be lost with the memory. */
static bool is_volatile(const struct check *c, unsigned name, unsigned change)
{
	unsigned flags = c->l->names[name].changes[change].flags;

	if (flags & CRASH_SAFE)
		return false;
	/* A sync counts if it came before the failure. */
	return change > c->before->names[name].issued ||
	       !(c->before->names[name].changes[change].flags & CRASH_SYNCED);
}

static bool may_be_absent(const struct check *c, unsigned name)
{
	if (!c->before)
		return c->can_vanish && !crash_name_is_keep(name);
	for (unsigned k = first_possible(c, name); k <= c->l->names[name].issued; k++)
		if (is_volatile(c, name, k))
			return true;
	return false;
}

static void tell_changes(const struct check *c, unsigned name)
{
	const struct crash_name *n = &c->l->names[name];
	unsigned lo = first_possible(c, name);

	for (unsigned k = lo > 3 ? lo - 3 : 0; k <= n->issued; k++)
		printf("      change %u%s: uid %lu, %u words, flags %#x, from %d.%u\n", k,
		       k == lo ? " (must be there)" : "", n->changes[k].uid, n->changes[k].words,
		       n->changes[k].flags, (int)n->changes[k].from, n->changes[k].from_change);
}

static void look_at(struct check *c, unsigned name)
{
	const struct crash_name *n = &c->l->names[name];
	struct crash_content *there = &c->there[name];
	unsigned lo = first_possible(c, name), hi = n->issued;
	char below[32], path[4200];

	crash_name_path(name, below);
	snprintf(path, sizeof(path), "%s/%s", c->dir, below);
	int fd = open(path, O_RDONLY);
	if (fd < 0 && errno != ENOENT)
		wrong(c, "%s: open: %s", below, strerror(errno));
	const char *why = fd < 0 ? NULL : crash_content_read(fd, c->buf, there);
	if (fd >= 0)
		close(fd);
	c->at[name] = hi;
	if (why) {
		wrong(c, "%s: %s", below, why);
	} else if (crash_is_possible(n, lo, hi, *there, &c->at[name])) {
		c->out->n_older += c->at[name] < hi;
	} else if (!there->uid && may_be_absent(c, name)) {
		c->out->n_absent++;
	} else if (!there->uid) {
		wrong(c, "%s is not there, which is none of the changes %u to %u", below, lo, hi);
		tell_changes(c, name);
	} else {
		wrong(c, "%s: uid %lu, of %u words, is none of the changes %u to %u", below,
		      there->uid, there->words, lo, hi);
		tell_changes(c, name);
	}
	if (there->uid) {
		c->out->n_files++;
		c->out->n_bytes += there->words * sizeof(uint64_t);
	}
}

/* ---- renames ---- */

/*
 * The file was durable under its first name when it was renamed: it is under one of the two, unless
 * something later came to both.
 */
static void look_at_rename(struct check *c, unsigned name, unsigned change)
{
	const struct crash_change *to = &c->l->names[name].changes[change];
	unsigned from = to->from, before_it = to->from_change - 1;
	char below[32];

	if (first_possible(c, from) < before_it ||
	    c->l->names[from].changes[before_it].uid != to->uid)
		return;
	if (c->before ? is_volatile(c, from, before_it) : may_be_absent(c, from))
		return;
	bool has_come = c->at[name] >= change && (c->there[name].uid || !may_be_absent(c, name));
	bool is_left = c->there[from].uid == to->uid;
	if (has_come || is_left || may_be_absent(c, name))
		return;
	crash_name_path(name, below);
	wrong(c, "%s: its rename (change %u, uid %lu) left the file under neither name", below,
	      change, to->uid);
}

static void look_at_renames(struct check *c)
{
	for (unsigned name = 0; name < CRASH_NAMES; name++) {
		const struct crash_name *n = &c->l->names[name];
		for (unsigned k = first_possible(c, name) + 1; k <= n->issued; k++)
			if (n->changes[k].from < CRASH_NAMES &&
			    !(n->changes[k].flags & CRASH_FAILED))
				look_at_rename(c, name, k);
	}
}

/* ---- directories ---- */

static bool is_known(const char *path)
{
	char below[32];

	for (unsigned n = 0; n < CRASH_NAMES; n++) {
		crash_name_path(n, below);
		if (strcmp(below, path) == 0)
			return true;
	}
	return false;
}

static void look_at_directory(struct check *c, const char *name)
{
	char path[4200];
	struct dirent *e;

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	DIR *d = opendir(path);
	if (!d) {
		wrong(c, "directory %s: %s", name, strerror(errno));
		return;
	}
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", name, e->d_name);
		if (e->d_name[0] != '.' && !is_known(path))
			wrong(c, "%s: nobody wrote a file of this name", path);
	}
	closedir(d);
}

static void check_begin(struct check *c, const char *dir, const struct crash_ledger *l)
{
	memset(c, 0, sizeof(*c));
	c->dir = dir;
	c->l = l;
	c->buf = malloc((CRASH_MAX_WORDS + 1) * sizeof(uint64_t));
	if (!c->buf)
		err(99, "malloc");
}

void crash_verify(const char *dir, const struct crash_ledger *l, const struct crash_ledger *before,
		  bool can_vanish, struct crash_found *out)
{
	static struct check c;

	*out = (struct crash_found){0};
	check_begin(&c, dir, l);
	c.before = before;
	c.can_vanish = can_vanish;
	c.out = out;
	for (unsigned n = 0; n < CRASH_NAMES; n++)
		look_at(&c, n);
	look_at_renames(&c);
	look_at_directory(&c, "c");
	look_at_directory(&c, "weights");
	look_at_directory(&c, "b");
	free(c.buf);
}

void crash_settle(const char *dir, struct crash_ledger *l)
{
	static struct check c;
	struct crash_found found = {0};

	check_begin(&c, dir, l);
	c.can_vanish = true;
	c.out = &found;
	for (unsigned n = 0; n < CRASH_NAMES; n++) {
		struct crash_name *it = &l->names[n];
		look_at(&c, n);
		it->changes[0] = (struct crash_change){.uid = c.there[n].uid,
						       .words = c.there[n].words,
						       .flags = CRASH_SAFE,
						       .from = CRASH_NAMES};
		it->issued = it->returned = it->seen = it->durable = 0;
	}
	free(c.buf);
}
