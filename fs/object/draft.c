/* SPDX-License-Identifier: Apache-2.0 */
/* Names, members and lifetime of drafts; their bytes are in draft_bytes.c. */
#include "object/draft.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "handle.h"
#include "inode_table.h"
#include "object/durable.h"
#include "object/object.h"

#define N_BUCKETS 4096
#define N_INTENTS 256

struct draft_table {
	struct draft *buckets[N_BUCKETS]; /* linked drafts, by directory and name */
	struct draft **pinned;            /* drafts with a pending redirect */
	uint32_t n_pinned, cap_pinned;
	uint32_t n;
	struct intent {
		pid_t tid;
		uid_t uid;
		bool is_private;
		int64_t until_ns; /* 0: free */
	} intents[N_INTENTS]; /* a ring: the oldest gives way */
	uint32_t next_intent;
	int64_t last_intent_ns;
};

struct draft_table *draft_table_create(void)
{
	return xcalloc(1, sizeof(struct draft_table));
}

void draft_table_destroy(struct draft_table *t)
{
	if (!t)
		return;
	free(t->pinned);
	free(t);
}

static struct draft **bucket_of(struct fs *fs, uint64_t dir_ino, const char *name)
{
	return &fs->drafts->buckets[XXH3_64bits_withSeed(name, strlen(name), dir_ino) % N_BUCKETS];
}

static bool has_name(const struct draft *d, uint64_t dir_ino, const char *name)
{
	return d->dir->key == dir_ino && !strcmp(d->inode->name, name);
}

static void link_name(struct fs *fs, struct draft *d, struct inode *dir, const char *name)
{
	struct draft **b = bucket_of(fs, dir->key, name);

	inode_set_name_locked(d->inode, dir->key, name);
	inode_get_locked(dir);
	d->dir = dir;
	d->hash_next = *b;
	*b = d;
	d->dir_next = dir->drafts;
	dir->drafts = d;
	dir->n_drafts++;
}

static void unlink_name(struct fs *fs, struct draft *d)
{
	struct inode *dir = d->dir;

	if (!dir)
		return;
	for (struct draft **p = bucket_of(fs, dir->key, d->inode->name); *p; p = &(*p)->hash_next)
		if (*p == d) {
			*p = d->hash_next;
			break;
		}
	for (struct draft **p = &dir->drafts; *p; p = &(*p)->dir_next)
		if (*p == d) {
			*p = d->dir_next;
			break;
		}
	dir->n_drafts--;
	d->dir = NULL;
	inode_put_locked(fs, dir);
}

struct draft *draft_create_locked(struct fs *fs, struct inode *dir, const char *name,
				  struct entry *e, uint64_t id, const struct caller_id *who,
				  struct object *base)
{
	struct draft *d = xcalloc(1, sizeof(*d));

	if (!e->ino)
		e->ino = id;
	pthread_rwlock_init(&d->data, NULL);
	pthread_mutex_init(&d->bytes, NULL);
	pthread_mutex_init(&d->promise_lock, NULL);
	d->frame = FRAME_NONE;
	d->base_fd = -1;
	d->refs = 1;
	d->inode = inode_create_locked(fs, id, INODE_DRAFT, dir->key, name, e);
	d->inode->draft = d;
	if (base) {
		object_open_locked(base);
		d->base = base;
		d->based_on_id = base->id;
		d->size = base->size;
	}
	link_name(fs, d, dir, name);
	draft_join_locked(d, who);
	fs->drafts->n++;
	return d;
}

struct member *draft_join_locked(struct draft *d, const struct caller_id *who)
{
	for (uint32_t k = 0; k < d->n_members; k++) {
		struct member *m = &d->members[k];
		if (m->tgid == who->tgid && (who->tgid || m->uid == who->uid))
			return m;
	}
	d->members = realloc(d->members, (d->n_members + 1) * sizeof(*d->members));
	if (!d->members)
		abort();
	d->members[d->n_members] = (struct member){ .tgid = who->tgid, .uid = who->uid };
	return &d->members[d->n_members++];
}

void draft_attach_locked(struct draft *d, struct handle *h)
{
	h->draft_next = d->handles;
	d->handles = h;
	d->n_handles++;
	d->is_opening = false;
	if (h->is_writable)
		d->wrote_since_open = false;
}

bool draft_detach_locked(struct draft *d, struct handle *h)
{
	struct handle **at = &d->handles;

	while (*at != h)
		at = &(*at)->draft_next;
	*at = h->draft_next;
	return --d->n_handles == 0;
}

void draft_pin_redirect_locked(struct draft *d, const struct caller_id *who)
{
	int64_t until = now_mono_ns() + REDIRECT_PIN_NS;

	for (uint32_t k = 0; k < d->n_redirects; k++)
		if (d->redirects[k].tid == who->tid) {
			d->redirects[k].until_ns = until;
			return;
		}
	d->redirects = realloc(d->redirects, (d->n_redirects + 1) * sizeof(*d->redirects));
	if (!d->redirects)
		abort();
	d->redirects[d->n_redirects++] = (struct redirect){ who->tid, until };
}

static bool has_pending_redirect(const struct draft *d, int64_t now_ns)
{
	for (uint32_t k = 0; k < d->n_redirects; k++)
		if (d->redirects[k].until_ns > now_ns)
			return true;
	return false;
}

static bool is_awaited_by(const struct draft *d, pid_t tid)
{
	for (uint32_t k = 0; k < d->n_redirects; k++)
		if (d->redirects[k].tid == tid && d->redirects[k].until_ns > now_mono_ns())
			return true;
	return false;
}

static bool is_intent_of(const struct intent *i, const struct caller_id *who)
{
	return i->until_ns && i->tid == who->tid && (who->tid || i->uid == who->uid);
}

void draft_leave_intent_locked(struct fs *fs, const struct caller_id *who, bool is_private)
{
	struct draft_table *t = fs->drafts;
	int64_t until = now_mono_ns() + REDIRECT_PIN_NS;

	draft_end_intent_locked(fs, NULL, who);
	t->intents[t->next_intent++ % N_INTENTS] = (struct intent){
		.tid = who->tid, .uid = who->uid, .is_private = is_private, .until_ns = until };
	t->last_intent_ns = until;
}

bool draft_has_intent_locked(struct fs *fs, const struct caller_id *who, bool *is_private_out)
{
	struct draft_table *t = fs->drafts;
	int64_t now = t->last_intent_ns ? now_mono_ns() : 0;

	if (t->last_intent_ns <= now)
		return false; /* the usual case: nobody has left one lately */
	for (int k = 0; k < N_INTENTS; k++)
		if (is_intent_of(&t->intents[k], who) && t->intents[k].until_ns > now) {
			*is_private_out = t->intents[k].is_private;
			return true;
		}
	return false;
}

void draft_end_intent_locked(struct fs *fs, struct draft *d, const struct caller_id *who)
{
	struct draft_table *t = fs->drafts;

	for (int k = 0; t->last_intent_ns && k < N_INTENTS; k++)
		if (is_intent_of(&t->intents[k], who))
			t->intents[k].until_ns = 0;
	for (uint32_t k = 0; d && k < d->n_redirects; k++)
		if (d->redirects[k].tid == who->tid) {
			d->redirects[k] = d->redirects[--d->n_redirects];
			return;
		}
}

bool draft_is_dirty(const struct draft *d)
{
	return d->has_writes || d->has_resize || d->never_published;
}

bool draft_is_hollow_locked(const struct draft *d)
{
	return d->is_of_remote && !d->n_handles && !draft_is_dirty(d) && !d->published_id;
}

bool draft_is_flushed_locked(const struct draft *d)
{
	for (const struct handle *h = d->handles; h; h = h->draft_next)
		if (h->is_writable && !h->is_flushed)
			return false;
	return !d->is_opening;
}

uint64_t draft_shown_id(const struct draft *d)
{
	if (draft_is_dirty(d))
		return 0;
	return d->published_id ? d->published_id : d->based_on_id;
}

/* Worth hiding the published object for: somebody is at it, or it will publish yet. */
static bool is_active(const struct draft *d)
{
	if (d->is_dropped || d->is_poisoned || !d->dir)
		return false;
	return d->n_handles || draft_is_dirty(d) || has_pending_redirect(d, now_mono_ns());
}

static bool is_member(const struct draft *d, const struct caller_id *who)
{
	for (uint32_t k = 0; k < d->n_members; k++) {
		const struct member *m = &d->members[k];
		if (m->tgid == who->tgid && (who->tgid || m->uid == who->uid))
			return true;
	}
	return false;
}

/* How much a name shows this draft to who; 0: not at all. */
static int rank(const struct draft *d, const struct caller_id *who)
{
	bool is_open = false;

	if (d->is_dropped || d->is_poisoned || !d->dir)
		return 0;
	if (is_awaited_by(d, who->tid))
		return 4;
	if (!is_member(d, who))
		return 0;
	for (const struct handle *h = d->handles; h; h = h->draft_next) {
		if (h->opener_tgid != who->tgid)
			continue;
		if (h->is_writable && !h->is_flushed)
			return 3;
		is_open = true;
	}
	return draft_is_dirty(d) ? 2 : is_open;
}

bool draft_is_visible_locked(const struct draft *d, const struct caller_id *who)
{
	return rank(d, who) > 0;
}

struct draft *draft_find_locked(struct fs *fs, uint64_t dir_ino, const char *name,
				const struct caller_id *who, bool *has_active_out)
{
	struct draft *best = NULL;
	int best_rank = 0;

	*has_active_out = false;
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next) {
		if (!has_name(d, dir_ino, name) || !is_active(d))
			continue;
		*has_active_out = true;
		int r = rank(d, who);
		if (r > best_rank) {
			best = d;
			best_rank = r;
		}
	}
	return best;
}

bool draft_name_is_busy_locked(struct fs *fs, uint64_t dir_ino, const char *name)
{
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next)
		if (has_name(d, dir_ino, name))
			return true;
	return false;
}

struct draft *draft_find_shared_locked(struct fs *fs, uint64_t dir_ino, const char *name,
				       uint64_t object_id)
{
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next) {
		if (!has_name(d, dir_ino, name) || d->is_dropped || d->is_poisoned)
			continue;
		if ((!d->is_private && is_active(d)) || (object_id && d->published_id == object_id))
			return d;
	}
	return NULL;
}

struct draft *draft_find_joinable_locked(struct fs *fs, uint64_t dir_ino, const char *name,
					 uint64_t object_id)
{
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next)
		if (has_name(d, dir_ino, name) && !d->is_private && is_active(d) &&
		    (d->published_id ? d->published_id : d->based_on_id) == object_id)
			return d; /* one of a replaced version would bring that version back */
	return NULL;
}

bool draft_excl_exists_locked(struct fs *fs, uint64_t dir_ino, const char *name,
			      const struct caller_id *who)
{
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next)
		if (has_name(d, dir_ino, name) && d->is_excl && is_active(d) &&
		    !draft_is_visible_locked(d, who))
			return true;
	return false;
}

void draft_get_locked(struct draft *d)
{
	d->refs++;
}

static bool must_stay(const struct draft *d, int64_t now_ns)
{
	return d->refs || d->n_handles || has_pending_redirect(d, now_ns);
}

static void pin(struct fs *fs, struct draft *d)
{
	struct draft_table *t = fs->drafts;

	for (uint32_t k = 0; k < t->n_pinned; k++)
		if (t->pinned[k] == d)
			return;
	if (t->n_pinned == t->cap_pinned) {
		t->cap_pinned = t->cap_pinned ? t->cap_pinned * 2 : 16;
		t->pinned = realloc(t->pinned, t->cap_pinned * sizeof(*t->pinned));
		if (!t->pinned)
			abort();
	}
	t->pinned[t->n_pinned++] = d;
}

static void unpin(struct fs *fs, const struct draft *d)
{
	struct draft_table *t = fs->drafts;

	for (uint32_t k = 0; k < t->n_pinned; k++)
		if (t->pinned[k] == d) {
			t->pinned[k] = t->pinned[--t->n_pinned];
			return;
		}
}

static void free_draft(struct draft *d)
{
	pthread_rwlock_destroy(&d->data);
	pthread_mutex_destroy(&d->bytes);
	pthread_mutex_destroy(&d->promise_lock);
	free(d->members);
	free(d->redirects);
	free(d);
}

void draft_abandon(struct draft *d)
{
	if (d->base_fd >= 0)
		close(d->base_fd);
	if (d->frame.id)
		close(d->frame.fd); /* found as an orphan at the next start */
	ranges_fini(&d->written);
	crc_track_fini(&d->crc);
	free_draft(d);
}

/* Nobody can reach it any more: its bytes go back, its inode stays for the kernel. */
static void drop(struct fs *fs, struct draft *d)
{
	struct inode *i = d->inode;

	d->is_dropped = true;
	unpin(fs, d);
	i->draft = NULL;
	i->dropped_id = draft_shown_id(d);
	i->e.size = d->size;
	i->state = INODE_REPLACED; /* GETATTR is answered for the grace time; the name is kept for redirects */
	i->replaced_ns = now_mono_ns();
	unlink_name(fs, d);
	fs->drafts->n--;
	pthread_cond_broadcast(&fs->changed);

	pthread_mutex_unlock(&fs->lock);
	struct object *base = draft_release_bytes(fs, d);
	if (d->promise_id)
		durable_forget_promise(fs, d);
	pthread_mutex_lock(&fs->lock);
	bool must_free = base && object_close_locked(fs, base);
	inode_put_locked(fs, i);
	if (must_free) {
		pthread_mutex_unlock(&fs->lock);
		object_free_unlocked(fs, base);
		pthread_mutex_lock(&fs->lock);
	}
	free_draft(d);
}

void draft_put_locked(struct fs *fs, struct draft *d)
{
	d->refs--;
	if (d->is_dropped || d->refs || d->n_handles)
		return;
	if (has_pending_redirect(d, now_mono_ns()))
		pin(fs, d);
	else
		drop(fs, d);
}

void draft_put(struct fs *fs, struct draft *d)
{
	guard_lock(&fs->lock);
	draft_put_locked(fs, d);
}

void draft_expire_locked(struct fs *fs, int64_t now_ns)
{
	struct draft_table *t = fs->drafts;

	for (uint32_t k = 0; k < t->n_pinned;) {
		struct draft *d = t->pinned[k];
		if (has_pending_redirect(d, now_ns)) {
			k++;
			continue;
		}
		t->pinned[k] = t->pinned[--t->n_pinned];
		if (!must_stay(d, now_ns)) {
			drop(fs, d); /* releases the lock for a moment: start over */
			k = 0;
		}
	}
}

void draft_list_add_locked(struct draft_list *l, struct draft *d)
{
	l->v = realloc(l->v, (l->n + 1) * sizeof(*l->v));
	if (!l->v)
		abort();
	l->v[l->n++] = d;
	draft_get_locked(d);
}

void draft_unlink_locked(struct fs *fs, struct draft *d)
{
	unlink_name(fs, d);
	d->inode->state = INODE_GONE;
}

void draft_rename_locked(struct fs *fs, struct draft *d, struct inode *dir, const char *name)
{
	unlink_name(fs, d);
	link_name(fs, d, dir, name);
}

void draft_poison_locked(struct fs *fs, struct draft *d)
{
	if (d->is_poisoned)
		return;
	log_debug("draft of %s: its writer was killed, thrown away", d->inode->name);
	d->is_poisoned = true;
	counter_inc(drafts_poisoned);
	draft_unlink_locked(fs, d);
	pthread_cond_broadcast(&fs->changed);
}

uint32_t draft_count_locked(struct fs *fs)
{
	return fs->drafts->n;
}

/* Also while RELEASE is publishing it: then it has no handle any more, and is dirty until it is done. */
static bool is_settling(const struct draft *d)
{
	return !d->is_dropped && !d->is_poisoned && draft_is_dirty(d) && draft_is_flushed_locked(d) &&
	       now_mono_ns() < d->last_use_ns + SETTLE_WAIT_NS;
}

struct draft *draft_find_settling_locked(struct fs *fs, uint64_t dir_ino, const char *name,
					 const struct caller_id *who)
{
	for (struct draft *d = *bucket_of(fs, dir_ino, name); d; d = d->hash_next)
		if (has_name(d, dir_ino, name) && is_settling(d) && !rank(d, who))
			return d;
	return NULL;
}

void draft_settle_locked(struct fs *fs, struct draft *d)
{
	while (is_settling(d))
		fs_wait_changed(fs, d->last_use_ns + SETTLE_WAIT_NS);
}
