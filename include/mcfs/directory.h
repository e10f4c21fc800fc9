/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory: which node of the cluster holds what, kept in a Valkey or Redis (>= 7) server.
 *
 * Soft state: everything in it comes from the catalogs of the nodes and may be wiped at any moment. A name is known by
 * the canonical path of its directory ("/" or "/a/b") and its last part. Keys, P being the prefix (cluster name):
 *
 *   P:d:{HASH:BB}   hash; the names of one directory whose cookie has BB as its top 8 bits. HASH: XXH3-128 of the path
 *                   field: the name (names of 32 to 64 hex digits packed), value: struct directory_value packed
 *   P:n             hash; slot -> node id, who has which slot
 *   P:n:{SLOT}      string with a lease (PX): struct directory_node packed
 *   P:box:{SLOT}    stream, bounded, gone 30 s after the last letter: letters to who has that slot
 *   P:box:{SLOT}:ID string, for 30 s: the letter ID has been dealt with
 *   P:ev            stream, capped: events in sequence
 *
 * A value is changed by scripts alone, each of one key: the highest version wins; what shows the same object (or is a
 * directory like what is there, or a copy of it) gains a holder and the later metadata; what is lower is answered with
 * what is there. A removed name stays as a tombstone: kind TOMBSTONE, with the version of the removal and its time as
 * mtime_ns, for seven days. So messages may be repeated, delayed and come in any order. A directory and what is none
 * never replace each other but by a removal between (-ESTALE).
 *
 * Threads of its own talk to the server. When it is away, lookups answer -ENETDOWN at once, announcements wait in
 * memory up to a bound, then are given up: on_resync is called when it is back (also when its run id or data changed),
 * and what this node holds is announced anew.
 *
 * Deadlines: CLOCK_MONOTONIC in nanoseconds. Errors: negative errno. -ENETDOWN the server is away (or never answered
 * yet); -ETIMEDOUT; -EACCES it refuses our password; -ENOSPC it is out of memory; -EIO what it said makes no sense;
 * -EINVAL, -ENAMETOOLONG what was asked cannot be; -ENOMEM. One value that makes no sense is logged and counts as none.
 * Thread safety: all functions.
 */
#ifndef MCFS_DIRECTORY_H
#define MCFS_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECTORY_HOLDERS_MAX 16  /* more holders than these are not listed */
#define DIRECTORY_SLOTS 4096      /* nodes at once */
#define DIRECTORY_NAME_MAX 255
#define DIRECTORY_TARGET_MAX 4095
#define DIRECTORY_LETTER_MAX 65536

enum directory_kind { DIRECTORY_NONE, DIRECTORY_FILE, DIRECTORY_DIR, DIRECTORY_SYMLINK, DIRECTORY_TOMBSTONE };

struct directory_value {
	enum directory_kind kind;
	uint64_t version;         /* of the name: what is compared */
	uint64_t object;          /* which bytes: the same after a rename or chmod, whatever the version */
	uint64_t size;            /* bytes */
	uint32_t mode;            /* with the type */
	uint32_t uid, gid;
	int64_t mtime_ns;
	bool is_copy;             /* announced: another file of that name and size has the same bytes, by contract */
	bool is_unsure;           /* before, of done: the change was repeated, and may have found itself */
	char *target;             /* DIRECTORY_SYMLINK: malloc'd; else NULL */
	uint32_t n_holders;       /* slots of the nodes that have the bytes, oldest first */
	uint16_t holders[DIRECTORY_HOLDERS_MAX];
};

void directory_value_fini(struct directory_value *v);

struct directory_node {
	uint16_t slot;
	uint64_t id, incarnation;
	char name[64];
	char address[280];        /* HOST:PORT of its peer endpoint */
	uint32_t load;            /* 0 idle .. 1000 saturated */
	uint64_t dram_bytes, dram_used_bytes, ssd_bytes, ssd_used_bytes, n_objects;
	int64_t lease_ms;         /* left when it was read; of ourselves the time since the last renewal counts */
};

struct directory_conf {
	const char *url;          /* redis://[[USER:]PASSWORD@]HOST[:PORT][/DB] */
	const char *prefix;       /* cluster name, at most 63 bytes of [A-Za-z0-9._-] */
	struct directory_node self; /* slot: one to be preferred; directory_slot is what it got */
	uint32_t lease_ms;        /* 0: 5000; renewed five times in that time */
	uint32_t lookup_ms;       /* longest wait of a lookup for an answer, whatever its deadline; 0: 100 */
	uint32_t announce_rate;   /* changes per second, 0: no limit */
	uint64_t max_queue_bytes; /* announcements in memory while it is away; 0: 64 MiB */
	/*
	 * Called on a thread of the directory, at the first connection too, maybe before directory_create returns (its
	 * output is written by then). What it announces is slowed down, not given up, while the server takes it.
	 * directory_destroy waits for its end.
	 */
	void (*on_resync)(void *arg);
	/* The numbers of self that change, before each renewal, on another of its threads. May be NULL. */
	void (*on_renew)(void *arg, struct directory_node *self);
	/*
	 * A letter that another node posted to this one, on a thread for letters, which come one at a time; when
	 * it returns, the letter has been dealt with. Any bytes; it may come twice, and after its sender gave up.
	 * bytes are the caller's. directory_destroy waits for its end. May be NULL: nothing is answered then.
	 */
	void (*on_letter)(void *arg, const void *bytes, size_t len);
	void *arg;
};

struct directory;

/* 0: url is one that directory_create takes; else -EINVAL. Nothing is looked up or opened. */
int directory_url_check(const char *url);
/* Starts; the server need not be there. -EINVAL: url or prefix (logged). */
int directory_create(const struct directory_conf *conf, struct directory **out);
/* Sends what is queued for at most a second, gives the lease back, and ends. */
void directory_destroy(struct directory *d);

/*
 * 0 while it is usable, else the reason as an errno; text (of text_len) gets it in words, "" when usable. With 0 it
 * may say why the server takes no changes (it is out of memory), until it does: lookups work.
 */
int directory_state(struct directory *d, char *text, size_t text_len);
/* Our slot; -1: none yet. */
int directory_slot(struct directory *d);
/* Our lease is known to hold at the server: peers may rely on what we grant. */
bool directory_lease_holds(struct directory *d);

struct directory_name {
	const char *dir, *name;
};

/*
 * Looks up n names in one pipeline. values_out[i] of every i is written when it returns 0 (release each with
 * directory_value_fini): DIRECTORY_NONE and DIRECTORY_TOMBSTONE are misses. Blocks until the deadline or
 * lookup_ms, which should suit the largest n, and as long again where nothing is answered at all: then the server is
 * away for everybody, until it answers.
 */
int directory_lookup(struct directory *d, const struct directory_name *names, size_t n,
		     struct directory_value *values_out, int64_t deadline_ns);

/*
 * Lists a directory in the order of catalog_name_cookie, from the first name whose cookie is > after, a bucket at a
 * time. Tombstones are left out. fn: 0 to go on, else stop with that. Names with equal cookies come in one run.
 */
typedef int (*directory_list_fn)(void *arg, uint64_t cookie, const char *name, const struct directory_value *v);
int directory_list(struct directory *d, const char *dir, uint64_t after, directory_list_fn fn, void *arg,
		   int64_t deadline_ns);

/*
 * Changes. announce: this node holds value.object under the name (holders are ignored: it is us). retract: this node has
 * object (0: whatever it had) no more; the name goes with its last holder. remove: the name is gone as of version, which becomes a tombstone.
 *
 * done (may be NULL) is called once, on a thread of the directory: rc 0 and what the name was before (its holders may
 * have to be told; after a lost connection a change is repeated, which is_unsure says), or: rc -ESTALE and what is newer
 * than ours; rc as said above, also -ENOBUFS given up, and -ECANCELED the directory is being destroyed. before, never
 * NULL, is the callee's for the call; it may change more, and must not wait (directory_flush, directory_destroy).
 * Without memory for the change itself done is called by the caller's thread, with -ENOMEM.
 *
 * The order of one name's changes is kept. They are batched; delay_ms: at most so long. Changes wait while the server
 * is away or we have no lease.
 */
typedef void (*directory_done_fn)(void *arg, int rc, const struct directory_value *before);
void directory_announce(struct directory *d, const char *dir, const char *name, const struct directory_value *value,
			uint32_t delay_ms, directory_done_fn done, void *arg);
void directory_retract(struct directory *d, const char *dir, const char *name, uint64_t object,
		       directory_done_fn done, void *arg);
void directory_remove(struct directory *d, const char *dir, const char *name, uint64_t version,
		      directory_done_fn done, void *arg);
/* Waits until everything queued before is done. */
int directory_flush(struct directory *d, int64_t deadline_ns);

/* The nodes whose leases hold, from memory, at most a second old. fn is called for each; returns how many. */
size_t directory_each_node(struct directory *d, void (*fn)(void *arg, const struct directory_node *n), void *arg);
/* -ENOENT: nobody has that slot now. Asks the server when memory does not know. */
int directory_node_of(struct directory *d, uint16_t slot, struct directory_node *out, int64_t deadline_ns);

/*
 * Posts a letter of 1 to DIRECTORY_LETTER_MAX bytes to the node that has a slot and waits until it has been dealt
 * with there: for nodes that do not reach each other. -ENOENT: nobody has that slot, or who had it when this began
 * has it no more; -ETIMEDOUT: not dealt with by the deadline, though it may be later; -ECANCELED: destroyed;
 * -EINVAL; and as above. Must not be called by on_letter.
 */
int directory_post(struct directory *d, uint16_t slot, const void *bytes, size_t len, int64_t deadline_ns);

struct directory_stats {
	bool is_up;
	uint64_t n_lookups, n_lookup_errors, n_announced, n_retracted, n_removed, n_stale, n_given_up, n_resyncs;
	uint64_t queue_bytes, n_queued, n_letters;
	int64_t rtt_ns;           /* of a round trip, smoothed */
};
void directory_get_stats(struct directory *d, struct directory_stats *out);

#endif
