/* SPDX-License-Identifier: Apache-2.0 */
/* fp_client: see fp_client.h. The steps mirror ops/fastpath.c, ops/buffers.c and op_release. */
#include "lib/fp_client.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "control/control.h"
#include "fastpath/batch.h"
#include "fastpath/executor.h"
#include "object/space.h"

static void must(bool is_ok, const char *what)
{
	if (!is_ok) {
		fprintf(stderr, "fp_client: %s: %m\n", what);
		abort();
	}
}

/* ---- read(2) that waits ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool is_told;
	int error;
	struct mcfs_completion c;
};

static bool is_interrupted(void *request)
{
	return false;
}

static void deliver(void *request, const struct mcfs_completion *c, size_t n, int error)
{
	struct waiter *w = request;

	guard_lock(&w->lock);
	w->error = error;
	if (n)
		w->c = *c;
	w->is_told = true;
	pthread_cond_signal(&w->told);
}

static void wake(void *poll)
{
	*(atomic_int *)poll += 1;
}

static const struct session_callbacks callbacks = {
	.is_interrupted = is_interrupted,
	.deliver = deliver,
	.wake = wake,
};

static struct timespec after_ms(int ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += ms % 1000 * 1000000l;
	ts.tv_sec += ms / 1000 + ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	return ts;
}

int fp_collect(struct fp_client *c, struct mcfs_completion *out, int wait_ms)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};
	struct timespec until = after_ms(wait_ms);
	ssize_t n = session_collect(c->session, out, 1, wait_ms ? &w : NULL);

	if (n || !wait_ms)
		return (int)n;
	pthread_mutex_lock(&w.lock);
	while (!w.is_told && pthread_cond_timedwait(&w.told, &w.lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&w.lock);
	if (session_forget_reader(c->session, &w))
		return 0;
	/* Told, or about to be. */
	pthread_mutex_lock(&w.lock);
	while (!w.is_told)
		pthread_cond_wait(&w.told, &w.lock);
	pthread_mutex_unlock(&w.lock);
	*out = w.c;
	return w.error ? w.error : 1;
}

/* ---- life ---- */

struct cred fp_root(void)
{
	return (struct cred){.uid = 0};
}

struct cred fp_user(uid_t uid, gid_t gid)
{
	return (struct cred){.uid = uid, .gid = gid};
}

struct session *fp_session(struct fs_box *box, struct cred cred)
{
	return session_create(&box->fs, &cred, &callbacks);
}

void fp_open(struct fp_client *c, struct fs_box *box, struct cred cred, uint64_t bytes)
{
	static atomic_uint n_clients;
	char name[32];

	*c = (struct fp_client){.box = box, .session = fp_session(box, cred)};
	pthread_mutex_lock(&box->fs.lock);
	struct inode *i = inode_find(&box->fs, control_ino(CONTROL_SESSION));
	inode_get_locked(i);
	pthread_mutex_unlock(&box->fs.lock);
	c->handle = handle_create(&box->fs, HANDLE_SESSION, i);
	c->handle->session = c->session;
	snprintf(name, sizeof(name), "client-%u", ++n_clients);
	fp_buffer_open(box, name, cred.uid, bytes, &c->main);
	must(fp_register(c, &c->main, 0, 0) == 0, "register");
}

void fp_close_session(struct fp_client *c)
{
	if (c->session)
		session_close(c->session);
	if (c->handle)
		handle_free(&c->box->fs, c->handle);
	c->session = NULL;
	c->handle = NULL;
}

void fp_close(struct fp_client *c)
{
	fp_close_session(c);
	fp_buffer_close(c->box, &c->main);
}

/* ---- buffers ---- */

int fp_resize(struct fs_box *box, struct fp_buffer *b, uint64_t bytes)
{
	struct space_wait w = {0};

	return buffer_resize(&box->fs, b->buffer, bytes, &w);
}

void fp_buffer_open(struct fs_box *box, const char *name, uid_t uid, uint64_t bytes,
		    struct fp_buffer *out)
{
	struct fs *fs = &box->fs;

	*out = (struct fp_buffer){.bytes = bytes};
	must(buffer_create(fs, name, 0600, uid, 0, &out->buffer) == 0, "buffer_create");
	must(fp_resize(box, out, bytes) == 0, "buffer_resize");
	pthread_mutex_lock(&fs->lock);
	inode_get_locked(out->buffer->inode);
	pthread_mutex_unlock(&fs->lock);
	out->handle = handle_create(fs, HANDLE_BUFFER, out->buffer->inode);
	out->handle->buffer = out->buffer;
	out->handle->is_writable = true;
	must(handle_make_public(fs, out->handle, uid, &out->id) == 0, "handle_make_public");
	if (bytes)
		out->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				out->buffer->frame.fd, 0);
	must(out->mem != MAP_FAILED, "mmap");
}

void fp_buffer_close(struct fs_box *box, struct fp_buffer *b)
{
	if (!b->buffer)
		return;
	if (b->mem)
		munmap(b->mem, b->bytes);
	handle_revoke(&box->fs, b->handle);
	buffer_close(&box->fs, b->buffer);
	handle_free(&box->fs, b->handle);
	b->buffer = NULL;
}

static struct buffer *find_buffer(struct fs_box *box, uint64_t id)
{
	guard_lock(&box->fs.lock);
	struct handle *h = handle_find_locked(&box->fs, id);

	if (h)
		h->buffer->n_handles++;
	return h ? h->buffer : NULL;
}

int fp_register(struct fp_client *c, struct fp_buffer *b, uint64_t offset, uint64_t length)
{
	struct mcfs_register io = {.handle = b->id, .offset = offset, .length = length};
	struct buffer *buffer = find_buffer(c->box, b->id);

	if (!buffer)
		return -ENOENT;
	int rc = session_register(c->session, &io, buffer);
	buffer_close(&c->box->fs, buffer);
	if (!rc)
		b->number = io.buffer;
	return rc;
}

int fp_unregister(struct fp_client *c, uint32_t number)
{
	return session_unregister(c->session, &(struct mcfs_unregister){.buffer = number});
}

/* ---- handles ---- */

struct handle *fp_open_dir(struct fs_box *box, struct inode *dir, uid_t uid, uint64_t *id_out)
{
	pthread_mutex_lock(&box->fs.lock);
	inode_get_locked(dir);
	pthread_mutex_unlock(&box->fs.lock);
	struct handle *h = handle_create(&box->fs, HANDLE_DIR, dir);
	must(handle_make_public(&box->fs, h, uid, id_out) == 0, "handle_make_public");
	return h;
}

struct handle *fp_open_file(struct fs_box *box, struct inode *dir, const char *name, uid_t uid,
			    uint64_t *id_out)
{
	struct inode *i = fs_box_look(box, dir, name, fs_box_who(77));
	struct object *o;

	if (!i)
		return NULL;
	int rc = fs_box_hold(box, i, fs_box_who(77), &o);
	fs_box_put(box, i); /* the lookup's */
	if (rc)
		return NULL;
	struct handle *h = handle_create(&box->fs, HANDLE_OBJECT, i);
	h->object = o;
	must(handle_make_public(&box->fs, h, uid, id_out) == 0, "handle_make_public");
	return h;
}

void fp_close_handle(struct fs_box *box, struct handle *h)
{
	handle_revoke(&box->fs, h);
	if (h->kind == HANDLE_OBJECT)
		object_close(&box->fs, h->object);
	handle_free(&box->fs, h);
}

/* ---- requests ---- */

void fp_reset(struct fp_client *c)
{
	c->used = 0;
}

uint64_t fp_alloc(struct fp_client *c, uint64_t len)
{
	uint64_t at = c->used;

	c->used = (at + len + 63) & ~UINT64_C(63);
	must(c->used <= c->main.bytes, "the client's buffer is full");
	memset(c->main.mem + at, 0, len);
	return at;
}

char *fp_at(struct fp_client *c, uint64_t off)
{
	return c->main.mem + off;
}

struct mcfs_item *fp_items(struct fp_client *c, uint32_t op, uint32_t n, struct mcfs_submit *io)
{
	uint64_t at = fp_alloc(c, n * sizeof(struct mcfs_item));

	*io = (struct mcfs_submit){.op = op, .buffer = c->main.number, .n_items = n, .items = at};
	return (struct mcfs_item *)(void *)fp_at(c, at);
}

static uint64_t put_text(struct fp_client *c, const void *bytes, size_t len)
{
	uint64_t at = fp_alloc(c, len + 1);

	memcpy(fp_at(c, at), bytes, len);
	return at;
}

void fp_name(struct fp_client *c, struct mcfs_item *i, uint64_t dir, const char *name)
{
	i->object = dir;
	i->name = put_text(c, name, strlen(name));
	i->name_bytes = (uint16_t)strlen(name);
	i->name_kind = MCFS_NAME_TEXT;
}

void fp_binary_name(struct fp_client *c, struct mcfs_item *i, uint64_t dir, const void *hash,
		    uint16_t bytes)
{
	i->object = dir;
	i->name = put_text(c, hash, bytes);
	i->name_bytes = bytes;
	i->name_kind = MCFS_NAME_BINARY;
}

void fp_suffix(struct fp_client *c, struct mcfs_submit *io, const char *suffix)
{
	io->suffix = put_text(c, suffix, strlen(suffix));
	io->suffix_bytes = (uint32_t)strlen(suffix);
}

char *fp_dense(struct fp_client *c, struct mcfs_item *i, uint32_t len)
{
	i->base = fp_alloc(c, len);
	i->segment_bytes = len;
	i->segment_count = len ? 1 : 0;
	if (!len)
		i->base = 0;
	return fp_at(c, i->base);
}

struct mcfs_state *fp_lookup(struct fp_client *c, uint64_t dir, const char *const *names,
			     uint32_t n, struct mcfs_submit *io)
{
	size_t bytes = 0;

	for (uint32_t k = 0; k < n; k++)
		bytes += strlen(names[k]) + 1;
	uint64_t states = fp_alloc(c, n * sizeof(struct mcfs_state)), at = fp_alloc(c, bytes);
	*io = (struct mcfs_submit){.op = MCFS_OP_LOOKUP,
				   .buffer = c->main.number,
				   .n_items = n,
				   .items = states,
				   .directory = dir,
				   .names = at,
				   .names_bytes = (uint32_t)bytes};
	for (uint32_t k = 0; k < n; k++) {
		strcpy(fp_at(c, at), names[k]);
		at += strlen(names[k]) + 1;
	}
	return (struct mcfs_state *)(void *)fp_at(c, states);
}

/* ---- SUBMIT ---- */

struct sync_submit {
	struct waiter w;
	struct batch *batch;
	bool (*is_interrupted)(void *arg);
	void *arg;
};

static bool sync_is_interrupted(void *arg)
{
	struct sync_submit *x = arg;

	return x->is_interrupted && x->is_interrupted(x->arg);
}

static void sync_done(void *arg)
{
	struct batch *b = arg;
	struct sync_submit *x = b->arg;

	guard_lock(&x->w.lock);
	x->w.is_told = true;
	pthread_cond_signal(&x->w.told);
}

int fp_submit_until(struct fp_client *c, struct mcfs_submit *io, bool (*interrupted)(void *),
		    void *arg)
{
	struct sync_submit x = {
		.w = {.lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER},
		.is_interrupted = interrupted,
		.arg = arg};
	int rc = batch_create(c->session, io, &x.batch);

	if (rc)
		return rc;
	x.batch->caller = 77;
	x.batch->is_interrupted = sync_is_interrupted;
	x.batch->arg = &x;
	batch_run(x.batch, sync_done);
	pthread_mutex_lock(&x.w.lock);
	while (!x.w.is_told)
		pthread_cond_wait(&x.w.told, &x.w.lock);
	pthread_mutex_unlock(&x.w.lock);
	int32_t stopped = x.batch->stopped;
	*io = x.batch->io;
	batch_destroy(x.batch);
	return stopped == -EINTR || io->op == MCFS_OP_LOOKUP ? stopped : 0;
}

int fp_submit(struct fp_client *c, struct mcfs_submit *io)
{
	return fp_submit_until(c, io, NULL, NULL);
}

int fp_submit_async(struct fp_client *c, struct mcfs_submit *io)
{
	struct batch *b;
	uint64_t ticket;

	io->flags |= MCFS_ASYNC;
	int rc = batch_create(c->session, io, &b);
	if (rc)
		return rc;
	b->caller = 77;
	rc = session_add_batch(c->session, b, &ticket);
	if (rc) {
		batch_destroy(b);
		return rc;
	}
	rc = executor_submit(c->box->fs.executor, b);
	if (rc) {
		session_drop_batch(c->session, b);
		batch_destroy(b);
		return rc;
	}
	io->ticket = ticket;
	return 0;
}

int fp_cancel(struct fp_client *c, uint64_t ticket)
{
	return session_cancel(c->session, ticket);
}

int fp_decode(struct session *s, const struct mcfs_submit *io)
{
	struct batch *b;
	int rc = batch_create(s, io, &b);

	if (!rc)
		batch_destroy(b);
	return rc;
}

/* ---- whole steps ---- */

int fp_put(struct fp_client *c, uint64_t dir, const char *name, const void *bytes, uint32_t len)
{
	uint64_t was_used = c->used;
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(c, MCFS_OP_WRITE, 1, &io);

	fp_name(c, i, dir, name);
	i->mode = 0644;
	char *at = fp_dense(c, i, len);
	if (len)
		memcpy(at, bytes, len);
	int rc = fp_submit(c, &io);
	c->used = was_used;
	return rc ? rc : i->status;
}

bool fp_shows(struct fp_client *c, uint64_t dir, const char *name, const void *bytes, uint32_t len)
{
	uint64_t was_used = c->used;
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(c, MCFS_OP_READ, 1, &io);

	fp_name(c, i, dir, name);
	char *at = fp_dense(c, i, len + 1);
	int rc = fp_submit(c, &io);
	c->used = was_used;
	if (!rc && !i->status && i->bytes == len && i->size == len && !memcmp(at, bytes, len))
		return true;
	fprintf(stderr,
		"fp_client: \"%s\": error %d, status %d, %llu of %llu bytes instead of %u%s\n",
		name, rc, i->status, (unsigned long long)i->bytes, (unsigned long long)i->size, len,
		i->bytes == len ? ", other ones" : "");
	return false;
}

/* ---- books ---- */

/* RocksDB opens and closes its files when it likes. */
static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	char target[PATH_MAX];
	int n = 0;

	must(dir != NULL, "/proc/self/fd");
	for (struct dirent *e; (e = readdir(dir));) {
		ssize_t len = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);
		target[len < 0 ? 0 : len] = '\0';
		n += strstr(target, "/catalog/") == NULL;
	}
	closedir(dir);
	return n;
}

struct fp_books fp_books(struct fs_box *box)
{
	struct fs *fs = &box->fs;
	struct fp_books b = {0};

	tier_call(fs->dram, reclaim, 0);
	struct tier_stats s = fs_box_dram(box);
	b.used_bytes = s.used_bytes;
	b.n_open = s.n_open;
	b.n_sealed = s.n_sealed;
	b.n_zombies = s.n_zombies;
	b.batch_bytes = fs->batch_bytes;
	pthread_mutex_lock(&fs->lock);
	b.n_buffers = fs->n_buffers;
	b.n_registered = fs->n_registered;
	for (struct handle *h = fs->handles; h; h = h->next)
		b.n_handles++;
	pthread_mutex_unlock(&fs->lock);
	b.n_fds = count_fds();
	return b;
}

bool fp_books_are(struct fs_box *box, const struct fp_books *before)
{
	struct fp_books now = {0};

	for (int k = 0; k < 500; k++) {
		now = fp_books(box);
		if (!memcmp(&now, before, sizeof(now)))
			return true;
		usleep(10000);
	}
	fprintf(stderr,
		"fp_client: used %llu was %llu, open %llu was %llu, sealed %llu was %llu, zombies %llu was "
		"%llu, buffers %u was %u, registered %u was %u, batches %llu was %llu, fds %d was %d, "
		"handles %d was %d\n",
		(unsigned long long)now.used_bytes, (unsigned long long)before->used_bytes,
		(unsigned long long)now.n_open, (unsigned long long)before->n_open,
		(unsigned long long)now.n_sealed, (unsigned long long)before->n_sealed,
		(unsigned long long)now.n_zombies, (unsigned long long)before->n_zombies,
		now.n_buffers, before->n_buffers, now.n_registered, before->n_registered,
		(unsigned long long)now.batch_bytes, (unsigned long long)before->batch_bytes,
		now.n_fds, before->n_fds, now.n_handles, before->n_handles);
	return false;
}
