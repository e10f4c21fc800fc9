/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog: this node's name space and object table, kept in RocksDB.
 *
 * Column families:
 *   names    (parent ino, name hash, name) -> entry: everything stat needs, in one point lookup
 *   objects  (object id)                   -> where the bytes are, their checksums, and the name back
 *   control  (text key)                    -> format version, node id, clock ceiling
 *
 * The names key sorts a directory by the 63-bit hash of its names, so a readdir cookie is the hash
 * and stays valid across changes, reopen and restart (the way ext4's hashed directories do it).
 *
 * Thread safety: every function may be called from any thread. A batch belongs to one thread.
 * Errors: negative errno. -ENOENT no such record; -EIO RocksDB failed or a record is corrupt (logged
 * with its key); -EPROTO the record is whole, but of a newer version than this program knows (logged
 * with its key); -ENOSPC, -EACCES, ... as the system told RocksDB; -EROFS a write to a read-only
 * catalog; -ENAMETOOLONG; -EINVAL a caller's mistake. A full disk fails writes and leaves reads alone;
 * writes work again by themselves some seconds after space came back.
 */
#ifndef MCFS_CATALOG_H
#define MCFS_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CATALOG_NAME_MAX 255
#define CATALOG_SYMLINK_MAX 4095
#define CATALOG_HINT_MAX 255
#define CATALOG_CRC_CHUNK (1u << 20) /* bytes covered by one checksum of an object */
#define CATALOG_ROOT_INO 1

enum mcfs_class { MCFS_CLASS_CACHE = 0, MCFS_CLASS_KEEP = 1, MCFS_CLASS_PINNED = 2 };

/* Attributes that users set and directories hand down (xattrs user.mooncake.*). */
struct policy_attr {
	uint8_t class;          /* enum mcfs_class */
	uint8_t class_is_set;   /* set on this very entry, not inherited or defaulted */
	uint8_t pin;            /* 1: never evicted from DRAM */
	uint32_t ttl_s;         /* 0: none; counted from mtime of the version (ctime of the entry) */
	uint8_t hint_len;       /* bytes, any of them */
	char hint[CATALOG_HINT_MAX + 1];
};

/*
 * One name. mode carries the file type. Kept or refused (-EINVAL): a regular file's object_id is never
 * 0, any other's always; a symlink has a target of 1 to CATALOG_SYMLINK_MAX bytes and its size, nothing
 * else has a target.
 */
struct entry {
	uint64_t ino;           /* st_ino, stable across versions and renames */
	uint64_t object_id;     /* the version whose bytes this name shows; 0 for other types */
	uint64_t size;          /* bytes; symlink: length of the target */
	uint32_t mode, uid, gid;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	struct policy_attr policy;
	char *target;           /* symlink only: malloc'd, NUL-terminated; else NULL */
};

/* Releases what entry owns (target); the struct itself is the caller's. */
void entry_fini(struct entry *e);

/* One object (an immutable version of a file's bytes). */
struct object_record {
	uint64_t object_id;
	uint64_t size;          /* bytes */
	uint64_t dram_frame;    /* frame id on the dram tier, 0: not there */
	uint64_t ssd_frame;     /* frame id on the ssd tier, 0: not there */
	uint64_t charged_bytes; /* what its dram frame costs the budget */
	uint64_t parent;        /* the name that shows it */
	uint64_t ino;
	uint8_t class, pin;     /* copies of the entry's, so that a start needs one scan only */
	uint32_t ttl_s;         /* likewise */
	uint8_t is_promise;     /* an fsynced draft: becomes an object if its writer or the daemon dies */
	uint8_t name_len;       /* 0: no name shows it */
	char name[CATALOG_NAME_MAX + 1];
	uint32_t n_crc;         /* ceil(size / CATALOG_CRC_CHUNK), or 0: not known (yet) */
	uint32_t *crc;          /* malloc'd, CRC32C per chunk; NULL when n_crc is 0 */
	struct entry *promise_entry; /* is_promise only: the entry to create; malloc'd; else NULL */
};

void object_record_fini(struct object_record *r);

struct catalog;

struct catalog_conf {
	const char *path;         /* directory, created with mode 0700 when absent; its parent exists */
	uint64_t cache_bytes;     /* block cache, 0: 64 MiB */
	bool is_quiet;            /* damaged records are counted, not logged one by one */
	bool repairs;             /* a format version that is missing or damaged is written anew */
	bool read_only;           /* for tools, also beside a live daemon: nothing is created or written,
				   * it shows what was written by then; -ENOENT when there is none */
};

/*
 * Opens or creates the catalog. Errors: -EBUSY another process has it open (RocksDB LOCK);
 * -EPROTO it was written by a newer format (logged with both versions); -EACCES, -EROFS, -ENOSPC,
 * -EIO as found. Each is logged with path and cause. Blocks for WAL replay.
 */
int catalog_open(const struct catalog_conf *conf, struct catalog **out);
/* Syncs, writes out what is in memory, so that the next open replays nothing, and closes. */
void catalog_close(struct catalog *c);

/*
 * Reads one name. entry_out is written on success only; release it with entry_fini. A damaged record, or
 * one in a file that cannot be read, is logged, counted, and as good as none: -ENOENT. What it showed is a
 * miss, and may be written anew.
 */
int catalog_lookup(struct catalog *c, uint64_t parent, const char *name, struct entry *entry_out);
/* Whether catalog_lookup would find it: 0, or its error. */
int catalog_exists(struct catalog *c, uint64_t parent, const char *name);
/* Reads one object. Release with object_record_fini. */
int catalog_object_get(struct catalog *c, uint64_t object_id, struct object_record *out);

/* 63-bit position of a name in its directory; never 0 (positions 1 and 2 are left to "." and ".."). */
uint64_t catalog_name_cookie(const char *name);

/*
 * Streams a directory in cookie order, from the first name whose cookie is > after. For each name
 * calls fn; fn returns 0 to go on or a positive number to stop (that name counts as not taken), which
 * catalog_readdir then returns. 0: the end was reached. It shows the directory as of the call. name is
 * NUL-terminated; it and e last until fn returns. Damaged records are logged and left out.
 * Names with equal cookies are always offered in one run; a caller that stops inside a run resumes
 * at the run's start with after = cookie - 1. fn must not call the catalog's write functions.
 */
typedef int (*catalog_readdir_fn)(void *arg, uint64_t cookie, const char *name, size_t name_len,
				  const struct entry *e);
int catalog_readdir(struct catalog *c, uint64_t parent, uint64_t after, catalog_readdir_fn fn,
		    void *arg);
/* 1 empty, 0 not, negative errno. */
int catalog_dir_is_empty(struct catalog *c, uint64_t parent);

/*
 * Calls fn for every object record, in id order, until it returns non-zero (which is returned). It shows
 * the table as of the call, so fn may write. A corrupt record is logged, counted in *n_corrupt_out (may
 * be NULL) and skipped. after: begins behind that id.
 */
typedef int (*catalog_object_fn)(void *arg, const struct object_record *r);
int catalog_scan_objects(struct catalog *c, catalog_object_fn fn, void *arg, uint64_t *n_corrupt_out);
int catalog_scan_objects_after(struct catalog *c, uint64_t after, catalog_object_fn fn, void *arg,
			       uint64_t *n_corrupt_out);
/* The same for every name of every directory, a directory's names together. */
typedef int (*catalog_name_fn)(void *arg, uint64_t parent, const char *name, const struct entry *e);
int catalog_scan_names(struct catalog *c, catalog_name_fn fn, void *arg, uint64_t *n_corrupt_out);

/*
 * A batch is applied atomically, in its order, or not at all. put/del copy what they need; errors are
 * kept and the first is returned by commit. create returns NULL without memory; every function takes
 * that NULL, and commit says -ENOMEM.
 */
struct catalog_batch;
struct catalog_batch *catalog_batch_create(struct catalog *c);
/* "." and "..", empty names and ones with a slash are -EINVAL. */
void catalog_batch_put_entry(struct catalog_batch *b, uint64_t parent, const char *name,
			     const struct entry *e);
void catalog_batch_del_entry(struct catalog_batch *b, uint64_t parent, const char *name);
void catalog_batch_put_object(struct catalog_batch *b, const struct object_record *r);
void catalog_batch_del_object(struct catalog_batch *b, uint64_t object_id);
/* Writes and destroys the batch, also on error. sync: the WAL is on disk when it returns 0. */
int catalog_batch_commit(struct catalog_batch *b, bool sync);
void catalog_batch_destroy(struct catalog_batch *b); /* without writing */

/* Everything written before is on disk when it returns 0. */
int catalog_sync(struct catalog *c);

/* Control values: integers under a text key of 1 to 8,192 bytes. -ENOENT when absent. */
int catalog_control_get(struct catalog *c, const char *key, uint64_t *value_out);
int catalog_control_put(struct catalog *c, const char *key, uint64_t value, bool sync);
void catalog_batch_put_control(struct catalog_batch *b, const char *key, uint64_t value);
void catalog_batch_del_control(struct catalog_batch *b, const char *key);
/* Those whose keys begin with prefix, in order, as of the call; rest: of the key. fn not 0: stops, returned. */
typedef int (*catalog_control_fn)(void *arg, const char *rest, uint64_t value);
int catalog_control_scan(struct catalog *c, const char *prefix, catalog_control_fn fn, void *arg);

struct catalog_stats {
	uint64_t n_entries_estimate, n_objects_estimate;
	uint64_t disk_bytes;     /* all files of the catalog, the WAL included */
	uint64_t memtable_bytes; /* in memory, not yet in table files */
	uint64_t cache_bytes;    /* cached blocks; filters and indexes, about 2 to 3 bytes per record */
};
/* Reads the catalog's folder: not for a request's path. */
void catalog_get_stats(struct catalog *c, struct catalog_stats *out);

#endif
