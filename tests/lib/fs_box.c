/* SPDX-License-Identifier: Apache-2.0 */
/* fs_box: see fs_box.h. The steps mirror ops/open.c, ops/flush.c and ops/io.c. */
#include "lib/fs_box.h"

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fakes/fault_tier.h"
#include "object/durable.h"
#include "object/version.h"

static void must(bool is_ok, const char *what)
{
	if (!is_ok) {
		fprintf(stderr, "fs_box: %s: %m\n", what);
		abort();
	}
}

/* ---- the box ---- */

/* Mounts of this process are its own from now on. Without the right the plain directory does. */
static void leave_mounts(void)
{
	static bool is_done;

	if (!is_done && geteuid() == 0 && !unshare(CLONE_NEWNS))
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	is_done = true;
}

void fs_box_init(struct fs_box *b)
{
	const char *tmp = getenv("TMPDIR");

	leave_mounts();
	*b = (struct fs_box){ .is_running = false };
	if (!tmp || strlen(tmp) > 48 || access(tmp, W_OK))
		tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	snprintf(b->top, sizeof(b->top), "%s/mcfs-box-XXXXXX", tmp);
	must(mkdtemp(b->top) != NULL, "mkdtemp");
	snprintf(b->ssd, sizeof(b->ssd), "%s/ssd", b->top);
	b->opt = (struct options){
		.state_dir = b->top,
		.ssds = { { .dir = b->ssd, .bytes = 64ull << 20 } },
		.n_ssds = 1,
		.node = (char *)(uintptr_t) "test",
		.dram_bytes = 64ull << 20,
		.max_objects = 4096,
		.plain_dram = true,
	};
}

void fs_box_start(struct fs_box *b)
{
	char target[128];

	/* Failures are what many tests are about: their log goes to a file beside the frames. */
	snprintf(target, sizeof(target), "%s/log:warn", b->top);
	if (!getenv("MCFS_TEST_LOG"))
		must(log_init(target, "test") == 0, "log_init");
	int rc = fs_create(&b->fs, &b->opt);
	if (rc) {
		errno = -rc;
		must(false, "fs_create");
	}
	b->is_running = true;
}

void fs_box_open(struct fs_box *b)
{
	fs_box_init(b);
	fs_box_start(b);
}

void fs_box_stop(struct fs_box *b, bool loses_dram)
{
	fs_destroy(&b->fs, loses_dram);
	log_fini();
	b->is_running = false;
}

void fs_box_restart(struct fs_box *b, bool loses_dram)
{
	fs_box_stop(b, loses_dram);
	fs_box_start(b);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void fs_box_close(struct fs_box *b)
{
	if (b->is_running)
		fs_box_stop(b, true);
	nftw(b->top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void fs_box_fault_dram(struct fs_box *b)
{
	b->fs.dram = fault_tier_create(b->fs.dram);
	must(b->fs.dram != NULL, "fault_tier_create");
}

void fs_box_fault_ssd(struct fs_box *b)
{
	b->fs.ssd = fault_tier_create(b->fs.ssd);
	must(b->fs.ssd != NULL, "fault_tier_create");
}

void fs_box_catalog_writable(struct fs_box *b, bool is_writable)
{
	char path[128];

	if (is_writable) {
		catalog_close(b->fs.catalog);
		b->fs.catalog = b->writable;
		return;
	}
	b->writable = b->fs.catalog;
	snprintf(path, sizeof(path), "%s/catalog", b->top);
	must(catalog_sync(b->writable) == 0, "catalog_sync");
	must(catalog_open(&(struct catalog_conf){ .path = path, .read_only = true },
			  &b->fs.catalog) == 0, "catalog_open read only");
}

struct inode *fs_box_root(struct fs_box *b)
{
	return inode_of(&b->fs, CATALOG_ROOT_INO);
}

struct inode *fs_box_mkdir(struct fs_box *b, struct inode *dir, const char *name)
{
	struct caller_id who = fs_box_who(1 << 20);
	struct ns_new n = { .mode = S_IFDIR | 0755 };
	struct inode *i = NULL;

	must(ns_make(&b->fs, dir, name, &n, &who, &i) == 0, "mkdir");
	return i;
}

struct inode *fs_box_dir(struct fs_box *b, struct inode *dir, const char *name)
{
	struct caller_id who = fs_box_who(1);
	struct inode *i = NULL;
	bool has_draft;

	must(ns_lookup(&b->fs, dir, name, &who, &i, &has_draft) == 0, "lookup of a directory");
	must(i->kind == INODE_DIR, "directory");
	return i;
}

struct tier_stats fs_box_dram(struct fs_box *b)
{
	struct tier_stats s;

	tier_call(b->fs.dram, get_stats, &s);
	return s;
}

struct tier_stats fs_box_ssd(struct fs_box *b)
{
	struct tier_stats s;

	tier_call(b->fs.ssd, get_stats, &s);
	return s;
}

uint32_t fs_box_n_drafts(struct fs_box *b)
{
	guard_lock(&b->fs.lock);
	return draft_count_locked(&b->fs);
}

uint64_t fs_box_n_objects(struct fs_box *b)
{
	guard_lock(&b->fs.lock);
	return object_count_locked(&b->fs);
}

static void add_charge(void *arg, struct object *o)
{
	*(uint64_t *)arg += o->dram_frame ? o->charged_bytes : 0;
}

bool fs_box_books_balance(struct fs_box *b)
{
	struct tier_stats s;
	uint64_t charged = 0;

	tier_call(b->fs.dram, reclaim, UINT64_MAX);
	pthread_mutex_lock(&b->fs.lock);
	object_visit_locked(&b->fs, add_charge, &charged);
	pthread_mutex_unlock(&b->fs.lock);
	tier_call(b->fs.dram, get_stats, &s);
	if (s.used_bytes == charged + s.free_list_bytes + s.zombie_bytes && !s.n_open)
		return true;
	fprintf(stderr,
		"fs_box: %llu bytes used, objects %llu, free list %llu, zombies %llu, open %llu\n",
		(unsigned long long)s.used_bytes, (unsigned long long)charged,
		(unsigned long long)s.free_list_bytes, (unsigned long long)s.zombie_bytes,
		(unsigned long long)s.n_open);
	return false;
}

/* ---- names ---- */

struct caller_id fs_box_who(int pid)
{
	pid_t tid = pid + (1 << 23); /* above the largest the kernel gives: /proc has none */

	return (struct caller_id){ .tid = tid, .tgid = tid, .uid = 0 };
}

void fs_box_put(struct fs_box *b, struct inode *i)
{
	guard_lock(&b->fs.lock);
	inode_put_locked(&b->fs, i);
}

struct inode *fs_box_look(struct fs_box *b, struct inode *dir, const char *name,
			  struct caller_id who)
{
	struct inode *i;
	bool has_draft;

	if (ns_lookup(&b->fs, dir, name, &who, &i, &has_draft))
		return NULL;
	return i; /* as the kernel keeps it: referenced until the box stops */
}

int fs_box_unlink(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who)
{
	return ns_unlink(&b->fs, dir, name, &who);
}

/* ---- drafts ---- */

static void put_draft(struct fs_box *b, struct draft *d)
{
	guard_lock(&b->fs.lock);
	draft_put_locked(&b->fs, d);
}

static struct handle *attach(struct fs_box *b, struct draft *d, const struct caller_id *who)
{
	struct handle *h = handle_create(&b->fs, HANDLE_DRAFT, d->inode);

	h->draft = d;
	h->is_writable = true;
	h->opener_tgid = who->tgid;
	guard_lock(&b->fs.lock);
	inode_get_locked(d->inode);
	draft_join_locked(d, who)->has_opened = true;
	draft_attach_locked(d, h);
	return h;
}

/* As ops/open.c does it. */
static int open_handle(struct fs_box *b, struct draft *d, int flags, const struct caller_id *who,
		       struct handle **out)
{
	struct handle *h = attach(b, d, who);
	int rc = flags & BOX_TRUNC ? draft_truncate_at_open(&b->fs, d) : 0;

	if (rc)
		fs_box_release(b, h);
	else
		*out = h;
	return rc;
}

int fs_box_create(struct fs_box *b, struct inode *dir, const char *name, int flags,
		  struct caller_id who, struct handle **out)
{
	struct ns_new n = { .mode = S_IFREG | 0644 };
	struct draft *d;
	int rc = ns_create(&b->fs, dir, name, &n, flags & BOX_EXCL, flags & BOX_TRUNC, &who, &d);

	if (rc)
		return rc;
	rc = open_handle(b, d, flags, &who, out);
	put_draft(b, d);
	return rc;
}

int fs_box_reopen(struct fs_box *b, struct inode *dir, const char *name, int flags,
		  struct caller_id who, struct handle **out)
{
	struct draft *d;
	struct inode *i;
	bool has_draft;

	pthread_mutex_lock(&b->fs.lock);
	draft_leave_intent_locked(&b->fs, &who, flags & BOX_TRUNC);
	pthread_mutex_unlock(&b->fs.lock);
	int rc = ns_lookup(&b->fs, dir, name, &who, &i, &has_draft);
	pthread_mutex_lock(&b->fs.lock);
	d = rc ? NULL : i->draft;
	if (d)
		draft_get_locked(d);
	else
		draft_end_intent_locked(&b->fs, NULL, &who);
	if (!rc)
		inode_put_locked(&b->fs, i);
	pthread_mutex_unlock(&b->fs.lock);
	if (!d)
		return rc ? rc : -ESTALE;
	rc = open_handle(b, d, flags, &who, out);
	pthread_mutex_lock(&b->fs.lock);
	draft_end_intent_locked(&b->fs, d, &who);
	draft_put_locked(&b->fs, d);
	pthread_mutex_unlock(&b->fs.lock);
	return rc;
}

int fs_box_write(struct fs_box *b, struct handle *h, const void *buf, size_t len, uint64_t off)
{
	struct space_wait w = { .deadline_ns = now_mono_ns() + b->opt.space_wait_ms * 1000000ll };

	return draft_write(&b->fs, h->draft, buf, len, off, &w);
}

int fs_box_flush(struct fs_box *b, struct handle *h, struct published *out)
{
	struct draft *d = h->draft;
	struct published p = { 0 };
	struct space_wait w = { 0 };

	if (out)
		*out = (struct published){ 0 };
	if (d->is_poisoned)
		return -EIO;
	pthread_mutex_lock(&b->fs.lock);
	h->is_flushed = true;
	bool publishes = draft_is_dirty(d) && draft_is_flushed_locked(d) &&
			 (d->has_writes || !d->has_resize);
	pthread_mutex_unlock(&b->fs.lock);
	if (!publishes)
		return 0;
	int rc = publish_draft(&b->fs, d, (uint64_t)h->opener_tgid, &w, &p);
	if (out)
		*out = p;
	else
		published_fini(&b->fs, &p);
	return rc;
}

int fs_box_kill(struct fs_box *b, struct handle *h)
{
	struct draft *d = h->draft;
	struct published p = { 0 };

	pthread_mutex_lock(&b->fs.lock);
	h->is_flushed = true;
	bool poisons = draft_is_dirty(d) && d->dir;
	if (poisons)
		draft_poison_locked(&b->fs, d);
	pthread_mutex_unlock(&b->fs.lock);
	int rc = poisons ? durable_keep_promise(&b->fs, d, &p) : 0;
	published_fini(&b->fs, &p);
	return rc;
}

void fs_box_release(struct fs_box *b, struct handle *h)
{
	struct draft *d = h->draft;
	struct published p = { 0 };
	struct space_wait w = { 0 };

	pthread_mutex_lock(&b->fs.lock);
	draft_get_locked(d);
	bool is_last = draft_detach_locked(d, h);
	pthread_mutex_unlock(&b->fs.lock);
	if (is_last && !d->is_poisoned && draft_is_dirty(d)) {
		publish_draft(&b->fs, d, 0, &w, &p);
		published_fini(&b->fs, &p);
	}
	pthread_mutex_lock(&b->fs.lock);
	pthread_cond_broadcast(&b->fs.changed);
	draft_put_locked(&b->fs, d);
	pthread_mutex_unlock(&b->fs.lock);
	handle_free(&b->fs, h);
}

int fs_box_shut(struct fs_box *b, struct handle *h)
{
	int rc = fs_box_flush(b, h, NULL);

	fs_box_release(b, h);
	return rc;
}

int fs_box_put_file(struct fs_box *b, struct inode *dir, const char *name, const void *buf,
		    size_t len, struct caller_id who)
{
	struct handle *h;
	int rc = fs_box_create(b, dir, name, BOX_TRUNC, who, &h);

	if (rc)
		return rc;
	rc = fs_box_write(b, h, buf, len, 0);
	if (rc) {
		fs_box_kill(b, h);
		fs_box_release(b, h);
		return rc;
	}
	return fs_box_shut(b, h);
}

/* ---- objects ---- */

int fs_box_hold(struct fs_box *b, struct inode *i, struct caller_id who, struct object **out)
{
	guard_lock(&b->fs.lock);
	struct object *o = i->object;

	if (i->kind != INODE_OBJECT || i->state == INODE_GONE || !o || o->is_evicting ||
	    o->state == OBJECT_DROPPED ||
	    (i->state == INODE_REPLACED && now_mono_ns() - i->replaced_ns > REPLACED_GRACE_NS))
		return -ESTALE;
	object_open_locked(o);
	object_touch_locked(&b->fs, o, (uint64_t)who.tid);
	inode_get_locked(i);
	*out = o;
	return 0;
}

int fs_box_pread(struct fs_box *b, struct object *o, void *buf, size_t len, uint64_t off)
{
	const char *tier;

	if (!len)
		return 0;
	autoclose int fd = object_open_frame(&b->fs, o, &tier);
	if (fd < 0)
		return fd;
	ssize_t n = pread(fd, buf, len, (off_t)off);
	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EIO;
}

void fs_box_drop(struct fs_box *b, struct inode *i, struct object *o)
{
	pthread_mutex_lock(&b->fs.lock);
	bool must_free = object_close_locked(&b->fs, o);
	inode_put_locked(&b->fs, i);
	pthread_mutex_unlock(&b->fs.lock);
	if (must_free)
		object_free_unlocked(&b->fs, o);
}

static int read_inode(struct fs_box *b, struct inode *i, struct caller_id who, char **bytes_out,
		      size_t *len_out)
{
	struct object *o;

	pthread_mutex_lock(&b->fs.lock);
	struct draft *d = i->draft;
	if (d)
		draft_get_locked(d);
	pthread_mutex_unlock(&b->fs.lock);
	if (d) {
		size_t size = draft_size(d);
		char *bytes = malloc(size + 1);
		int rc = draft_read(&b->fs, d, bytes, size, 0, len_out);
		put_draft(b, d);
		*bytes_out = bytes;
		return rc;
	}
	int rc = fs_box_hold(b, i, who, &o);
	if (rc)
		return rc;
	char *bytes = malloc(o->size + 1);
	rc = fs_box_pread(b, o, bytes, o->size, 0);
	*len_out = o->size;
	*bytes_out = bytes;
	fs_box_drop(b, i, o);
	return rc;
}

int fs_box_sync(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who)
{
	struct inode *i = fs_box_look(b, dir, name, who);
	struct object *o;
	int rc = i ? fs_box_hold(b, i, who, &o) : -ENOENT;

	if (rc)
		return rc;
	rc = durable_object(&b->fs, o);
	fs_box_drop(b, i, o);
	return rc;
}

static int count_frame(void *arg, uint64_t id)
{
	(void)id;
	++*(int *)arg;
	return 0;
}

int fs_box_n_files(struct tier *t)
{
	int n = 0;

	must(tier_call(t, scan, count_frame, &n) == 0, "scan");
	return n;
}

int fs_box_read(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who,
		char **bytes_out, size_t *len_out)
{
	struct inode *i;
	bool has_draft;
	int rc = ns_lookup(&b->fs, dir, name, &who, &i, &has_draft);

	*bytes_out = NULL;
	if (rc)
		return rc;
	rc = read_inode(b, i, who, bytes_out, len_out);
	fs_box_put(b, i);
	if (rc) {
		free(*bytes_out);
		*bytes_out = NULL;
	}
	return rc;
}

bool fs_box_shows(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who,
		  const void *buf, size_t len)
{
	autofree char *bytes = NULL;
	size_t n = 0;
	int rc = fs_box_read(b, dir, name, who, &bytes, &n);

	if (!rc && n == len && !memcmp(bytes, buf, len))
		return true;
	fprintf(stderr, "fs_box: \"%s\": error %d, %zu bytes instead of %zu%s\n", name, rc, n, len,
		!rc && n == len ? ", other ones" : "");
	return false;
}
