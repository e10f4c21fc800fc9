/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_space: what frames are charged, and what becomes of those that no object needs.
 *
 * Charges count whole pages and the tier's overhead for each frame. used_bytes is their sum over open,
 * sealed and free frames and zombies; only frame_space_reserve compares it with the budget.
 *
 *   given up --nobody else has it--> free list --too old, or space is short--> gone
 *            --somebody has it-----> zombie (no name) --its last user is gone--> gone
 *
 * Users are found with a write lease (fcntl(2), F_SETLEASE): the kernel grants it only if ours is the
 * one open file description of the inode. Mappings hold one too, including those of FUSE passthrough
 * that outlive their close. Our own mappings do not show: they and this fd share a file description (frame_map.h).
 * A zombie is not recycled when it becomes free: a file without a name gets none again.
 *
 * Lock: space_lock over counts and lists, never over a system call.
 * Failure: where leases do not work, and without memory for a zombie, a frame is unlinked and its bytes
 * are given back at once, though a user may hold them for longer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/frame_dir.h"
#include "tier/frame_map.h"

struct zombie {
	struct zombie *next;
	uint64_t charged_bytes;
	int fd;
};

enum frame_users {
	FRAME_UNUSED,
	FRAME_IN_USE,
	FRAME_USERS_UNKNOWN
};

static enum frame_users find_users(struct frame_dir *d, int fd)
{
	if (!fcntl(fd, F_SETLEASE, F_WRLCK)) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		return FRAME_UNUSED;
	}
	if (errno == EAGAIN)
		return FRAME_IN_USE;
	log_debug("%s: write lease in %s: %m", d->conf.name, d->conf.path);
	return FRAME_USERS_UNKNOWN;
}

/* ---- charges ---- */

uint64_t frame_space_charge(const struct frame_dir *d, uint64_t bytes)
{
	return ((bytes + FRAME_PAGE_BYTES - 1) & ~(FRAME_PAGE_BYTES - 1)) + d->conf.overhead_bytes;
}

/* A charge may come from a record on disk, so a wrong one must not wrap the sum. */
void frame_space_uncharge_locked(struct frame_dir *d, uint64_t bytes)
{
	d->space.used_bytes -= bytes < d->space.used_bytes ? bytes : d->space.used_bytes;
}

void frame_space_uncharge(struct frame_dir *d, uint64_t bytes)
{
	guard_lock(&d->space_lock);
	frame_space_uncharge_locked(d, bytes);
}

void frame_space_set_budget(struct frame_dir *d, uint64_t bytes)
{
	guard_lock(&d->space_lock);
	d->space.budget_bytes = bytes;
}

/* Takes the oldest free frame off the books; the caller removes the file with recycled_remove. */
static bool pop_oldest_locked(struct frame_dir *d, struct recycled *out)
{
	if (!free_list_take_oldest(&d->free_list, out))
		return false;
	frame_space_uncharge_locked(d, out->charged_bytes);
	return true;
}

static void recycled_remove(struct frame_dir *d, const struct recycled *r)
{
	if (d->maps)
		frame_maps_forget(d->maps, r->id);
	(void)frame_name_unlink(d, r->id); /* logged; it is found as an orphan at the next start */
	close(r->fd);
}

uint64_t frame_space_trim(struct frame_dir *d, uint64_t keep_bytes, uint32_t keep_frames)
{
	uint64_t given_back = 0;

	for (;;) {
		struct recycled old;
		pthread_mutex_lock(&d->space_lock);
		bool popped = (d->free_list.bytes > keep_bytes || d->free_list.n > keep_frames) &&
			      pop_oldest_locked(d, &old);
		pthread_mutex_unlock(&d->space_lock);
		if (!popped)
			return given_back;
		recycled_remove(d, &old);
		given_back += old.charged_bytes;
	}
}

bool frame_space_free_fds(struct frame_dir *d, int rc)
{
	if (rc != -EMFILE && rc != -ENFILE)
		return false;
	uint32_t n_fds = d->fds ? fd_cache_trim(d->fds) : 0;
	n_fds += d->maps ? frame_maps_trim(d->maps, UINT32_MAX) : 0;
	pthread_mutex_lock(&d->space_lock);
	uint32_t n = d->free_list.n;
	pthread_mutex_unlock(&d->space_lock);
	frame_space_trim(d, UINT64_MAX, n / 2);
	return n + n_fds > 0;
}

int frame_space_reserve(struct frame_dir *d, uint64_t bytes)
{
	for (;;) {
		struct recycled old;
		bool popped = false;
		pthread_mutex_lock(&d->space_lock);
		uint64_t budget = d->space.budget_bytes, used = d->space.used_bytes;
		bool fits = used <= budget && bytes <= budget - used;
		if (fits)
			d->space.used_bytes += bytes;
		else if (used - d->free_list.bytes <= budget &&
			 bytes <= budget - (used - d->free_list.bytes))
			popped = pop_oldest_locked(d, &old);
		pthread_mutex_unlock(&d->space_lock);
		if (fits)
			return 0;
		if (!popped)
			return -ENOSPC;
		recycled_remove(d, &old);
	}
}

int frame_dir_charge(struct tier *t, struct frame *f, uint64_t bytes)
{
	struct frame_dir *d = frame_dir_of(t);

	if (bytes > INT64_MAX)
		return -EFBIG;
	uint64_t charge = frame_space_charge(d, bytes);
	if (charge <= f->charged_bytes)
		return 0;
	int rc = frame_space_reserve(d, charge - f->charged_bytes);
	if (!rc)
		f->charged_bytes = charge;
	return rc;
}

/* ---- frames given up ---- */

static uint64_t free_list_limit(const struct frame_dir *d)
{
	return d->conf.budget_bytes / FREE_LIST_BUDGET_PART;
}

static bool is_recyclable(const struct frame_dir *d, const struct recycled *r)
{
	return d->conf.recycles && r->size_bytes > 0 && d->free_list.capacity > 0 &&
	       r->charged_bytes <= free_list_limit(d);
}

/* r is recyclable: older frames make room for it. */
static void recycle(struct frame_dir *d, const struct recycled *r)
{
	for (;;) {
		struct recycled old;
		pthread_mutex_lock(&d->space_lock);
		bool fits = !free_list_is_full(&d->free_list) &&
			    d->free_list.bytes <= free_list_limit(d) - r->charged_bytes;
		if (fits)
			free_list_push(&d->free_list, r);
		else
			(void)pop_oldest_locked(d, &old); /* there is one: r alone would fit */
		pthread_mutex_unlock(&d->space_lock);
		if (fits)
			return;
		recycled_remove(d, &old);
	}
}

/* False: no memory for one. */
static bool add_zombie(struct frame_dir *d, const struct recycled *r)
{
	struct zombie *z = malloc(sizeof(*z));

	if (!z)
		return false;
	*z = (struct zombie){.fd = r->fd, .charged_bytes = r->charged_bytes};
	guard_lock(&d->space_lock);
	z->next = d->zombies;
	d->zombies = z;
	d->space.n_zombies++;
	d->space.zombie_bytes += z->charged_bytes;
	return true;
}

/*
 * The new id comes before the test: whoever opened the old name is seen by the test, and whoever tries
 * later finds nothing. The other way round a late reader could see the next object's bytes.
 */
void frame_space_retire(struct frame_dir *d, const struct recycled *given_up)
{
	struct recycled r = *given_up;
	bool may_recycle = is_recyclable(d, &r) && !frame_name_renew(d, r.id, &r.id);
	enum frame_users users = find_users(d, r.fd);

	if (d->maps && may_recycle && !frame_maps_renew(d->maps, given_up->id, r.id))
		users = FRAME_IN_USE;
	if (may_recycle && users == FRAME_UNUSED) {
		recycle(d, &r);
		return;
	}
	if (d->maps) {
		frame_maps_forget(d->maps, given_up->id);
		frame_maps_forget(d->maps, r.id);
	}
	(void)frame_name_unlink(d, r.id);
	if (users == FRAME_IN_USE && add_zombie(d, &r))
		return;
	close(r.fd);
	frame_space_uncharge(d, r.charged_bytes);
}

/* Frees the zombies nobody uses any more; they are off the list, but counted, while looked at. */
static uint64_t reap_zombies(struct frame_dir *d)
{
	struct zombie *kept = NULL, **kept_end = &kept, *z, *next;
	uint64_t given_back = 0, n_freed = 0;

	pthread_mutex_lock(&d->space_lock);
	z = d->zombies;
	d->zombies = NULL;
	pthread_mutex_unlock(&d->space_lock);
	for (; z; z = next) {
		next = z->next;
		if (find_users(d, z->fd) == FRAME_IN_USE) {
			*kept_end = z;
			kept_end = &z->next;
			continue;
		}
		close(z->fd);
		given_back += z->charged_bytes;
		n_freed++;
		free(z);
	}
	guard_lock(&d->space_lock);
	*kept_end = d->zombies;
	d->zombies = kept;
	d->space.n_zombies -= n_freed;
	d->space.zombie_bytes -= given_back;
	frame_space_uncharge_locked(d, given_back);
	return given_back;
}

uint64_t frame_dir_reclaim(struct tier *t, uint64_t keep_bytes)
{
	struct frame_dir *d = frame_dir_of(t);

	return reap_zombies(d) + frame_space_trim(d, keep_bytes, UINT32_MAX);
}

void frame_dir_get_stats(struct tier *t, struct tier_stats *out)
{
	struct frame_dir *d = frame_dir_of(t);

	guard_lock(&d->space_lock);
	*out = d->space;
	out->high_watermark_bytes = out->budget_bytes / 100 * FRAME_HIGH_PERCENT;
	out->low_watermark_bytes = out->budget_bytes / 100 * FRAME_LOW_PERCENT;
	out->n_disks = 1;
	out->n_free_list = d->free_list.n;
	out->free_list_bytes = d->free_list.bytes;
}

void frame_space_fini(struct frame_dir *d)
{
	frame_space_trim(d, 0, 0);
	while (d->zombies) {
		struct zombie *z = d->zombies;
		d->zombies = z->next;
		close(z->fd);
		free(z);
	}
	free_list_fini(&d->free_list);
}
