// SPDX-License-Identifier: Apache-2.0
/*
 * torture_object - threads that stand for processes change and read files of the object layer in
 * every way, under a budget that is too small, and check each read against a model of what may be
 * there
 *
 * usage: torture_object [SECONDS] [SEED] [THREADS]     (5 1 4)
 *
 * SEED modulo 4 also says how dram and ssd work together: 1 writeback=evict, 2 second, 3 always, 0 no
 * spilling.
 *
 * Content: a header (magic, version, length, seed of the body, checksum of these) and a body of
 * 64-bit words, each a hash of (body seed, position). A version is never used twice. A change by
 * copy-on-write writes a new header over an old body, so that copies of the base are checked too.
 *
 * Model: a clock ticks at the begin and at the end of every change. Per name a list of changes
 *
 *   PUT version | COPIED | MOVED IN | MOVED OUT | UNLINKED, from begin to end (FOREVER: not known)
 *
 * A read that looks the name up after the tick t0 and finds a version before the tick t1 is right
 * if the version's first change began before t1, and no change of the name lies between the last
 * one that may have put the version there and t0. A missing name is right: it may be evicted.
 * Hence a version that is torn, mixed, unpublished, poisoned, too old or back again is found.
 * What is open stays readable whatever happens to its name.
 *
 * At the end the books balance, and a restart of the file system shows every name as it was.
 *
 * Exit status: 0 all right (prints counts), 1 a difference (named, with seed, name and versions).
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"
#include "housekeeper.h"
#include "lib/fs_box.h"
#include "object/durable.h"

enum { N_DIRS = 2, N_NAMES = 48, MAX_THREADS = 64, MAX_BYTES = 300 * 1024 };
enum { LOOK_BACK = 512, MAX_TRIES = 100 };

#define MAGIC UINT64_C(0x6d636673746f7274)
#define FOREVER UINT64_MAX

struct header {
	uint64_t magic, version, length, body_seed;
	uint64_t crc;
};

enum change_kind { PUT, COPIED, MOVED_IN, MOVED_OUT, UNLINKED, CANCELLED };

struct change {
	enum change_kind kind;
	uint64_t version; /* PUT; MOVED: the other name */
	uint64_t begin, end;
};

/* One name. lock guards the list; entries are appended, an end is set once. */
struct model {
	pthread_mutex_t lock;
	struct change *changes;
	size_t n, cap;
	struct inode *dir;
	char name[32];
};

struct counts {
	uint64_t n_puts, n_truncs, n_cows, n_kills, n_moves, n_unlinks, n_reads, n_missing, n_stale,
		n_fsyncs, n_full, n_held, n_abandoned;
};

struct worker {
	pthread_t thread;
	int index, pid; /* pid changes: a new process each time */
	uint64_t random;
	char *buf;
	struct object *held; /* an open object, to be read again later */
	struct inode *held_inode;
	struct header held_header;
	int held_name;
	struct counts counts;
};

static struct fs_box box;
static struct model models[N_NAMES];
static struct worker workers[MAX_THREADS];
static atomic_ullong the_clock = 1, n_versions = 1;
static atomic_bool is_over;
static unsigned long long seed = 1;
/* By version: the tick at which it may first be seen; whether a copy-on-write draft carries it. */
static atomic_ullong *first_seen;
static atomic_bool *is_copied;
static uint64_t max_versions;

/* ---- failure ---- */

static void fail(int name, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

static void fail(int name, const char *fmt, ...)
{
	static const char *const kinds[] = { "put", "copied", "moved in from", "moved out to",
					     "unlinked", "cancelled" };
	va_list args;

	flockfile(stderr);
	fprintf(stderr, "torture_object: seed %llu, name %s: ", seed,
		name < 0 ? "-" : models[name].name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	if (name >= 0) {
		struct model *m = &models[name];
		for (size_t k = m->n > 24 ? m->n - 24 : 0; k < m->n; k++)
			fprintf(stderr, "  %s %llu [%llu, %lld]\n", kinds[m->changes[k].kind],
				(unsigned long long)m->changes[k].version,
				(unsigned long long)m->changes[k].begin,
				(long long)m->changes[k].end);
	}
	fflush(NULL);
	_exit(1);
}

/* ---- randomness, clock ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t pick(struct worker *w, uint64_t n)
{
	w->random += UINT64_C(0x9e3779b97f4a7c15);
	return mix(w->random) % n;
}

static uint64_t tick(void)
{
	return atomic_fetch_add(&the_clock, 1);
}

static struct caller_id new_process(struct worker *w)
{
	w->pid += MAX_THREADS;
	return fs_box_who(w->pid);
}

/* ---- content ---- */

static struct header make_header(uint64_t version, uint64_t length, uint64_t body_seed)
{
	struct header h = { .magic = MAGIC, .version = version, .length = length,
			    .body_seed = body_seed };

	h.crc = crc32c(0, &h, offsetof(struct header, crc));
	return h;
}

static void fill_body(char *buf, uint64_t body_seed, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to;) {
		uint64_t word = mix(body_seed + at / 8), skip = at % 8;
		size_t n = to - at < 8 - skip ? (size_t)(to - at) : (size_t)(8 - skip);
		memcpy(buf + at, (char *)&word + skip, n);
		at += n;
	}
}

static void check_content(int name, const char *bytes, uint64_t length, const char *what,
			  struct header *out)
{
	if (length < sizeof(*out))
		fail(name, "%s: %llu bytes, less than a header", what, (unsigned long long)length);
	memcpy(out, bytes, sizeof(*out));
	if (out->magic != MAGIC || out->crc != crc32c(0, out, offsetof(struct header, crc)))
		fail(name, "%s: torn header, version %llu length %llu of %llu", what,
		     (unsigned long long)out->version, (unsigned long long)out->length,
		     (unsigned long long)length);
	if (out->length != length)
		fail(name, "%s: version %llu has %llu bytes instead of %llu", what,
		     (unsigned long long)out->version, (unsigned long long)length,
		     (unsigned long long)out->length);
	for (uint64_t at = sizeof(*out); at < length; at += 8) {
		uint64_t word = mix(out->body_seed + at / 8);
		size_t n = length - at < 8 ? (size_t)(length - at) : 8;
		if (memcmp(bytes + at, &word, n))
			fail(name, "%s: version %llu is a mixture: other bytes at %llu of %llu",
			     what, (unsigned long long)out->version, (unsigned long long)at,
			     (unsigned long long)length);
	}
}

/* ---- model ---- */

static uint64_t new_version(void)
{
	uint64_t v = atomic_fetch_add(&n_versions, 1);

	if (v >= max_versions) {
		is_over = true;
		return 0;
	}
	return v;
}

/* Returns the change's place in the list. */
static size_t begin_change(int name, enum change_kind kind, uint64_t version)
{
	struct model *m = &models[name];

	pthread_mutex_lock(&m->lock);
	if (m->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 1024;
		m->changes = realloc(m->changes, m->cap * sizeof(*m->changes));
		if (!m->changes)
			abort();
	}
	struct change *c = &m->changes[m->n];
	*c = (struct change){ .kind = kind, .version = version, .begin = tick(), .end = FOREVER };
	if (kind == PUT && !atomic_load(&first_seen[version]))
		atomic_store(&first_seen[version], c->begin);
	size_t at = m->n++;
	pthread_mutex_unlock(&m->lock);
	return at;
}

static void end_change(int name, size_t at)
{
	struct model *m = &models[name];

	pthread_mutex_lock(&m->lock);
	m->changes[at].end = tick();
	pthread_mutex_unlock(&m->lock);
}

/* It has not happened, and never will: it neither puts nor replaces anything. */
static void cancel_change(int name, size_t at)
{
	struct model *m = &models[name];

	pthread_mutex_lock(&m->lock);
	m->changes[at] = (struct change){ .kind = CANCELLED, .end = FOREVER };
	pthread_mutex_unlock(&m->lock);
}

static void check_seen(int name, uint64_t version, uint64_t t0, uint64_t t1)
{
	struct model *m = &models[name];
	bool is_known = false;
	uint64_t last = 0;

	uint64_t first = version < max_versions ? atomic_load(&first_seen[version]) : 0;
	if (!first || first >= t1)
		fail(name, "version %llu was read by tick %llu but published at %llu only",
		     (unsigned long long)version, (unsigned long long)t1,
		     (unsigned long long)first);
	pthread_mutex_lock(&m->lock);
	for (size_t k = m->n; k-- > 0 && (m->n - k <= LOOK_BACK || !is_known);) {
		const struct change *c = &m->changes[k];
		if ((c->kind == PUT && c->version == version) || c->kind == MOVED_IN) {
			is_known = true;
			/* A shared draft that moved here publishes when it is closed. */
			uint64_t end = c->kind == MOVED_IN && is_copied[version] ? FOREVER : c->end;
			last = end > last ? end : last;
		}
	}
	if (!is_known)
		fail(name, "version %llu was never put under this name",
		     (unsigned long long)version);
	for (size_t k = m->n; k-- > 0 && m->n - k <= LOOK_BACK;) {
		const struct change *c = &m->changes[k];
		if (c->begin > last && c->end < t0)
			fail(name,
			     "version %llu is back: it was there until tick %llu at most, a change "
			     "began at %llu and ended at %llu (version %llu), the read at %llu",
			     (unsigned long long)version, (unsigned long long)last,
			     (unsigned long long)c->begin, (unsigned long long)c->end,
			     (unsigned long long)c->version, (unsigned long long)t0);
	}
	pthread_mutex_unlock(&m->lock);
}

/* ---- changes ---- */

static void expect(int name, int rc, const char *what, int ok1, int ok2)
{
	if (rc && rc != ok1 && rc != ok2)
		fail(name, "%s: %s", what, strerror(-rc));
}

/* In pieces, in order or not. */
static int write_pieces(struct worker *w, struct handle *h, uint64_t length)
{
	uint64_t piece = 1 + length / (1 + pick(w, 5));
	bool backwards = pick(w, 4) == 0;
	uint64_t n = (length + piece - 1) / piece;

	for (uint64_t k = 0; k < n; k++) {
		uint64_t off = (backwards ? n - 1 - k : k) * piece;
		uint64_t len = length - off < piece ? length - off : piece;
		int rc = fs_box_write(&box, h, w->buf + off, len, off);
		if (rc)
			return rc;
	}
	return 0;
}

static uint64_t pick_length(struct worker *w)
{
	switch (pick(w, 4)) {
	case 0: return sizeof(struct header) + pick(w, 4096);
	case 1: return 64 * 1024; /* recycled frames */
	default: return sizeof(struct header) + pick(w, MAX_BYTES - sizeof(struct header));
	}
}

/* Closes a draft of this process alone, whose content is in w->buf. */
static void close_put(struct worker *w, int name, struct handle *h, uint64_t version,
		      bool has_promised)
{
	struct published p;
	size_t at = begin_change(name, PUT, version);
	int rc = fs_box_flush(&box, h, &p);
	bool published = p.dir;

	expect(name, rc, "close", -ENOSPC, -EIO);
	if (rc)
		fs_box_kill(&box, h); /* so that RELEASE does not try again */
	if (published)
		end_change(name, at);
	else if (!has_promised) /* else the kill has published it */
		cancel_change(name, at);
	if (!published && !rc)
		fail(name, "close published nothing");
	published_fini(&box.fs, &p);
	fs_box_release(&box, h);
}

static void do_put(struct worker *w, int name, int flags)
{
	struct caller_id who = new_process(w);
	uint64_t length = pick_length(w), version = new_version();
	struct handle *h;

	if (!version)
		return;
	struct model *m = &models[name];
	int rc = flags & BOX_TRUNC ? fs_box_reopen(&box, m->dir, m->name, flags, who, &h) :
				     fs_box_create(&box, m->dir, m->name, BOX_TRUNC, who, &h);
	expect(name, rc, "open", -ENOENT, -ESTALE);
	if (rc)
		return;
	struct header head = make_header(version, length, mix(version));
	fill_body(w->buf, head.body_seed, 0, length);
	memcpy(w->buf, &head, sizeof(head));
	if (pick(w, 16) == 0) {
		/* Killed half-way: what is written is torn and must never be seen. */
		memset(w->buf, 0x55, 8);
		rc = write_pieces(w, h, 1 + pick(w, length));
		expect(name, rc, "write", -ENOSPC, 0);
		fs_box_kill(&box, h);
		fs_box_release(&box, h);
		w->counts.n_kills++;
		return;
	}
	rc = write_pieces(w, h, length);
	expect(name, rc, "write", -ENOSPC, 0);
	bool promises = !rc && pick(w, 12) == 0;
	if (promises) {
		/* Kept by the close, or by the death if the close fails. */
		rc = durable_draft(&box.fs, h->draft);
		expect(name, rc, "fsync", -ENOSPC, 0);
		w->counts.n_fsyncs++;
	}
	if (rc) {
		w->counts.n_full++;
		fs_box_kill(&box, h);
		fs_box_release(&box, h);
		return;
	}
	close_put(w, name, h, version, promises);
	if (flags & BOX_TRUNC)
		w->counts.n_truncs++;
	else
		w->counts.n_puts++;
}

/*
 * A new header over the old body; drafts are shared with whoever does the same. Whose header is in
 * the published version is not known, so the change itself has no end, and one without a version,
 * from before the close to after it, says that the name was replaced - unless a rename took the draft
 * along, and it was another name's.
 */
static void do_cow(struct worker *w, int name)
{
	struct caller_id who = new_process(w);
	uint64_t version = new_version();
	struct handle *h;
	struct header head;
	struct published p;
	size_t n;

	if (!version)
		return;
	int rc = fs_box_reopen(&box, models[name].dir, models[name].name, 0, who, &h);
	expect(name, rc, "open for writing", -ENOENT, -ESTALE);
	if (rc)
		return;
	rc = draft_read(&box.fs, h->draft, &head, sizeof(head), 0, &n);
	if (rc || n != sizeof(head))
		fail(name, "read of a draft: %d, %zu bytes", rc, n);
	if (head.magic != MAGIC)
		fail(name, "a draft shows a torn header");
	is_copied[version] = true;
	begin_change(name, PUT, version);
	head = make_header(version, head.length, head.body_seed);
	rc = fs_box_write(&box, h, &head, sizeof(head), 0);
	expect(name, rc, "write", -ENOSPC, -EIO);
	if (rc)
		w->counts.n_full++;
	if (pick(w, 16) == 0) {
		fs_box_kill(&box, h);
	} else {
		size_t at = begin_change(name, COPIED, 0);
		rc = fs_box_flush(&box, h, &p);
		expect(name, rc, "close", -ENOSPC, -EIO);
		if (p.dir == models[name].dir && !strcmp(p.name, models[name].name))
			end_change(name, at);
		else
			cancel_change(name, at);
		published_fini(&box.fs, &p);
	}
	fs_box_release(&box, h);
	w->counts.n_cows++;
}

static void do_unlink(struct worker *w, int name)
{
	size_t at = begin_change(name, UNLINKED, 0);
	int rc = fs_box_unlink(&box, models[name].dir, models[name].name, new_process(w));

	expect(name, rc, "unlink", -ENOENT, 0);
	if (rc)
		cancel_change(name, at);
	else
		end_change(name, at);
	w->counts.n_unlinks++;
}

static void do_move(struct worker *w, int name)
{
	int name2 = (int)pick(w, N_NAMES);
	struct caller_id who = new_process(w);

	if (name == name2)
		return;
	size_t from = begin_change(name, MOVED_OUT, (uint64_t)name2);
	size_t to = begin_change(name2, MOVED_IN, (uint64_t)name);
	int rc = ns_rename(&box.fs, models[name].dir, models[name].name, models[name2].dir,
			   models[name2].name, 0, &who);
	expect(name, rc, "rename", -ENOENT, 0);
	if (rc) {
		cancel_change(name, from);
		cancel_change(name2, to);
	} else {
		end_change(name, from);
		/* Shared drafts move along and publish later: what came in may still change. */
		end_change(name2, to);
	}
	w->counts.n_moves++;
}

/* A redirected open whose client died before the retry: the draft goes after a second. */
static void do_abandon(struct worker *w, int name)
{
	struct caller_id who = new_process(w);
	struct draft *d;
	int rc = ns_open_for_write(&box.fs, models[name].dir->key, models[name].name, pick(w, 2),
				   true, &who, &d);

	expect(name, rc, "open for writing", -ENOENT, 0);
	if (rc)
		return;
	pthread_mutex_lock(&box.fs.lock);
	draft_put_locked(&box.fs, d);
	pthread_mutex_unlock(&box.fs.lock);
	w->counts.n_abandoned++;
}

/* ---- reads ---- */

static void read_object(struct worker *w, int name, struct object *o, const char *what,
			struct header *out)
{
	int rc = o->size > MAX_BYTES ? -EFBIG : fs_box_pread(&box, o, w->buf, o->size, 0);

	if (rc)
		fail(name, "%s: read of an open object of %llu bytes: %s", what,
		     (unsigned long long)o->size, strerror(-rc));
	check_content(name, w->buf, o->size, what, out);
}

static void read_held_again(struct worker *w)
{
	struct header head;

	read_object(w, w->held_name, w->held, "open handle", &head);
	if (memcmp(&head, &w->held_header, sizeof(head)))
		fail(w->held_name, "an open handle showed version %llu, now %llu",
		     (unsigned long long)w->held_header.version, (unsigned long long)head.version);
	fs_box_drop(&box, w->held_inode, w->held);
	fs_box_put(&box, w->held_inode);
	w->held = NULL;
	w->counts.n_held++;
}

/* Returns with *i_out referenced and *o_out open, or an error. */
static int open_name(struct worker *w, int name, struct inode **i_out, struct object **o_out)
{
	struct caller_id who = new_process(w);
	bool has_draft;
	int rc = -ESTALE;

	for (int tries = 0; rc == -ESTALE; tries++) {
		rc = ns_lookup(&box.fs, models[name].dir, models[name].name, &who, i_out,
			       &has_draft);
		if (rc)
			return rc;
		rc = fs_box_hold(&box, *i_out, who, o_out);
		if (rc) {
			fs_box_put(&box, *i_out);
			w->counts.n_stale++;
			if (tries == MAX_TRIES)
				fail(name, "open answers ESTALE for ever");
		}
	}
	return rc;
}

static void do_read(struct worker *w, int name)
{
	struct inode *i;
	struct object *o;
	struct header head;

	uint64_t t0 = tick();
	int rc = open_name(w, name, &i, &o);
	expect(name, rc, "open for reading", -ENOENT, 0);
	w->counts.n_reads++;
	if (rc) {
		w->counts.n_missing++;
		return;
	}
	uint64_t t1 = tick();
	read_object(w, name, o, "read", &head);
	check_seen(name, head.version, t0, t1);
	if (pick(w, 40) == 0) {
		rc = durable_object(&box.fs, o);
		expect(name, rc, "fsync of an object", -ENOSPC, 0);
		w->counts.n_fsyncs++;
	}
	if (!w->held && pick(w, 8) == 0) {
		w->held = o;
		w->held_inode = i;
		w->held_header = head;
		w->held_name = name;
		return;
	}
	fs_box_drop(&box, i, o);
	fs_box_put(&box, i);
}

/* ---- threads ---- */

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!is_over) {
		int name = (int)pick(w, N_NAMES);
		switch (pick(w, 16)) {
		case 0:
		case 1:
		case 2: do_put(w, name, 0); break;
		case 3: do_put(w, name, BOX_TRUNC); break;
		case 4:
		case 5: do_cow(w, name); break;
		case 6: do_unlink(w, name); break;
		case 7: do_move(w, name); break;
		case 8:
			if (pick(w, 16) == 0)
				do_abandon(w, name);
			else if (w->held)
				read_held_again(w);
			break;
		default: do_read(w, name);
		}
	}
	if (w->held)
		read_held_again(w);
	return NULL;
}

static void add_counts(struct counts *sum, const struct counts *c)
{
	const uint64_t *from = (const uint64_t *)c;
	uint64_t *to = (uint64_t *)sum;

	for (size_t k = 0; k < sizeof(*c) / sizeof(*to); k++)
		to[k] += from[k];
}

/* ---- the end ---- */

static void check_quiet(void)
{
	pthread_mutex_lock(&box.fs.lock);
	draft_expire_locked(&box.fs, now_mono_ns() + REDIRECT_PIN_NS);
	uint32_t n_drafts = draft_count_locked(&box.fs);
	pthread_mutex_unlock(&box.fs.lock);
	if (n_drafts)
		fail(-1, "%u drafts are left though all is closed", n_drafts);
	if (!fs_box_books_balance(&box))
		fail(-1, "the books of the dram tier do not balance");
}

static void check_restart(void)
{
	struct caller_id who = fs_box_who(1);
	uint64_t versions[N_NAMES] = { 0 };
	struct inode *dirs[N_DIRS];
	struct header head;
	char *bytes;
	size_t len;

	for (int restarted = 0; restarted < 2; restarted++) {
		for (int k = 0; k < N_NAMES; k++) {
			struct model *m = &models[k];
			int rc = fs_box_read(&box, m->dir, m->name, who, &bytes, &len);
			if (rc && (rc != -ENOENT || versions[k]))
				fail(k, "after the %s: %s", restarted ? "restart" : "end",
				     strerror(-rc));
			if (rc)
				continue;
			check_content(k, bytes, len, restarted ? "restart" : "end", &head);
			free(bytes);
			if (restarted && head.version != versions[k])
				fail(k, "a restart turned version %llu into %llu",
				     (unsigned long long)versions[k],
				     (unsigned long long)head.version);
			versions[k] = head.version;
		}
		if (restarted)
			break;
		fs_box_restart(&box, false);
		for (int k = 0; k < N_DIRS; k++)
			dirs[k] = fs_box_dir(&box, fs_box_root(&box), k ? "dir1" : "dir0");
		for (int k = 0; k < N_NAMES; k++)
			models[k].dir = dirs[k % N_DIRS];
	}
}

static void set_up(void)
{
	struct inode *dirs[N_DIRS];

	fs_box_init(&box);
	box.opt.dram_bytes = 8ull << 20;
	box.opt.ssds[0].bytes = 3ull << 20;
	box.opt.has_ssd = seed % 4 != 0;
	box.opt.writeback = (enum writeback_mode)(seed % 4 ? (seed - 1) % 4 : 0);
	box.opt.max_objects = 64;
	box.opt.space_wait_ms = 200;
	fs_box_start(&box);
	for (int k = 0; k < N_DIRS; k++)
		dirs[k] = fs_box_mkdir(&box, fs_box_root(&box), k ? "dir1" : "dir0");
	for (int k = 0; k < N_NAMES; k++) {
		pthread_mutex_init(&models[k].lock, NULL);
		models[k].dir = dirs[k % N_DIRS];
		snprintf(models[k].name, sizeof(models[k].name), "name%d", k);
	}
	max_versions = 4u << 20;
	first_seen = calloc(max_versions, sizeof(*first_seen));
	is_copied = calloc(max_versions, sizeof(*is_copied));
	if (!first_seen || !is_copied)
		abort();
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	int n_threads = argc > 3 ? atoi(argv[3]) : 4;
	struct housekeeper *h;
	struct counts c = { 0 };

	if (seconds <= 0 || n_threads < 1 || n_threads > MAX_THREADS) {
		fprintf(stderr, "usage: torture_object [SECONDS] [SEED] [THREADS]\n");
		return 2;
	}
	set_up();
	if (housekeeper_start(&box.fs, &h))
		fail(-1, "cannot start the housekeeper");
	for (int k = 0; k < n_threads; k++) {
		struct worker *w = &workers[k];
		*w = (struct worker){ .index = k, .pid = 1000 + k,
				      .random = mix(seed * MAX_THREADS + (uint64_t)k) };
		w->buf = malloc(MAX_BYTES + 8);
		if (!w->buf || pthread_create(&w->thread, NULL, work, w))
			abort();
	}
	struct timespec ts = { .tv_sec = (time_t)seconds,
			       .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
	nanosleep(&ts, NULL);
	is_over = true;
	for (int k = 0; k < n_threads; k++) {
		pthread_join(workers[k].thread, NULL);
		free(workers[k].buf);
		add_counts(&c, &workers[k].counts);
	}
	housekeeper_stop(h);
	check_quiet();
	check_restart();
	fs_box_close(&box);
	for (int k = 0; k < N_NAMES; k++)
		free(models[k].changes);
	free(first_seen);
	free(is_copied);
	printf("seed %llu: %llu puts, %llu truncations, %llu copies, %llu killed, %llu renames, "
	       "%llu unlinks, %llu abandoned, %llu fsyncs, %llu full, %llu reads (%llu missing, "
	       "%llu stale, %llu held)\n", seed, (unsigned long long)c.n_puts,
	       (unsigned long long)c.n_truncs,
	       (unsigned long long)c.n_cows, (unsigned long long)c.n_kills,
	       (unsigned long long)c.n_moves, (unsigned long long)c.n_unlinks,
	       (unsigned long long)c.n_abandoned, (unsigned long long)c.n_fsyncs,
	       (unsigned long long)c.n_full, (unsigned long long)c.n_reads,
	       (unsigned long long)c.n_missing, (unsigned long long)c.n_stale,
	       (unsigned long long)c.n_held);
	return 0;
}
