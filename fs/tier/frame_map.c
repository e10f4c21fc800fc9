/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/frame_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"

#define N_BUCKETS 16384
/* Idle records that give way together when registering meets a limit. */
#define GIVE_WAY 16
#define RETRY_NS (1000ll * 1000 * 1000)

struct record {
	struct frame_map map;       /* first: what callers hold */
	struct record *hash_next;
	struct record *prev, *next; /* idle ones, longest first; NULL while held or made. next also: of the dead */
	uint64_t id;
	int fd;
	uint32_t n_holders;
	bool is_making;             /* by one thread, which holds it; others wait */
	bool is_forgotten;          /* in no table: its last holder frees it */
};

struct frame_maps {
	pthread_mutex_t lock;
	pthread_cond_t changed;     /* a record is made, or is none */
	struct record *buckets[N_BUCKETS];
	struct record idle;         /* list head */
	uint32_t n_idle, capacity;
	struct tier_registrar registrar;
	int64_t retry_ns;           /* nothing is registered before: a limit was met */
	struct tier_map_stats stats;
};

struct frame_maps *frame_maps_create(uint32_t capacity)
{
	struct frame_maps *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_init(&m->lock, NULL);
	clock_cond_init(&m->changed);
	m->idle.prev = m->idle.next = &m->idle;
	m->capacity = capacity;
	return m;
}

void frame_maps_destroy(struct frame_maps *m)
{
	if (!m)
		return;
	frame_maps_set_registrar(m, NULL);
	frame_maps_trim(m, UINT32_MAX);
	if (m->stats.n_mapped)
		log_warn("dram: %u frames are still mapped at the end", m->stats.n_mapped);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* ---- tables (lock held) ---- */

static struct record **slot_of(struct frame_maps *m, uint64_t id)
{
	struct record **at = &m->buckets[(id * UINT64_C(0x9e3779b97f4a7c15)) >> 50];

	while (*at && (*at)->id != id)
		at = &(*at)->hash_next;
	return at;
}

static void add_locked(struct frame_maps *m, struct record *r)
{
	struct record **at = slot_of(m, r->id);

	r->hash_next = *at;
	*at = r;
}

static void leave_idle_locked(struct frame_maps *m, struct record *r)
{
	if (!r->next)
		return;
	r->prev->next = r->next;
	r->next->prev = r->prev;
	r->prev = r->next = NULL;
	m->n_idle--;
}

static void join_idle_locked(struct frame_maps *m, struct record *r)
{
	r->prev = m->idle.prev;
	r->next = &m->idle;
	r->prev->next = r->next->prev = r;
	m->n_idle++;
}

/* Of the tables; true: nobody holds it, and it is the caller's to free. */
static bool take_out_locked(struct frame_maps *m, struct record *r)
{
	*slot_of(m, r->id) = r->hash_next;
	leave_idle_locked(m, r);
	r->is_forgotten = true;
	return !r->n_holders;
}

/* Up to n of the longest idle, as a list by next. */
static struct record *take_oldest_locked(struct frame_maps *m, uint32_t n)
{
	struct record *dead = NULL;

	for (; n && m->idle.next != &m->idle; n--) {
		struct record *r = m->idle.next;
		(void)take_out_locked(m, r);
		r->next = dead;
		dead = r;
	}
	return dead;
}

/* ---- records (no lock held) ---- */

static void deregister(struct frame_maps *m, struct record *r)
{
	if (!r->map.registration)
		return;
	m->registrar.deregister(m->registrar.arg, r->map.registration);
	r->map.registration = NULL;
	guard_lock(&m->lock);
	m->stats.n_registered--;
	m->stats.registered_bytes -= r->map.bytes;
}

static void record_free(struct frame_maps *m, struct record *r)
{
	deregister(m, r);
	if (r->map.addr) {
		munmap(r->map.addr, r->map.bytes);
		guard_lock(&m->lock);
		m->stats.n_mapped--;
		m->stats.mapped_bytes -= r->map.bytes;
	}
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}

static uint32_t free_list(struct frame_maps *m, struct record *dead)
{
	uint32_t n = 0;

	for (struct record *next; dead; dead = next, n++) {
		next = dead->next;
		dead->next = NULL;
		record_free(m, dead);
	}
	return n;
}

uint32_t frame_maps_trim(struct frame_maps *m, uint32_t n)
{
	pthread_mutex_lock(&m->lock);
	struct record *dead = take_oldest_locked(m, n);
	pthread_mutex_unlock(&m->lock);
	return free_list(m, dead);
}

/*
 * The file has all its pages, so that pinning them takes none that nobody was charged for. False also where a limit was
 * met just now.
 */
static bool may_register(struct frame_maps *m, const struct record *r)
{
	struct stat st;

	if (r->map.registration || fstat(r->fd, &st) || (uint64_t)st.st_blocks * 512 < r->map.bytes)
		return false;
	guard_lock(&m->lock);
	return m->registrar.reg && clock_now_ns() >= m->retry_ns;
}

static void try_to_register(struct frame_maps *m, struct record *r)
{
	int rc = -ENOMEM;

	if (!may_register(m, r))
		return;
	do
		rc = m->registrar.reg(m->registrar.arg, r->map.addr, r->map.bytes, &r->map.registration);
	while (rc == -ENOMEM && frame_maps_trim(m, GIVE_WAY));
	guard_lock(&m->lock);
	if (rc) {
		r->map.registration = NULL;
		m->stats.n_failures++;
		m->retry_ns = clock_now_ns() + RETRY_NS;
		return;
	}
	m->stats.n_registrations++;
	m->stats.n_registered++;
	m->stats.registered_bytes += r->map.bytes;
}

static int map_file(struct frame_maps *m, struct record *r, int fd)
{
	struct stat st;

	r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (r->fd < 0 || fstat(r->fd, &st))
		return -errno;
	if ((uint64_t)st.st_size != r->map.bytes)
		return -EIO;
	void *addr = mmap(NULL, r->map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (addr == MAP_FAILED && errno == ENOMEM && frame_maps_trim(m, GIVE_WAY))
		addr = mmap(NULL, r->map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (addr == MAP_FAILED)
		return -errno;
	r->map.addr = addr;
	guard_lock(&m->lock);
	m->stats.n_mapped++;
	m->stats.mapped_bytes += r->map.bytes;
	return 0;
}

/* ---- get and put ---- */

/* lock held, which it gives up while another thread makes that record. Held; NULL: there is none of that size. */
static struct record *hold_locked(struct frame_maps *m, uint64_t id, uint64_t bytes)
{
	struct record *r;

	while ((r = *slot_of(m, id)) && r->is_making)
		pthread_cond_wait(&m->changed, &m->lock);
	if (!r || r->map.bytes != bytes)
		return NULL;
	leave_idle_locked(m, r);
	r->n_holders++;
	return r;
}

/* Found, or one to be made, held by the caller; a record of another size is out of the tables, *old_out is to be freed. */
static struct record *find_or_add(struct frame_maps *m, uint64_t id, uint64_t bytes, struct record *fresh,
				  struct record **old_out)
{
	guard_lock(&m->lock);
	struct record *r = hold_locked(m, id, bytes);

	*old_out = NULL;
	if (r) {
		/* One that is not registered may be by now, if nobody else has it. */
		r->is_making = !r->map.registration && r->n_holders == 1 && m->registrar.reg;
		return r;
	}
	r = *slot_of(m, id);
	if (r && take_out_locked(m, r))
		*old_out = r;
	*fresh = (struct record){ .map.bytes = bytes, .id = id, .fd = -1, .n_holders = 1, .is_making = true };
	add_locked(m, fresh);
	return fresh;
}

static void made(struct frame_maps *m, struct record *r, int rc)
{
	guard_lock(&m->lock);
	r->is_making = false;
	if (rc && !r->is_forgotten) {
		*slot_of(m, r->id) = r->hash_next;
		r->is_forgotten = true;
	}
	pthread_cond_broadcast(&m->changed);
}

int frame_maps_get(struct frame_maps *m, uint64_t id, uint64_t bytes, int fd, struct frame_map **out)
{
	struct record *fresh = malloc(sizeof(*fresh)), *old;
	int rc = 0;

	if (!fresh)
		return -ENOMEM;
	struct record *r = find_or_add(m, id, bytes, fresh, &old);
	if (r != fresh)
		free(fresh);
	if (old)
		record_free(m, old);
	if (r->is_making) {
		rc = r->map.addr ? 0 : map_file(m, r, fd);
		if (!rc)
			try_to_register(m, r);
		made(m, r, rc);
	}
	if (rc)
		record_free(m, r);
	else
		*out = &r->map;
	return rc;
}

struct frame_map *frame_maps_find(struct frame_maps *m, uint64_t id, uint64_t bytes)
{
	guard_lock(&m->lock);
	struct record *r = hold_locked(m, id, bytes);

	if (!r)
		return NULL;
	if (!r->map.registration && m->registrar.reg && r->n_holders == 1 && clock_now_ns() >= m->retry_ns) {
		r->n_holders--;
		join_idle_locked(m, r);
		return NULL;
	}
	return &r->map;
}

void frame_maps_put(struct frame_maps *m, struct frame_map *map)
{
	struct record *r = (struct record *)map, *dead = NULL;

	pthread_mutex_lock(&m->lock);
	if (!--r->n_holders && r->is_forgotten) {
		dead = r;
	} else if (!r->n_holders) {
		join_idle_locked(m, r);
		if (m->n_idle > m->capacity)
			dead = take_oldest_locked(m, m->n_idle - m->capacity);
	}
	pthread_mutex_unlock(&m->lock);
	free_list(m, dead);
}

/* ---- frames that come and go ---- */

int frame_maps_fd(struct frame_maps *m, uint64_t id)
{
	pthread_mutex_lock(&m->lock);
	struct record *r = *slot_of(m, id);
	if (r && r->is_making)
		r = NULL; /* somebody uses it */
	if (r) {
		leave_idle_locked(m, r);
		r->n_holders++;
	}
	pthread_mutex_unlock(&m->lock);
	if (!r)
		return -1;
	int fd = fcntl(r->fd, F_DUPFD_CLOEXEC, 0);
	frame_maps_put(m, &r->map);
	return fd;
}

bool frame_maps_renew(struct frame_maps *m, uint64_t id, uint64_t new_id)
{
	guard_lock(&m->lock);
	struct record *r = *slot_of(m, id);

	if (!r)
		return true;
	if (r->n_holders)
		return false;
	*slot_of(m, id) = r->hash_next;
	r->id = new_id;
	add_locked(m, r);
	return true;
}

void frame_maps_forget(struct frame_maps *m, uint64_t id)
{
	struct record *dead = NULL;

	pthread_mutex_lock(&m->lock);
	struct record *r = *slot_of(m, id);
	if (r && take_out_locked(m, r))
		dead = r;
	pthread_mutex_unlock(&m->lock);
	if (dead)
		record_free(m, dead);
}

/* ---- the registrar ---- */

/* Takes what is registered from every record; nobody may hold one. */
static void deregister_all(struct frame_maps *m)
{
	for (uint32_t b = 0; b < N_BUCKETS; b++)
		for (struct record *r = m->buckets[b]; r; r = r->hash_next)
			deregister(m, r);
}

void frame_maps_set_registrar(struct frame_maps *m, const struct tier_registrar *r)
{
	if (m->registrar.reg)
		deregister_all(m);
	guard_lock(&m->lock);
	m->registrar = r ? *r : (struct tier_registrar){ .reg = NULL };
	m->retry_ns = 0;
}

void frame_maps_get_stats(struct frame_maps *m, struct tier_map_stats *out)
{
	guard_lock(&m->lock);
	*out = m->stats;
	out->max_idle = m->capacity;
}
