/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch: requests of the program, and the items that stand for them in the area of a submission:
 *
 *   struct mcfs_item [n], the suffix, the names
 *
 * A request that cannot become an item (memory in no buffer, a directory that is gone) gets its status at
 * once and no item; REQUEST_SENT marks the others until their outcome is read.
 */
#include "lib.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_SENT (-EINPROGRESS)
#define DEFAULT_MODE 0644

static size_t name_bytes(const struct mcfs_request *r)
{
	if (!r->name)
		return 0;
	return r->name_bytes ? r->name_bytes : strlen(r->name);
}

static size_t suffix_bytes(const struct lib_job *j)
{
	return j->call.suffix ? strlen(j->call.suffix) : 0;
}

size_t lib_items_bytes(const struct lib_job *j)
{
	size_t bytes = j->part * sizeof(struct mcfs_item) + suffix_bytes(j);

	for (size_t i = 0; i < j->part; i++)
		bytes += name_bytes(&j->requests[j->done + i]);
	return bytes;
}

/* Where the memory of a request is. PREFETCH has none. */
static int item_place_locked(struct mcfs_session *s, const struct mcfs_request *r,
			     struct mcfs_item *item)
{
	uint64_t span;
	uint32_t count = r->segment_count ? r->segment_count : 1;
	uint64_t stride = r->stride ? r->stride : r->segment_bytes;

	if (__builtin_mul_overflow(stride, (uint64_t)count - 1, &span) ||
	    __builtin_add_overflow(span, (uint64_t)r->segment_bytes, &span))
		return -EFAULT;
	item->segment_bytes = r->segment_bytes;
	item->segment_count = count;
	item->stride = stride;
	struct mcfs_buffer *b = lib_buffer_find_locked(s, r->memory, span);
	if (!b)
		return -EFAULT;
	item->buffer = b->m.number;
	item->base = (uint64_t)((char *)r->memory - b->m.memory);
	return 0;
}

/* The name at *end of the area, which moves behind it. */
static int item_name(const struct mcfs_request *r, const struct lib_area *area, size_t *end,
		     struct mcfs_item *item)
{
	size_t len = name_bytes(r);

	if (!r->dir) {
		item->object = r->file;
		return len ? -EINVAL : 0;
	}
	if (!len || (r->name_kind == MCFS_NAME_BINARY && len > LIB_HASH_MAX))
		return -EINVAL;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(area->memory + *end, r->name, len);
	item->name = area->offset + *end;
	item->name_bytes = (uint16_t)len;
	item->name_kind = (uint16_t)r->name_kind;
	*end += len;
	return 0;
}

struct item_writer {
	struct mcfs_session *s;
	struct lib_job *j;
	size_t end;	      /* of what is in the area */
	struct mcfs_dir *dir; /* the one of the request before */
	uint64_t dir_handle;
	int dir_error;
};

static int item_dir(struct item_writer *w, const struct mcfs_request *r, struct mcfs_item *item)
{
	if (!r->dir)
		return 0;
	if (r->dir != w->dir) {
		w->dir = r->dir;
		w->dir_error = lib_dir_handle(r->dir, &w->dir_handle);
	}
	item->object = w->dir_handle;
	return w->dir_error;
}

static int item_write(struct item_writer *w, const struct mcfs_request *r, struct mcfs_item *item)
{
	*item = (struct mcfs_item){.file_offset = r->file_offset, .status = -ECANCELED};
	if (w->j->op == MCFS_OP_WRITE)
		item->mode = r->mode ? r->mode : DEFAULT_MODE;
	int rc = item_name(r, &w->j->area, &w->end, item);
	if (!rc && w->j->op != MCFS_OP_PREFETCH) {
		pthread_mutex_lock(&w->s->lock);
		rc = item_place_locked(w->s, r, item);
		pthread_mutex_unlock(&w->s->lock);
	}
	return rc ? rc : item_dir(w, r, item);
}

int lib_items_write(struct mcfs_session *s, struct lib_job *j, struct mcfs_submit *submit)
{
	struct mcfs_item *items = (struct mcfs_item *)j->area.memory;
	struct item_writer w = {.s = s, .j = j, .end = j->part * sizeof(*items)};
	size_t n_suffix = suffix_bytes(j);

	if (n_suffix > LIB_SUFFIX_MAX)
		return lib_fail(-EINVAL, "a suffix of %zu bytes", n_suffix);
	if (n_suffix)
		memcpy(j->area.memory + w.end, j->call.suffix, n_suffix);
	submit->suffix = n_suffix ? j->area.offset + w.end : 0;
	submit->suffix_bytes = (uint32_t)n_suffix;
	submit->items = j->area.offset;
	w.end += n_suffix;
	j->n_items = 0;
	for (size_t i = 0; i < j->part; i++) {
		struct mcfs_request *r = &j->requests[j->done + i];
		int rc = item_write(&w, r, &items[j->n_items]);
		if (rc == -ENOTCONN)
			return rc;
		r->status = rc ? rc : REQUEST_SENT;
		r->bytes = r->size = r->version = 0;
		r->tier = MCFS_TIER_NONE;
		if (!rc)
			j->n_items++;
	}
	/* All or none: one that cannot be sent keeps the others back. */
	if (j->call.flags & MCFS_GROUP && j->n_items < j->part)
		j->n_items = 0;
	return 0;
}

static void outcome_read(const struct mcfs_item *item, struct mcfs_request *r)
{
	r->status = item->status;
	r->bytes = item->bytes;
	r->size = item->size;
	r->version = item->version;
	r->tier = item->tier;
}

void lib_items_read(struct lib_job *j, int error)
{
	const struct mcfs_item *items = (const struct mcfs_item *)j->area.memory;
	uint32_t at = 0;

	for (size_t i = 0; i < j->part; i++) {
		struct mcfs_request *r = &j->requests[j->done + i];
		if (r->status == REQUEST_SENT && at < j->n_items)
			outcome_read(&items[at++], r);
		else if (r->status == REQUEST_SENT)
			r->status = -ECANCELED;
		/* Refused as a whole, or broken off before this one. */
		if (r->status == -ECANCELED && error)
			r->status = error;
		j->n_ok += r->status == 0;
	}
}

int lib_job_of_requests(enum mcfs_op op, struct mcfs_request *requests, size_t n,
			const struct mcfs_call *call, struct lib_job *job_out)
{
	lib_forget_error();
	*job_out = (struct lib_job){.op = op, .requests = requests, .n = n};
	if (call)
		job_out->call = *call;
	if (job_out->call.deadline_us)
		lib_job_set_deadline(job_out);
	if (job_out->call.flags & ~(op == MCFS_OP_WRITE ? (uint32_t)MCFS_GROUP : 0) ||
	    job_out->call.reserved || n > LONG_MAX || (n && !requests))
		return lib_fail(-EINVAL, "a batch with flags 0x%x", (unsigned)job_out->call.flags);
	return 0;
}

/* ---- lists of requests ---- */

LIB_PUBLIC struct mcfs_request *mcfs_batch_add(struct mcfs_batch *b, struct mcfs_dir *dir,
					       const char *name, void *memory, uint32_t bytes)
{
	if (b->n == b->capacity) {
		size_t capacity = b->capacity ? 2 * b->capacity : 64;
		void *grown = reallocarray(b->requests, capacity, sizeof(*b->requests));
		if (!grown)
			return NULL;
		b->requests = grown;
		b->capacity = capacity;
	}
	struct mcfs_request *r = &b->requests[b->n++];
	*r = (struct mcfs_request){.dir = dir,
				   .name = name,
				   .memory = memory,
				   .segment_bytes = bytes,
				   .segment_count = 1};
	return r;
}

LIB_PUBLIC void mcfs_batch_free(struct mcfs_batch *b)
{
	free(b->requests);
	*b = (struct mcfs_batch){0};
}
