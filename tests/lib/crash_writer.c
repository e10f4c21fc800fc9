/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/crash_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct worker {
	const struct crash_run *run;
	struct crash_ledger *l;
	uint64_t rng;
	uint64_t *words; /* CRASH_MAX_WORDS + 1 */
	unsigned writer;
};

/* ---- how it ends ---- */

static bool mount_is_dead(const char *dir)
{
	struct statfs st;

	/* Its requests fail one after another; the last to know is statfs. */
	for (int n = 0; n < 100; n++) {
		if (statfs(dir, &st))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return false;
}

static void defect(const struct worker *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));

static void defect(const struct worker *w, const char *fmt, ...)
{
	char text[512];
	va_list args;
	int saved = errno;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (mount_is_dead(w->run->dir))
		_exit(0);
	if (!atomic_exchange(&w->l->has_failed, true))
		fprintf(stderr, "live mount: %s (errno: %s)\n", text, strerror(saved));
	atomic_store(&w->l->stop, true);
	_exit(1);
}

static unsigned pick(struct worker *w, unsigned n)
{
	return (unsigned)(crash_random(&w->rng) % n);
}

static const char *path_of(const struct worker *w, unsigned name)
{
	static char paths[4][4200];
	static unsigned at;
	char below[32];
	char *path = paths[at++ % 4];

	crash_name_path(name, below);
	snprintf(path, sizeof(paths[0]), "%s/%s", w->run->dir, below);
	return path;
}

static bool can_vanish(const struct worker *w, unsigned name)
{
	return w->run->can_vanish && !crash_name_is_keep(name);
}

/* What the live mount shows. */
static const struct crash_change *current(const struct worker *w, unsigned name)
{
	const struct crash_name *n = &w->l->names[name];

	return &n->changes[n->seen];
}

/* A call on a name failed: fine if there is nothing, or if eviction took it. */
static bool is_excused(const struct worker *w, unsigned name)
{
	if (errno == ENOSPC && w->run->can_vanish) {
		atomic_fetch_add(&w->l->n_no_space, 1);
		return true;
	}
	return errno == ENOENT && (!current(w, name)->uid || can_vanish(w, name));
}

/* ---- marks ---- */

static void mark_seen(struct worker *w, unsigned name, unsigned change)
{
	struct crash_name *n = &w->l->names[name];

	atomic_store(&n->returned, change);
	atomic_store(&n->seen, change);
}

static void mark_promised(struct worker *w, unsigned name, unsigned change)
{
	struct crash_name *n = &w->l->names[name];

	atomic_store(&n->returned, change);
	atomic_store(&n->durable, change);
}

static void mark_failed(struct worker *w, unsigned name, unsigned change)
{
	atomic_fetch_or(&w->l->names[name].changes[change].flags, CRASH_FAILED);
}

/* ---- pieces of changes ---- */

static struct crash_content new_content(struct worker *w)
{
	unsigned kind = pick(w, 16), words = 2 + pick(w, 2046);

	if (kind == 0)
		words = 2 + pick(w, CRASH_MAX_WORDS - 2);
	else if (kind < 5)
		words = 2 + pick(w, 30 * 1024);
	if (pick(w, 3) == 0)
		words = (words + 511) / 512 * 512;
	return (struct crash_content){atomic_fetch_add(&w->l->next_uid, 1), words};
}

/* False: no space. */
static bool write_content(struct worker *w, int fd, struct crash_content c)
{
	uint64_t length = c.words * sizeof(uint64_t);

	crash_content_fill(c, w->words);
	for (uint64_t off = 0; off < length;) {
		uint64_t step = 4096 + pick(w, 131072);
		if (step > length - off)
			step = length - off;
		ssize_t n = pwrite(fd, (const char *)w->words + off, step, (off_t)off);
		if (n < 0 && errno == ENOSPC && w->run->can_vanish)
			return false;
		if (n != (ssize_t)step)
			defect(w, "pwrite returned %zd for %lu bytes", n, step);
		off += step;
	}
	return true;
}

/* fsync of a draft: change is promised. False: no space, nothing is. */
static bool promise(struct worker *w, int fd, unsigned name, unsigned change)
{
	if (fsync(fd)) {
		if (errno == ENOSPC && w->run->can_vanish)
			return false;
		defect(w, "fsync of %s", path_of(w, name));
	}
	mark_promised(w, name, change);
	return true;
}

/* The descriptor of change is closed, which publishes it. */
static void publish(struct worker *w, int fd, unsigned name, unsigned change, bool is_synced)
{
	struct crash_name *n = &w->l->names[name];

	if (close(fd)) {
		if (!is_excused(w, name))
			defect(w, "close of %s", path_of(w, name));
		if (!is_synced)
			mark_failed(w, name, change);
		return;
	}
	mark_seen(w, name, change);
	if (is_synced || crash_name_is_keep(name))
		atomic_store(&n->durable, change);
}

static void sync_directory(struct worker *w, bool keep)
{
	unsigned marks[CRASH_PER_CLASS], first = crash_name_first(w->writer, keep);
	char path[4200];

	for (unsigned i = 0; i < CRASH_PER_CLASS; i++)
		marks[i] = w->l->names[first + i].returned;
	snprintf(path, sizeof(path), "%s/%s", w->run->dir, keep ? "weights" : "c");
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || fsync(fd))
		defect(w, "fsync of directory %s", path);
	close(fd);
	for (unsigned i = 0; i < CRASH_PER_CLASS; i++)
		atomic_store(&w->l->names[first + i].durable, marks[i]);
}

/* ---- changes ---- */

static bool is_full(const struct worker *w, unsigned name)
{
	return atomic_load(&w->l->names[name].issued) + 4 >= CRASH_CHANGES;
}

/* O_TRUNC, or in place: the whole content in a new version. */
static bool put(struct worker *w, unsigned name, bool in_place, bool is_synced)
{
	int flags = in_place ? O_RDWR : O_RDWR | O_CREAT | O_TRUNC;
	int fd = open(path_of(w, name), flags, 0644);
	struct crash_content c = new_content(w);
	bool is_safe = is_synced || crash_name_is_keep(name);

	if (fd < 0) {
		if (!is_excused(w, name))
			defect(w, "open of %s, flags %#o", path_of(w, name), flags);
		return false;
	}
	if (!write_content(w, fd, c) || (in_place && ftruncate(fd, (off_t)c.words * 8))) {
		if (errno != ENOSPC)
			defect(w, "ftruncate of %s", path_of(w, name));
		close(fd); /* says so again */
		return false;
	}
	unsigned change = crash_issue(w->l, name, c, is_safe ? CRASH_SAFE : 0);
	if (is_synced && !promise(w, fd, name, change)) {
		atomic_fetch_and(&w->l->names[name].changes[change].flags,
				 crash_name_is_keep(name) ? ~0u : ~(unsigned)CRASH_SAFE);
		is_synced = false;
	}
	publish(w, fd, name, change, is_synced);
	return w->l->names[name].seen == change;
}

/* A content is promised, then another is written over it and published, which is durable as well. */
static void put_twice(struct worker *w, unsigned name)
{
	struct crash_content a = new_content(w), b = new_content(w);
	int fd = open(path_of(w, name), O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		defect(w, "create of %s", path_of(w, name));
	if (!write_content(w, fd, a)) {
		close(fd);
		return;
	}
	unsigned change = crash_issue(w->l, name, a, CRASH_SAFE);
	bool is_synced = promise(w, fd, name, change);
	if (!is_synced)
		mark_failed(w, name, change);
	bool is_whole = write_content(w, fd, b) && !ftruncate(fd, (off_t)b.words * 8);
	if (!is_whole) {
		close(fd);
		return;
	}
	change = crash_issue(w->l, name, b, is_synced || crash_name_is_keep(name) ? CRASH_SAFE : 0);
	if (is_synced && pick(w, 2))
		promise(w, fd, name, change);
	publish(w, fd, name, change, is_synced);
}

static void move(struct worker *w, unsigned from, unsigned to, bool is_synced)
{
	struct crash_name *b = &w->l->names[to];
	const struct crash_change *old = current(w, from);

	if (!old->uid || from == to || is_full(w, to))
		return;
	/* What a keep rename moves is durable as well; SYNCED counts, since it came before. */
	unsigned flags = old->flags & (CRASH_SAFE | CRASH_SYNCED) ? CRASH_SAFE : 0;
	struct crash_content c = {old->uid, old->words};
	unsigned at_b = crash_issue(w->l, to, c, flags);
	unsigned at_a = crash_issue(w->l, from, (struct crash_content){0}, CRASH_SAFE);
	b->changes[at_b].from = from;
	b->changes[at_b].from_change = at_a;
	if (rename(path_of(w, from), path_of(w, to))) {
		if (!is_excused(w, from))
			defect(w, "rename of %s", path_of(w, from));
		mark_failed(w, to, at_b);
		return; /* it is gone, which is what a's change says */
	}
	mark_seen(w, to, at_b);
	mark_seen(w, from, at_a);
	if (is_synced)
		sync_directory(w, crash_name_is_keep(to));
}

static void take_away(struct worker *w, unsigned name, bool is_synced)
{
	if (!current(w, name)->uid)
		return;
	unsigned change = crash_issue(w->l, name, (struct crash_content){0}, CRASH_SAFE);
	if (unlink(path_of(w, name)) && !is_excused(w, name))
		defect(w, "unlink of %s", path_of(w, name));
	mark_seen(w, name, change);
	if (is_synced)
		sync_directory(w, crash_name_is_keep(name));
}

static void sync_published(struct worker *w, unsigned name)
{
	struct crash_name *n = &w->l->names[name];
	unsigned change = n->seen;

	if (change != n->issued || !n->changes[change].uid)
		return;
	int fd = open(path_of(w, name), O_RDONLY);
	if (fd < 0 || fsync(fd)) {
		if (!is_excused(w, name))
			defect(w, "open or fsync of %s", path_of(w, name));
	} else {
		atomic_fetch_or(&n->changes[change].flags, CRASH_SYNCED);
		atomic_store(&n->durable, change);
	}
	if (fd >= 0)
		close(fd);
}

/* ---- writers that are killed ---- */

static void wait_until_kept(struct worker *w, unsigned name, unsigned change)
{
	struct crash_name *n = &w->l->names[name];
	struct crash_content c = {0};

	for (int tries = 0; tries < 1000; tries++) {
		int fd = open(path_of(w, name), O_RDONLY);
		const char *wrong = fd < 0 ? NULL : crash_content_read(fd, w->words, &c);
		if (fd < 0 && errno != ENOENT)
			defect(w, "open of %s", path_of(w, name));
		if (wrong)
			defect(w, "%s: %s", path_of(w, name), wrong);
		if (fd >= 0)
			close(fd);
		if (c.uid == n->changes[change].uid)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	if (c.uid != n->changes[change].uid && !can_vanish(w, name))
		defect(w, "%s: the promise of a killed writer is not kept: uid %lu for %lu",
		       path_of(w, name), c.uid, n->changes[change].uid);
	atomic_store(&n->seen, change);
}

/* A child that dies half-way; with an fsync before, that much of it is there. */
static void kill_a_writer(struct worker *w, unsigned name, bool is_synced)
{
	struct crash_content c = new_content(w), rubbish = new_content(w);
	unsigned change = is_synced ? crash_issue(w->l, name, c, CRASH_SAFE) : 0;
	pid_t pid = fork();
	int wstatus;

	if (!pid) {
		int fd = open(path_of(w, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
		bool is_whole = fd >= 0 && write_content(w, fd, c);
		if (is_whole && is_synced)
			promise(w, fd, name, change);
		rubbish.words /= 2;
		if (is_whole)
			write_content(w, fd, rubbish);
		raise(SIGKILL);
	}
	if (pid < 0 || waitpid(pid, &wstatus, 0) != pid)
		defect(w, "fork of a writer to kill");
	if (!WIFSIGNALED(wstatus))
		_exit(WEXITSTATUS(wstatus));
	atomic_fetch_add(&w->l->n_kills, 1);
	if (is_synced && w->l->names[name].returned == change)
		wait_until_kept(w, name, change);
}

/* ---- processes ---- */

static void begin(struct worker *w, const struct crash_run *run, unsigned number)
{
	*w = (struct worker){.run = run,
			     .l = run->ledger,
			     .rng = crash_mix(run->seed * 1000 + number),
			     .words = malloc((CRASH_MAX_WORDS + 1) * sizeof(uint64_t)),
			     .writer = number};
	if (!w->words)
		_exit(99);
}

static void change_something(struct worker *w)
{
	bool keep = pick(w, 3) == 0, is_synced = pick(w, 3) == 0;
	unsigned first = crash_name_first(w->writer, keep), tmp = first + CRASH_PER_CLASS - 1;
	unsigned name = first + pick(w, CRASH_PER_CLASS - 1), what = pick(w, 100);

	if (is_full(w, name) || is_full(w, tmp)) {
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		return;
	}
	if (what < 25)
		put(w, name, false, is_synced);
	else if (what < 35)
		put(w, name, current(w, name)->uid, is_synced);
	else if (what < 60 && put(w, tmp, false, pick(w, 2)))
		move(w, tmp, name, is_synced);
	else if (what < 70)
		take_away(w, name, is_synced);
	else if (what < 78)
		move(w, name, first + pick(w, CRASH_PER_CLASS - 1), is_synced);
	else if (what < 86)
		sync_published(w, name);
	else if (what < 95)
		put_twice(w, name);
	else
		kill_a_writer(w, name, is_synced);
}

void crash_write(const struct crash_run *run, unsigned writer)
{
	struct worker w;

	begin(&w, run, writer);
	while (!atomic_load(&w.l->stop))
		change_something(&w);
	_exit(0);
}

/* Files that fill DRAM, read now and then, so that they move between the tiers. */
void crash_churn(const struct crash_run *run)
{
	struct worker w;

	begin(&w, run, CRASH_WRITERS);
	while (!atomic_load(&w.l->stop)) {
		unsigned name = CRASH_NAMES - CRASH_CHURN + pick(&w, CRASH_CHURN);
		struct crash_content c = {atomic_fetch_add(&w.l->next_uid, 1),
					  64 * 1024 + pick(&w, CRASH_MAX_WORDS - 64 * 1024)};
		if (is_full(&w, name))
			continue;
		int fd = open(path_of(&w, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0)
			defect(&w, "create of %s", path_of(&w, name));
		if (!write_content(&w, fd, c)) {
			close(fd);
			continue;
		}
		publish(&w, fd, name, crash_issue(w.l, name, c, 0), false);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	_exit(0);
}

static void look_at(struct worker *w, unsigned name)
{
	struct crash_name *n = &w->l->names[name];
	struct crash_content c = {0};
	unsigned lo = atomic_load(&n->seen), at;
	int fd = open(path_of(w, name), O_RDONLY);

	if (fd < 0 && errno != ENOENT)
		defect(w, "open of %s", path_of(w, name));
	unsigned hi = atomic_load(&n->issued);
	const char *wrong = fd < 0 ? NULL : crash_content_read(fd, w->words, &c);
	if (wrong)
		defect(w, "%s: %s", path_of(w, name), wrong);
	if (fd >= 0)
		close(fd);
	if (!crash_is_possible(n, lo, hi, c, &at) && (c.uid || !can_vanish(w, name)))
		defect(w, "%s: uid %lu is none of the changes %u to %u", path_of(w, name), c.uid,
		       lo, hi);
	atomic_fetch_add(&w->l->n_reads, 1);
}

void crash_read(const struct crash_run *run, unsigned reader)
{
	struct worker w;

	begin(&w, run, CRASH_WRITERS + 1 + reader);
	while (!atomic_load(&w.l->stop)) {
		look_at(&w, pick(&w, CRASH_NAMES));
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
	_exit(0);
}
