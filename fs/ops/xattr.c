/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extended attributes user.mooncake.*: what is known of an object, and the wishes users set on it
 * (or on a directory, for what is created in it later). listxattr names only what was set, so that
 * copying tools do not carry facts about one object over to another.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "cluster/cluster.h"
#include "mcfs/catalog.h"
#include "object/durable.h"
#include "object/namespace.h"
#include "object/object.h"
#include "ops/ops.h"
#include "options.h"

#define PREFIX "user.mooncake."
#define MAX_VALUE 65536 /* XATTR_SIZE_MAX of the kernel */

static const char *const class_names[] = { "cache", "keep", "pinned" };

/* What an xattr is computed from, copied under fs->lock. */
struct facts {
	struct fs *fs;
	struct entry e;
	bool is_file, is_draft, is_gone;
	bool on_dram, on_ssd, is_remote;
	uint64_t parent;
	char *name;     /* malloc'd, or NULL */
	uint64_t object_id;
};

/* Each writes a value of at most size bytes (no NUL) and returns its length or -errno. */
typedef ssize_t (*get_fn)(const struct facts *f, char *buf, size_t size);

static ssize_t put(char *buf, size_t size, const char *text)
{
	size_t len = strlen(text);

	if (len > size)
		return -ERANGE;
	memcpy(buf, text, len);
	return (ssize_t)len;
}

static ssize_t put_u64(char *buf, size_t size, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return put(buf, size, text);
}

static ssize_t get_tier(const struct facts *f, char *buf, size_t size)
{
	if (!f->is_file)
		return -ENODATA;
	if (f->is_remote)
		return put(buf, size, "remote");
	/* An empty object needs no frame; it is as near as memory. */
	return put(buf, size, f->on_dram || !f->on_ssd ? "dram" : "ssd");
}

static ssize_t get_state(const struct facts *f, char *buf, size_t size)
{
	if (!f->is_file)
		return -ENODATA;
	return put(buf, size, f->is_draft ? "draft" : f->is_gone ? "replaced" : f->is_remote ? "remote" : "ready");
}

static ssize_t get_eta(const struct facts *f, char *buf, size_t size)
{
	return f->is_file && !f->is_draft && !f->is_remote ? put(buf, size, "0") : -ENODATA;
}

/* Names of the nodes that have it, comma-separated. */
static ssize_t get_holders(const struct facts *f, char *buf, size_t size)
{
	if (!f->is_file || f->is_draft)
		return -ENODATA;
	if (!f->fs->cluster)
		return put(buf, size, f->fs->opt->node);
	ssize_t n = f->name ? remote_holders(f->fs, f->parent, f->name, buf, size) : -ENODATA;
	return n == -ENODATA && !f->is_remote ? put(buf, size, f->fs->opt->node) : n;
}

static ssize_t get_version(const struct facts *f, char *buf, size_t size)
{
	return f->object_id ? put_u64(buf, size, f->object_id) : -ENODATA;
}

/* One CRC32C in hexadecimal per MiB, comma-separated. */
static ssize_t get_crc32c(const struct facts *f, char *buf, size_t size)
{
	struct object_record r;
	size_t n = 0;

	if (!f->object_id || catalog_object_get(f->fs->catalog, f->object_id, &r))
		return -ENODATA;
	for (uint32_t k = 0; k < r.n_crc; k++) {
		char text[12];
		int len = snprintf(text, sizeof(text), k ? ",%08x" : "%08x", r.crc[k]);
		if (n + (size_t)len > size) {
			object_record_fini(&r);
			return -E2BIG;
		}
		memcpy(buf + n, text, (size_t)len);
		n += (size_t)len;
	}
	object_record_fini(&r);
	return (ssize_t)n;
}

static ssize_t get_class(const struct facts *f, char *buf, size_t size)
{
	return put(buf, size, class_names[f->e.policy.class % 3]);
}

static ssize_t get_pin(const struct facts *f, char *buf, size_t size)
{
	return put(buf, size, f->e.policy.pin ? "1" : "0");
}

static ssize_t get_ttl(const struct facts *f, char *buf, size_t size)
{
	return put_u64(buf, size, f->e.policy.ttl_s);
}

static ssize_t get_hint(const struct facts *f, char *buf, size_t size)
{
	if (!f->e.policy.hint_len)
		return -ENODATA;
	if (f->e.policy.hint_len > size)
		return -ERANGE;
	memcpy(buf, f->e.policy.hint, f->e.policy.hint_len);
	return f->e.policy.hint_len;
}

/* Setters: value is NUL-terminated text; "" comes from removexattr and means the default. */
typedef int (*set_fn)(struct policy_attr *p, const char *value);

static int set_class(struct policy_attr *p, const char *value)
{
	for (uint8_t c = 0; c < 3; c++)
		if (!strcmp(value, class_names[c])) {
			p->class = c;
			p->class_is_set = 1;
			return 0;
		}
	if (*value)
		return -EINVAL;
	p->class = MCFS_CLASS_CACHE;
	p->class_is_set = 0;
	return 0;
}

static int set_pin(struct policy_attr *p, const char *value)
{
	if (*value && strcmp(value, "0") && strcmp(value, "1"))
		return -EINVAL;
	p->pin = *value == '1';
	return 0;
}

static int set_ttl(struct policy_attr *p, const char *value)
{
	uint64_t ttl = 0;
	int rc = *value ? parse_u64(value, 0, UINT32_MAX, &ttl) : 0;

	if (!rc)
		p->ttl_s = (uint32_t)ttl;
	return rc ? -EINVAL : 0;
}

static int set_hint(struct policy_attr *p, const char *value)
{
	size_t len = strlen(value);

	if (len > CATALOG_HINT_MAX)
		return -E2BIG;
	memcpy(p->hint, value, len + 1);
	p->hint_len = (uint8_t)len;
	return 0;
}

static const struct xattr_row {
	const char *name;
	get_fn get;
	set_fn set; /* NULL: read-only */
} rows[] = {
	{ "tier", get_tier, NULL },       { "state", get_state, NULL },
	{ "eta_us", get_eta, NULL },      { "holders", get_holders, NULL },
	{ "version", get_version, NULL }, { "crc32c", get_crc32c, NULL },
	{ "class", get_class, set_class }, { "pin", get_pin, set_pin },
	{ "ttl_s", get_ttl, set_ttl },    { "hint", get_hint, set_hint },
};

#define N_ROWS (sizeof(rows) / sizeof(*rows))

static const struct xattr_row *find_row(const char *name)
{
	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
		return NULL;
	for (size_t k = 0; k < N_ROWS; k++)
		if (!strcmp(name + strlen(PREFIX), rows[k].name))
			return &rows[k];
	return NULL;
}

/* The published version that an inode stands for: a dirty draft for the one it published last. */
static uint64_t shown_version_locked(const struct inode *i)
{
	if (i->kind == INODE_OBJECT)
		return i->key;
	if (!i->draft)
		return i->dropped_id;
	uint64_t id = draft_shown_id(i->draft);
	return id ? id : i->draft->published_id;
}

static void collect(struct fs *fs, struct inode *i, struct facts *f)
{
	guard_lock(&fs->lock);
	*f = (struct facts){ .fs = fs, .e = i->e };
	f->e.target = NULL;
	f->is_file = i->kind == INODE_OBJECT || i->kind == INODE_DRAFT;
	f->is_draft = i->draft && draft_is_dirty(i->draft);
	f->is_gone = i->state != INODE_LIVE;
	f->object_id = shown_version_locked(i);
	struct object *o = f->object_id ? object_find_locked(fs, f->object_id) : NULL;
	f->on_dram = i->draft || (o && o->dram_frame);
	f->on_ssd = o && o->ssd_frame;
	f->is_remote = i->is_remote;
	f->parent = i->parent;
	f->name = i->name ? xstrdup(i->name) : NULL;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs *fs = req_fs(req);
	const struct xattr_row *row = find_row(name);
	struct facts f;

	if (!row) {
		reply_err(req, strncmp(name, PREFIX, strlen(PREFIX)) ? -EOPNOTSUPP : -ENODATA);
		return;
	}
	autofree char *buf = xcalloc(1, MAX_VALUE);
	collect(fs, inode_of(fs, ino), &f);
	ssize_t len = row->get(&f, buf, MAX_VALUE);
	free(f.name);
	if (len >= 0 && size && (size_t)len > size)
		len = -ERANGE;
	if (len < 0)
		reply_err(req, (int)len);
	else if (!size)
		fuse_reply_xattr(req, (size_t)len);
	else
		fuse_reply_buf(req, buf, (size_t)len);
}

/* Memory, then the catalog, then what follows from the new wish. */
static int apply_policy(struct fs *fs, struct inode *i, const struct policy_attr *p)
{
	struct object *o = NULL;

	pthread_mutex_lock(&fs->lock);
	i->e.policy = *p;
	i->e.ctime_ns = now_real_ns();
	uint64_t id = shown_version_locked(i);
	o = id ? object_find_locked(fs, id) : NULL;
	if (o && o->state == OBJECT_LIVE && !o->is_evicting) {
		object_set_policy_locked(fs, o, p);
		object_open_locked(o);
	} else {
		o = NULL;
	}
	pthread_mutex_unlock(&fs->lock);
	int rc = ns_store_attr(fs, i);
	if (!o)
		return rc;
	if (!rc && p->class == MCFS_CLASS_KEEP)
		rc = durable_object(fs, o);
	object_close(fs, o);
	return rc;
}

static int set(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value)
{
	struct fs *fs = req_fs(req);
	struct inode *i = inode_of(fs, ino);
	const struct xattr_row *row = find_row(name);

	if (!row)
		return -EOPNOTSUPP;
	if (!row->set || i->kind == INODE_CONTROL || i->kind == INODE_SYMLINK)
		return -EPERM;
	pthread_mutex_lock(&fs->lock);
	struct policy_attr p = i->e.policy;
	pthread_mutex_unlock(&fs->lock);
	int rc = row->set(&p, value);
	rc = rc ? rc : apply_policy(fs, i, &p);
	cluster_settle(fs);
	return rc;
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	char text[CATALOG_HINT_MAX + 2];

	(void)flags; /* XATTR_CREATE and XATTR_REPLACE: every attribute always has a value */
	if (!find_row(name))
		reply_err(req, -EOPNOTSUPP);
	else if (size >= sizeof(text))
		reply_err(req, -E2BIG);
	else if (!size || memchr(value, '\0', size))
		reply_err(req, -EINVAL);
	else {
		memcpy(text, value, size);
		text[size] = '\0';
		reply_err(req, set(req, ino, name, text));
	}
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	reply_err(req, set(req, ino, name, ""));
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *fs = req_fs(req);
	char buf[256];
	size_t used = 0;

	pthread_mutex_lock(&fs->lock);
	struct policy_attr p = inode_of(fs, ino)->e.policy;
	pthread_mutex_unlock(&fs->lock);
	const struct { bool is_set; const char *name; } set_ones[] = {
		{ p.class_is_set, PREFIX "class" }, { p.pin, PREFIX "pin" },
		{ p.ttl_s != 0, PREFIX "ttl_s" },   { p.hint_len != 0, PREFIX "hint" },
	};
	for (size_t k = 0; k < sizeof(set_ones) / sizeof(*set_ones); k++) {
		if (!set_ones[k].is_set)
			continue;
		size_t len = strlen(set_ones[k].name) + 1;
		memcpy(buf + used, set_ones[k].name, len);
		used += len;
	}
	if (!size)
		fuse_reply_xattr(req, used);
	else if (used > size)
		reply_err(req, -ERANGE);
	else
		fuse_reply_buf(req, buf, used);
}
