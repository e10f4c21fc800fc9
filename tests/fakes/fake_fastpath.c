/* SPDX-License-Identifier: Apache-2.0 */
#include "fakes/fake_fastpath.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "lib/lib.h"

#define HANDLES_MAX 4096
#define BUFFERS_MAX 4096
#define TICKETS_MAX 4096

struct fake_buffer {
	char *map;
	size_t bytes;
};

struct fake_ticket {
	struct mcfs_submit submit;
	bool is_used, is_done;
	int32_t status;
};

static struct {
	char root[64];
	struct lib_kernel real;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_dead, is_held, is_busy;
	uint32_t max_items, max_tickets, n_tickets;
	int fail_next;
	unsigned n_submissions, n_registered;
	uint64_t incarnation;
	struct mcfs_submit last;
	int handles
		[HANDLES_MAX]; /* descriptors of our own, by handle - 1 - incarnation * HANDLES_MAX */
	uint32_t n_handles;
	struct fake_buffer buffers[BUFFERS_MAX]; /* by number - 1 */
	struct fake_ticket tickets[TICKETS_MAX]; /* by ticket - 1 */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int fail(int error)
{
	errno = error;
	return -1;
}

/* The file offset of a session tells to which incarnation it belongs, whatever its descriptor's number. */
static bool session_is_alive_locked(int fd)
{
	return !fake.is_dead && lseek(fd, 0, SEEK_CUR) == (off_t)fake.incarnation;
}

static char *range_locked(uint32_t buffer, uint64_t offset, uint64_t bytes)
{
	struct fake_buffer *b = buffer && buffer <= BUFFERS_MAX ? &fake.buffers[buffer - 1] : NULL;

	if (!b || !b->map || offset > b->bytes || bytes > b->bytes - offset)
		return NULL;
	return b->map + offset;
}

static int handle_fd_locked(uint64_t handle)
{
	uint64_t i = handle - 1 - fake.incarnation * HANDLES_MAX;

	return i < fake.n_handles ? fake.handles[i] : -1;
}

/* ---- items ---- */

static int name_of_locked(const struct mcfs_submit *s, const char *name, size_t len, uint16_t kind,
			  char out[NAME_MAX + 1])
{
	const char *suffix = range_locked(s->buffer, s->suffix, s->suffix_bytes);
	size_t n = 0;

	if (kind == MCFS_NAME_TEXT) {
		memcpy(out, name, len);
		out[len] = '\0';
		return 0;
	}
	for (size_t i = 0; i < len; i++)
		n += (size_t)sprintf(out + n, "%02x", (unsigned char)name[i]);
	if (n + s->suffix_bytes > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(out + n, suffix, s->suffix_bytes);
	out[n + s->suffix_bytes] = '\0';
	return 0;
}

/* The object of an item, opened; or a negative errno. */
static int item_open_locked(const struct mcfs_submit *s, const struct mcfs_item *i)
{
	char name[NAME_MAX + 1];
	int fd = handle_fd_locked(i->object);

	if (fd < 0)
		return -EPERM;
	if (!i->name_bytes)
		return dup(fd);
	const char *at = range_locked(s->buffer, i->name, i->name_bytes);
	if (!at)
		return -EFAULT;
	int rc = name_of_locked(s, at, i->name_bytes, i->name_kind, name);
	if (rc)
		return rc;
	fd = openat(fd, name, s->op == MCFS_OP_WRITE ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY,
		    i->mode);
	return fd < 0 ? -errno : fd;
}

static int item_move_locked(const struct mcfs_submit *s, struct mcfs_item *i, int fd)
{
	for (uint32_t n = 0; n < i->segment_count; n++) {
		char *p = range_locked(i->buffer, i->base + n * i->stride, i->segment_bytes);
		if (!p)
			return -EFAULT;
		off_t at = (off_t)(i->file_offset + (uint64_t)n * i->segment_bytes);
		ssize_t got = s->op == MCFS_OP_READ ? pread(fd, p, i->segment_bytes, at) :
						      pwrite(fd, p, i->segment_bytes, at);
		if (got < 0)
			return -errno;
		i->bytes += (uint64_t)got;
	}
	return 0;
}

static void item_do_locked(const struct mcfs_submit *s, struct mcfs_item *i)
{
	struct stat st;
	int fd = item_open_locked(s, i);

	i->status = fd < 0 ? fd : 0;
	if (fd < 0)
		return;
	if (s->op != MCFS_OP_PREFETCH)
		i->status = item_move_locked(s, i, fd);
	if (!fstat(fd, &st))
		i->size = (uint64_t)st.st_size;
	i->version = 7;
	i->tier = MCFS_TIER_DRAM;
	close(fd);
}

static int items_do_locked(struct mcfs_submit *s)
{
	struct mcfs_item *items =
		(void *)range_locked(s->buffer, s->items, s->n_items * sizeof(*items));

	if (!items)
		return -EFAULT;
	s->n_ok = 0;
	for (uint32_t n = 0; n < s->n_items; n++) {
		item_do_locked(s, &items[n]);
		s->n_ok += !items[n].status;
	}
	return 0;
}

static int names_do_locked(struct mcfs_submit *s)
{
	struct mcfs_state *states =
		(void *)range_locked(s->buffer, s->items, s->n_items * sizeof(*states));
	const char *at = range_locked(s->buffer, s->names, s->names_bytes);
	int dir = handle_fd_locked(s->directory);
	char name[NAME_MAX + 1];
	struct stat st;

	if (!states || !at || dir < 0)
		return dir < 0 ? -EPERM : -EFAULT;
	s->n_ok = s->ready_prefix = 0;
	for (uint32_t n = 0; n < s->n_items; n++) {
		size_t len = s->name_kind == MCFS_NAME_TEXT ? strlen(at) : s->name_bytes;
		name_of_locked(s, at, len, s->name_kind, name);
		at += len + (s->name_kind == MCFS_NAME_TEXT);
		states[n] = (struct mcfs_state){0};
		if (fstatat(dir, name, &st, 0))
			continue;
		states[n] = (struct mcfs_state){
			.state = MCFS_READY, .tier = MCFS_TIER_DRAM, .size = (uint64_t)st.st_size};
		s->n_ok++;
		s->ready_prefix += s->ready_prefix == n;
	}
	return 0;
}

static int submit_do_locked(struct mcfs_submit *s)
{
	return s->op == MCFS_OP_LOOKUP ? names_do_locked(s) : items_do_locked(s);
}

/* ---- ioctls ---- */

static int handle_get_locked(int fd, struct mcfs_handle *h)
{
	struct stat st;

	if (fake.is_dead)
		return fail(ENOTCONN);
	if (fstat(fd, &st) || fake.n_handles == HANDLES_MAX)
		return fail(ENOTTY);
	fake.handles[fake.n_handles++] = dup(fd);
	*h = (struct mcfs_handle){.handle = fake.incarnation * HANDLES_MAX + fake.n_handles,
				  .size = (uint64_t)st.st_size,
				  .kind = S_ISDIR(st.st_mode) ? MCFS_HANDLE_DIR : MCFS_HANDLE_FILE};
	return 0;
}

static int hello_locked(int fd, struct mcfs_hello *h)
{
	if (h->abi_version != MCFS_ABI_VERSION)
		return fail(EPROTO);
	lseek(fd, (off_t)fake.incarnation, SEEK_SET);
	*h = (struct mcfs_hello){.abi_version = MCFS_ABI_VERSION,
				 .max_items = fake.max_items,
				 .max_buffers = BUFFERS_MAX,
				 .max_tickets = fake.max_tickets,
				 .max_segments = 1 << 20,
				 .max_buffer_bytes = 1 << 30,
				 .incarnation = fake.incarnation};
	return 0;
}

static int register_locked(struct mcfs_register *r)
{
	int fd = handle_fd_locked(r->handle);
	struct stat st;
	uint32_t n = 0;

	if (fd < 0 || fstat(fd, &st))
		return fail(EPERM);
	while (n < BUFFERS_MAX && fake.buffers[n].map)
		n++;
	if (n == BUFFERS_MAX)
		return fail(EMFILE);
	struct fake_buffer *b = &fake.buffers[n];
	b->bytes = (size_t)st.st_size;
	b->map = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	r->buffer = n + 1;
	fake.n_registered++;
	return 0;
}

static void buffer_drop_locked(struct fake_buffer *b)
{
	munmap(b->map, b->bytes);
	b->map = NULL;
	fake.n_registered--;
}

static int unregister_locked(const struct mcfs_unregister *u)
{
	if (fake.is_busy)
		return fail(EBUSY);
	if (!u->buffer || u->buffer > BUFFERS_MAX || !fake.buffers[u->buffer - 1].map)
		return fail(ENOENT);
	buffer_drop_locked(&fake.buffers[u->buffer - 1]);
	return 0;
}

static void ticket_do_locked(struct fake_ticket *t)
{
	t->status = submit_do_locked(&t->submit);
	t->is_done = true;
	pthread_cond_broadcast(&fake.changed);
}

static int ticket_submit_locked(struct mcfs_submit *s)
{
	uint32_t n = 0;

	if (fake.n_tickets >= fake.max_tickets)
		return fail(EAGAIN);
	while (fake.tickets[n].is_used)
		n++;
	fake.n_tickets++;
	s->ticket = n + 1;
	fake.tickets[n] = (struct fake_ticket){.submit = *s, .is_used = true};
	if (!fake.is_held)
		ticket_do_locked(&fake.tickets[n]);
	return 0;
}

static int submit_locked(struct mcfs_submit *s)
{
	int error = fake.fail_next;

	fake.n_submissions++;
	fake.last = *s;
	fake.fail_next = 0;
	if (error || !s->n_items || s->n_items > fake.max_items || s->items % 8)
		return fail(error ? error : EINVAL);
	if (s->flags & MCFS_ASYNC)
		return ticket_submit_locked(s);
	error = submit_do_locked(s);
	return error ? fail(-error) : 0;
}

static int cancel_locked(const struct mcfs_cancel *c)
{
	struct fake_ticket *t =
		c->ticket && c->ticket <= TICKETS_MAX ? &fake.tickets[c->ticket - 1] : NULL;

	if (!t || !t->is_used || t->is_done)
		return fail(ENOENT);
	t->status = -ECANCELED;
	t->is_done = true;
	pthread_cond_broadcast(&fake.changed);
	return 0;
}

static int session_ioctl_locked(int fd, unsigned long request, void *arg)
{
	if (request == MCFS_IOC_HELLO && !fake.is_dead)
		return hello_locked(fd, arg);
	if (!session_is_alive_locked(fd))
		return fail(ENOTCONN);
	if (request == MCFS_IOC_REGISTER)
		return register_locked(arg);
	if (request == MCFS_IOC_UNREGISTER)
		return unregister_locked(arg);
	if (request == MCFS_IOC_SUBMIT)
		return submit_locked(arg);
	return request == MCFS_IOC_CANCEL ? cancel_locked(arg) : fail(ENOTTY);
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	guard_lock(&fake.lock);

	if (request == MCFS_IOC_HANDLE)
		return handle_get_locked(fd, arg);
	return session_ioctl_locked(fd, request, arg);
}

/* ---- completions ---- */

static struct fake_ticket *done_locked(void)
{
	for (uint32_t n = 0; n < TICKETS_MAX; n++)
		if (fake.tickets[n].is_used && fake.tickets[n].is_done)
			return &fake.tickets[n];
	return NULL;
}

static ssize_t fake_read(int fd, void *buf, size_t len)
{
	guard_lock(&fake.lock);
	struct mcfs_completion *out = buf;
	struct fake_ticket *t;
	size_t n = 0;

	if (!session_is_alive_locked(fd))
		return fail(ENOTCONN);
	for (; n < len / sizeof(*out) && (t = done_locked()); n++) {
		out[n] = (struct mcfs_completion){.ticket = (uint64_t)(t - fake.tickets) + 1,
						  .user_data = t->submit.user_data,
						  .status = t->status,
						  .n_ok = t->submit.n_ok,
						  .ready_prefix = t->submit.ready_prefix};
		t->is_used = false;
		fake.n_tickets--;
	}
	return n ? (ssize_t)(n * sizeof(*out)) : fail(EAGAIN);
}

static int fake_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	guard_lock(&fake.lock);
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	while (session_is_alive_locked(fds[0].fd) && !done_locked())
		if (pthread_cond_timedwait(&fake.changed, &fake.lock, &until))
			return 0;
	fds[0].revents = POLLIN;
	return 1;
}

/* ---- life ---- */

static void forget_locked(void)
{
	for (uint32_t n = 0; n < fake.n_handles; n++)
		close(fake.handles[n]);
	fake.n_handles = 0;
	for (uint32_t n = 0; n < BUFFERS_MAX; n++)
		if (fake.buffers[n].map)
			buffer_drop_locked(&fake.buffers[n]);
	memset(fake.tickets, 0, sizeof(fake.tickets));
	fake.n_tickets = 0;
	pthread_cond_broadcast(&fake.changed);
}

void fake_fastpath_start(uint32_t max_items)
{
	char path[128];

	strcpy(fake.root, "/dev/shm/mcfs-fake-XXXXXX");
	if (!mkdtemp(fake.root)) {
		strcpy(fake.root, "/tmp/mcfs-fake-XXXXXX");
		if (!mkdtemp(fake.root))
			abort();
	}
	snprintf(path, sizeof(path), "%s/.mooncake", fake.root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/.mooncake/buffers", fake.root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/.mooncake/session", fake.root);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	fake.max_items = max_items;
	fake.max_tickets = TICKETS_MAX;
	fake.incarnation = 1;
	fake.real = lib_kernel;
	lib_kernel = (struct lib_kernel){.ioctl = fake_ioctl, .read = fake_read, .poll = fake_poll};
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

void fake_fastpath_stop(void)
{
	pthread_mutex_lock(&fake.lock);
	forget_locked();
	pthread_mutex_unlock(&fake.lock);
	lib_kernel = fake.real;
	nftw(fake.root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fake_fastpath_root(void)
{
	return fake.root;
}

void fake_fastpath_die(void)
{
	guard_lock(&fake.lock);
	fake.is_dead = true;
	forget_locked();
}

void fake_fastpath_restart(void)
{
	guard_lock(&fake.lock);
	forget_locked();
	fake.is_dead = false;
	fake.incarnation++;
}

void fake_fastpath_hold(bool is_held)
{
	guard_lock(&fake.lock);
	fake.is_held = is_held;
	for (uint32_t n = 0; n < TICKETS_MAX && !is_held; n++)
		if (fake.tickets[n].is_used && !fake.tickets[n].is_done)
			ticket_do_locked(&fake.tickets[n]);
}

void fake_fastpath_fail_next(int error)
{
	guard_lock(&fake.lock);
	fake.fail_next = error;
}

void fake_fastpath_keep_busy(bool is_busy)
{
	guard_lock(&fake.lock);
	fake.is_busy = is_busy;
}

void fake_fastpath_max_tickets(uint32_t n)
{
	guard_lock(&fake.lock);
	fake.max_tickets = n;
}

unsigned fake_fastpath_submissions(void)
{
	guard_lock(&fake.lock);
	return fake.n_submissions;
}

unsigned fake_fastpath_registered(void)
{
	guard_lock(&fake.lock);
	return fake.n_registered;
}

struct mcfs_submit fake_fastpath_last(void)
{
	guard_lock(&fake.lock);
	return fake.last;
}
