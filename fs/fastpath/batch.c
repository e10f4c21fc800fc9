/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/pread_full.h"
#include "fastpath/buffer.h"
#include "fs.h"
#include "handle.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/object.h"
#include "object/space.h"
#include "options.h"

#define DEFAULT_DEADLINE_US UINT64_C(60000000)
#define MAX_DEADLINE_US UINT64_C(86400000000)
#define MAX_NAMES_BYTES (SESSION_MAX_ITEMS * (CATALOG_NAME_MAX + 1u))
/* Names this close to each other are read in one piece. */
#define NAMES_SPAN_BYTES (1u << 20)
/* A helper takes 10 to 70 us to wake, in which one thread copies some hundred kilobytes. */
#define SHARE_BYTES (UINT64_C(1) << 20)
/* So that one client's batch does not take a large machine's threads from all others. */
#define MAX_HELPERS 3u
#define MAX_BINARY_BYTES 64
#define MAX_SUFFIX_BYTES 64

/* So that nobody makes the daemon hold more than so much. */
static int take_memory(struct batch *b, uint64_t bytes)
{
	int rc = session_take_memory(b->session, bytes);

	b->bytes += rc ? 0 : bytes;
	return rc;
}

/* ---- the client's memory ---- */

static bool holds(const struct registration *r, uint64_t off, uint64_t len)
{
	uint64_t end;

	return off >= r->offset && !__builtin_add_overflow(off, len, &end) && end - r->offset <= r->length;
}

/* Through the file, not the mapping: a page that is missing is an error, no signal. */
int batch_copy_in(const struct registration *r, uint64_t off, void *to, size_t len)
{
	if (!holds(r, off, len))
		return -EFAULT;
	return pread_full(r->buffer->frame.fd, to, len, off) == (ssize_t)len ? 0 : -EFAULT;
}

static int copy_out(const struct registration *r, uint64_t off, const void *from, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(r->buffer->frame.fd, (const char *)from + done, len - done,
				   (off_t)(off + done));
		if (n == 0 || (n < 0 && errno != EINTR))
			return -EFAULT;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int batch_segments(const struct mcfs_item *i, const struct registration *reg, uint64_t from, uint64_t len,
		   struct iovec *iov, int max, uint64_t *len_out)
{
	bool is_dense = i->segment_count <= 1 || i->stride == i->segment_bytes;
	char *base = reg->map + (i->base - reg->offset);
	int n = 0;

	*len_out = 0;
	if (is_dense) {
		iov[0] = (struct iovec){ base + from, len };
		*len_out = len;
		return 1;
	}
	while (len && n < max) {
		uint64_t k = from / i->segment_bytes, at = from % i->segment_bytes;
		uint64_t piece = i->segment_bytes - at < len ? i->segment_bytes - at : len;
		iov[n++] = (struct iovec){ base + k * i->stride + at, piece };
		from += piece;
		len -= piece;
		*len_out += piece;
	}
	return n;
}

/* ---- names ---- */

static int check_name(const char *name, size_t len)
{
	if (len > CATALOG_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || memchr(name, '/', len) || memchr(name, '\0', len) || (len == 1 && name[0] == '.') ||
	    (len == 2 && name[0] == '.' && name[1] == '.'))
		return -EINVAL;
	return 0;
}

/* Room of a name in b->names, with its NUL. */
static size_t name_room(const struct batch *b, uint16_t kind, size_t bytes)
{
	return (kind == MCFS_NAME_BINARY ? 2 * bytes + b->io.suffix_bytes : bytes) + 1;
}

size_t batch_spell_name(const struct batch *b, uint16_t kind, const char *raw, size_t bytes, char *to)
{
	static const char digits[] = "0123456789abcdef";
	size_t n = 0;

	if (kind == MCFS_NAME_TEXT) {
		memcpy(to, raw, bytes);
		n = bytes;
	} else {
		for (size_t k = 0; k < bytes; k++) {
			to[n++] = digits[(unsigned char)raw[k] >> 4];
			to[n++] = digits[raw[k] & 15];
		}
		memcpy(to + n, b->suffix, b->io.suffix_bytes);
		n += b->io.suffix_bytes;
	}
	to[n] = '\0';
	return n;
}

static int check_name_kind(uint16_t kind, uint16_t bytes)
{
	if (kind == MCFS_NAME_BINARY)
		return bytes >= 1 && bytes <= MAX_BINARY_BYTES ? 0 : -EINVAL;
	return kind == MCFS_NAME_TEXT ? 0 : -EINVAL;
}

/* The client's bytes of all names, read at once when they lie together. raw_out is the caller's to free. */
static int read_name_span(struct batch *b, uint64_t *start_out, char **raw_out)
{
	uint64_t low = UINT64_MAX, high = 0;

	*raw_out = NULL;
	for (uint32_t k = 0; k < b->io.n_items; k++) {
		const struct mcfs_item *i = &b->items[k];
		if (!i->name_bytes || i->status || !holds(b->reg, i->name, i->name_bytes))
			continue;
		low = i->name < low ? i->name : low;
		high = i->name + i->name_bytes > high ? i->name + i->name_bytes : high;
	}
	if (low >= high || high - low > NAMES_SPAN_BYTES + (uint64_t)b->io.n_items * CATALOG_NAME_MAX)
		return 0;
	*raw_out = malloc(high - low);
	if (!*raw_out)
		return -ENOMEM;
	*start_out = low;
	return batch_copy_in(b->reg, low, *raw_out, high - low);
}

static int read_item_names(struct batch *b)
{
	uint64_t start = 0;
	size_t room = 0, at = 0;
	autofree char *span = NULL;
	char one[CATALOG_NAME_MAX];

	for (uint32_t k = 0; k < b->io.n_items; k++)
		if (b->items[k].name_bytes && !b->items[k].status)
			room += name_room(b, b->items[k].name_kind, b->items[k].name_bytes);
	if (!room)
		return 0;
	int rc = take_memory(b, room);
	if (!rc)
		b->names = malloc(room);
	if (!rc)
		rc = b->names ? read_name_span(b, &start, &span) : -ENOMEM;
	for (uint32_t k = 0; !rc && k < b->io.n_items; k++) {
		struct mcfs_item *i = &b->items[k];
		struct target *t = &b->targets[k];
		if (!i->name_bytes || i->status)
			continue;
		if (!holds(b->reg, i->name, i->name_bytes))
			i->status = -EFAULT;
		else if (!span)
			i->status = batch_copy_in(b->reg, i->name, one, i->name_bytes);
		if (i->status)
			continue;
		const char *raw = span ? span + (i->name - start) : one;
		t->name = b->names + at;
		t->name_len = batch_spell_name(b, i->name_kind, raw, i->name_bytes, b->names + at);
		at += t->name_len + 1;
		i->status = check_name(t->name, t->name_len);
	}
	return rc;
}

/* ---- items ---- */

static int check_segments(const struct batch *b, const struct mcfs_item *i, const struct registration *reg)
{
	uint64_t span, end;

	if (i->segment_count == 0)
		return b->io.op == MCFS_OP_WRITE && !i->segment_bytes && !i->base && !i->stride ? 0 : -EINVAL;
	if (!i->segment_bytes || i->segment_count > SESSION_MAX_SEGMENTS ||
	    (i->segment_count > 1 && i->stride < i->segment_bytes))
		return -EINVAL;
	uint64_t stride = i->segment_count > 1 ? i->stride : 0;
	if (__builtin_mul_overflow(stride, (uint64_t)i->segment_count - 1, &span) ||
	    __builtin_add_overflow(span, (uint64_t)i->segment_bytes, &span) ||
	    __builtin_add_overflow(i->base, span, &end))
		return -EFAULT;
	return holds(reg, i->base, span) ? 0 : -EFAULT;
}

static int check_item(const struct batch *b, const struct mcfs_item *i)
{
	bool is_write = b->io.op == MCFS_OP_WRITE;

	if (i->reserved || i->mode > 07777 || i->file_offset > INT64_MAX)
		return -EINVAL;
	if (i->name_bytes ? check_name_kind(i->name_kind, i->name_bytes) : is_write || i->name_kind)
		return -EINVAL;
	if (i->name_bytes > CATALOG_NAME_MAX)
		return -ENAMETOOLONG;
	if (b->io.op != MCFS_OP_READ && i->file_offset)
		return -EINVAL;
	return !is_write && i->mode ? -EINVAL : 0;
}

/* PREFETCH moves nothing into memory: its items have no buffer, and take the submission's here. */
static int find_memory(struct batch *b, struct mcfs_item *i, struct registration **reg)
{
	if (b->io.op == MCFS_OP_PREFETCH)
		return i->buffer || i->segment_count || i->segment_bytes || i->base || i->stride
			       ? -EINVAL
			       : session_use_buffer(b->session, b->io.buffer, reg);
	int rc = session_use_buffer(b->session, i->buffer ? i->buffer : b->io.buffer, reg);
	if (rc)
		return rc;
	rc = check_segments(b, i, *reg);
	if (rc)
		session_release_buffer(b->session, *reg);
	return rc;
}

static int read_items(struct batch *b)
{
	size_t bytes = b->io.n_items * sizeof(*b->items);

	int rc = take_memory(b, bytes + b->io.n_items * sizeof(*b->targets));
	if (rc)
		return rc;
	b->items = malloc(bytes);
	b->targets = calloc(b->io.n_items, sizeof(*b->targets));
	if (!b->items || !b->targets)
		return -ENOMEM;
	rc = batch_copy_in(b->reg, b->io.items, b->items, bytes);
	if (rc)
		return rc;
	for (uint32_t k = 0; k < b->io.n_items; k++) {
		struct mcfs_item *i = &b->items[k];
		struct registration *reg;
		i->tier = MCFS_TIER_NONE;
		memset(i->reserved_out, 0, sizeof(i->reserved_out));
		i->bytes = i->size = i->version = 0;
		i->status = check_item(b, i);
		if (!i->status)
			i->status = find_memory(b, i, &reg);
		if (!i->status)
			b->targets[k].reg = reg;
	}
	return read_item_names(b);
}

static int read_lookup(struct batch *b)
{
	size_t bytes = b->io.n_items * sizeof(*b->states);
	int rc = take_memory(b, bytes + b->io.names_bytes + 1);

	if (rc)
		return rc;
	b->states = calloc(b->io.n_items, sizeof(*b->states));
	b->names = malloc((size_t)b->io.names_bytes + 1);
	if (!b->states || !b->names)
		return -ENOMEM;
	rc = batch_copy_in(b->reg, b->io.names, b->names, b->io.names_bytes);
	return rc ? rc : holds(b->reg, b->io.items, bytes) ? 0 : -EFAULT;
}

/* ---- submissions ---- */

static int check_submit(const struct mcfs_submit *io)
{
	uint32_t flags = MCFS_ASYNC | (io->op == MCFS_OP_WRITE ? MCFS_GROUP : 0);
	bool is_lookup = io->op == MCFS_OP_LOOKUP;

	if (io->op < MCFS_OP_LOOKUP || io->op > MCFS_OP_PREFETCH || io->flags & ~flags || io->reserved ||
	    io->reserved2[0] || io->reserved2[1])
		return -EINVAL;
	if (!io->n_items || io->items % 8 || io->deadline_us > MAX_DEADLINE_US ||
	    io->suffix_bytes > MAX_SUFFIX_BYTES)
		return -EINVAL;
	if (io->n_items > SESSION_MAX_ITEMS)
		return -EMFILE;
	if (!is_lookup)
		return io->directory || io->names || io->names_bytes || io->name_kind || io->name_bytes ? -EINVAL
												      : 0;
	if (io->names_bytes > MAX_NAMES_BYTES || check_name_kind(io->name_kind, io->name_bytes))
		return -EINVAL;
	if (io->name_kind == MCFS_NAME_BINARY)
		return (uint64_t)io->n_items * io->name_bytes == io->names_bytes ? 0 : -EINVAL;
	return io->name_bytes ? -EINVAL : 0;
}

int batch_create(struct session *s, const struct mcfs_submit *io, struct batch **out)
{
	int rc = check_submit(io);

	if (rc)
		return rc;
	struct batch *b = xcalloc(1, sizeof(*b));
	b->io = *io;
	b->io.n_ok = b->io.ready_prefix = 0;
	b->io.ticket = 0;
	b->session = s;
	session_get(s);
	uint64_t us = io->deadline_us ? io->deadline_us : DEFAULT_DEADLINE_US;
	b->deadline_ns = now_mono_ns() + (int64_t)us * 1000;
	rc = session_use_buffer(s, io->buffer, &b->reg);
	if (!rc && io->suffix_bytes)
		rc = batch_copy_in(b->reg, io->suffix, b->suffix, io->suffix_bytes);
	if (!rc && io->op == MCFS_OP_LOOKUP) {
		rc = read_lookup(b);
	} else if (!rc) {
		rc = read_items(b);
	}
	if (rc) {
		batch_destroy(b);
		return rc;
	}
	*out = b;
	return 0;
}

void batch_leave_memory(struct batch *b)
{
	for (uint32_t k = 0; b->targets && k < b->io.n_items; k++)
		if (b->targets[k].reg)
			session_release_buffer(b->session, b->targets[k].reg);
	if (b->reg)
		session_release_buffer(b->session, b->reg);
	b->reg = NULL;
	free(b->targets);
	free(b->items);
	free(b->states);
	free(b->names);
	b->targets = NULL;
	b->items = NULL;
	b->states = NULL;
	b->names = NULL;
	session_give_memory(b->session, b->bytes);
	b->bytes = 0;
}

void batch_destroy(struct batch *b)
{
	batch_leave_memory(b);
	session_put(b->session);
	free(b);
}

int batch_stopped(struct batch *b)
{
	if (!b->stopped) {
		if (b->is_cancelled)
			b->stopped = -ECANCELED;
		else if (b->is_interrupted && b->is_interrupted(b->arg))
			b->stopped = -EINTR;
		else if (now_mono_ns() >= b->deadline_ns)
			b->stopped = -ETIMEDOUT;
	}
	return b->stopped;
}

void batch_share(struct batch *b, executor_part_fn part, void *arg, uint32_t n, uint64_t bytes)
{
	uint64_t n_helpers = bytes / SHARE_BYTES;

	executor_share(b->session->fs->executor, part, arg, n,
		       n_helpers < MAX_HELPERS ? (unsigned int)n_helpers : MAX_HELPERS);
}

static bool must_stop(void *arg)
{
	return batch_stopped(arg);
}

struct space_wait batch_wait(struct batch *b)
{
	int64_t patience_ns = now_mono_ns() + b->session->fs->opt->space_wait_ms * 1000000ll;

	return (struct space_wait){
		.deadline_ns = patience_ns < b->deadline_ns ? patience_ns : b->deadline_ns,
		.is_interrupted = must_stop,
		.arg = b,
	};
}

int batch_directory(struct batch *b, uint64_t handle, int want, uint64_t *ino_out)
{
	struct fs *fs = b->session->fs;
	const struct cred *c = &b->session->cred;

	guard_lock(&fs->lock);
	struct handle *h = handle_find_locked(fs, handle);
	if (!h)
		return -ENOENT;
	if (h->public_uid != c->uid && c->uid)
		return -EPERM;
	if (h->kind != HANDLE_DIR || h->inode->kind != INODE_DIR)
		return -ENOTDIR;
	const struct entry *e = &h->inode->e;
	if (h->inode->state != INODE_LIVE || h->inode->is_dead)
		return -ENOENT;
	if (!cred_may(c, e->mode, e->uid, e->gid, want))
		return -EACCES;
	*ino_out = h->inode->key;
	return 0;
}

/* Directories of a batch are mostly one and the same. */
void batch_find_directories(struct batch *b, uint32_t from, uint32_t to, int want)
{
	uint64_t handle = 0, ino = 0;
	int rc = 0;

	for (uint32_t k = from; k < to; k++) {
		struct target *t = &b->targets[k];
		if (b->items[k].status || !t->name)
			continue;
		if (b->items[k].object != handle || !handle) {
			handle = b->items[k].object;
			rc = batch_directory(b, handle, want, &ino);
		}
		b->items[k].status = rc;
		t->dir_ino = ino;
		t->key = name_key_of(b->session->fs, ino, t->name, t->name_len);
	}
}

/* ---- run ---- */

/* What the client's array says afterwards; a client that took the memory away does not get it. */
static void write_back(struct batch *b)
{
	bool is_lookup = b->io.op == MCFS_OP_LOOKUP;
	size_t bytes = b->io.n_items * (is_lookup ? sizeof(*b->states) : sizeof(*b->items));

	if (is_lookup) {
		for (uint32_t k = 0; k < b->io.n_items; k++)
			b->io.n_ok += b->states[k].state == MCFS_READY;
		while (b->io.ready_prefix < b->io.n_items &&
		       b->states[b->io.ready_prefix].state == MCFS_READY)
			b->io.ready_prefix++;
	} else {
		for (uint32_t k = 0; k < b->io.n_items; k++)
			b->io.n_ok += b->items[k].status == 0;
	}
	if (copy_out(b->reg, b->io.items, is_lookup ? (void *)b->states : (void *)b->items, bytes))
		log_debug("session: the outcomes of %u items could not be written back: %m", b->io.n_items);
}

/* Replies come after the kernel has forgotten what was replaced: an open then finds the new version. */
static void settle(struct batch *b, batch_done_fn done)
{
	if (b->has_replaced)
		notifier_after(b->session->fs, done, b);
	else
		done(b);
}

void batch_run(struct batch *b, batch_done_fn done)
{
	switch (b->io.op) {
	case MCFS_OP_LOOKUP: batch_lookup(b); break;
	case MCFS_OP_READ: batch_read(b); break;
	case MCFS_OP_PREFETCH: batch_prefetch(b); break;
	default: batch_write(b); break;
	}
	write_back(b);
	settle(b, done);
}
