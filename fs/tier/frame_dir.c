/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_dir: the life of frames in one directory, and the bytes they are charged.
 *
 *   state      name   fd         charged as                    leaves by
 *   open       yes    owner's    struct frame.charged_bytes    seal, discard
 *   sealed     yes    none       its owner's record            drop
 *   free       yes    free list  recycled.charged_bytes        take, trim (unlinked)
 *   zombie     none   ours       zombie.charged_bytes          reclaim, when its last user is gone
 *
 * Invariants: space.used_bytes is the sum over all four; a frame is in one state; a free frame has no
 * user but us; a name, once given up, never names other bytes (a recycled file gets a new id first),
 * so a stale record finds nothing rather than another object.
 *
 * A charge is an estimate from above while a frame is open (bytes in whole pages and the overhead) and
 * exact from seal on (st_blocks). Sealing may thus pass the budget by what was written uncharged.
 *
 * Lock: space_lock (see frame_space.c), never over a system call.
 * Failure: an operation that fails leaves the frame in its state, with its charge.
 */
#include "tier/frame_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/frame_map.h"

static uint64_t stat_charge(const struct frame_dir *d, const struct stat *st)
{
	return frame_space_charge(d, (uint64_t)st->st_blocks * 512);
}

/* ---- take ---- */

static bool take_recycled(struct frame_dir *d, uint64_t size_bytes, struct frame *out)
{
	struct recycled r;

	guard_lock(&d->space_lock);
	if (!free_list_take(&d->free_list, size_bytes, &r))
		return false;
	d->space.n_open++;
	d->space.n_recycled++;
	*out = (struct frame){.id = r.id,
			      .fd = r.fd,
			      .size_bytes = size_bytes,
			      .stale_bytes = size_bytes,
			      .charged_bytes = r.charged_bytes};
	return true;
}

static int create_frame(struct frame_dir *d, uint64_t size_bytes, struct frame *out)
{
	uint64_t id;
	int fd = frame_name_create(d, &id);

	if (frame_space_free_fds(d, fd))
		fd = frame_name_create(d, &id);
	if (fd < 0) {
		log_error("%s: create a frame in %s: %s", d->conf.name, d->conf.path,
			  strerror(-fd));
		return fd;
	}
	if (size_bytes > 0 && ftruncate(fd, (off_t)size_bytes)) {
		int err = errno;
		log_error("%s: size frame %016llx to %llu: %m", d->conf.name,
			  (unsigned long long)id, (unsigned long long)size_bytes);
		(void)frame_name_unlink(d, id);
		close(fd);
		return -err;
	}
	*out = (struct frame){.id = id,
			      .fd = fd,
			      .size_bytes = size_bytes,
			      .charged_bytes = d->conf.overhead_bytes};
	return 0;
}

int frame_dir_take(struct tier *t, uint64_t size_hint_bytes, struct frame *out)
{
	struct frame_dir *d = frame_dir_of(t);

	if (size_hint_bytes > INT64_MAX)
		return -EFBIG;
	if (size_hint_bytes > 0 && take_recycled(d, size_hint_bytes, out))
		return 0;
	int rc = frame_space_reserve(d, d->conf.overhead_bytes);
	if (rc)
		return rc;
	rc = create_frame(d, size_hint_bytes, out);
	if (rc) {
		frame_space_uncharge(d, d->conf.overhead_bytes);
		return rc;
	}
	guard_lock(&d->space_lock);
	d->space.n_open++;
	d->space.n_created++;
	return 0;
}

/* ---- open frames ---- */

int frame_dir_resize(struct tier *t, struct frame *f, uint64_t bytes)
{
	struct frame_dir *d = frame_dir_of(t);

	if (bytes == f->size_bytes)
		return 0;
	if (bytes > INT64_MAX)
		return -EFBIG;
	/* Pages that go are no longer the file's, though a device may still know them. */
	if (d->maps)
		frame_maps_forget(d->maps, f->id);
	if (ftruncate(f->fd, (off_t)bytes)) {
		int err = errno;
		log_error("%s: resize frame %016llx from %llu to %llu: %m", d->conf.name,
			  (unsigned long long)f->id, (unsigned long long)f->size_bytes,
			  (unsigned long long)bytes);
		return -err;
	}
	f->size_bytes = bytes;
	if (f->stale_bytes > bytes)
		f->stale_bytes = bytes;
	uint64_t most = frame_space_charge(d, bytes);
	if (f->charged_bytes > most) {
		frame_space_uncharge(d, f->charged_bytes - most);
		f->charged_bytes = most;
	}
	return 0;
}

int frame_dir_seal(struct tier *t, struct frame *f, uint64_t *charged_out)
{
	struct frame_dir *d = frame_dir_of(t);
	struct stat st;

	if (fstat(f->fd, &st)) {
		int err = errno;
		log_error("%s: stat frame %016llx: %m", d->conf.name, (unsigned long long)f->id);
		return -err;
	}
	if ((uint64_t)st.st_size != f->size_bytes) {
		log_error("%s: frame %016llx has %lld bytes instead of %llu", d->conf.name,
			  (unsigned long long)f->id, (long long)st.st_size,
			  (unsigned long long)f->size_bytes);
		return -EIO;
	}
	uint64_t charge = stat_charge(d, &st);
	guard_lock(&d->space_lock);
	frame_space_uncharge_locked(d, f->charged_bytes);
	d->space.used_bytes += charge;
	d->space.n_open--;
	d->space.n_sealed++;
	close(f->fd);
	*f = FRAME_NONE;
	*charged_out = charge;
	return 0;
}

int frame_dir_open(struct tier *t, uint64_t frame_id)
{
	struct frame_dir *d = frame_dir_of(t);
	int fd = frame_name_open(d, frame_id, O_RDONLY);

	if (frame_space_free_fds(d, fd))
		fd = frame_name_open(d, frame_id, O_RDONLY);
	if (fd < 0)
		log_warn("%s: open frame %016llx: %s", d->conf.name, (unsigned long long)frame_id,
			 strerror(-fd));
	return fd;
}

/* One directory that is there: what may be wrong with a frame is the frame's alone. */
bool frame_dir_is_lost(struct tier *t, uint64_t frame_id)
{
	return false;
}

bool frame_dir_may_return(struct tier *t, uint64_t frame_id)
{
	return false;
}

int frame_dir_report_error(struct tier *t, uint64_t frame_id, int err)
{
	return err;
}

static int open_sealed(void *arg, uint64_t frame_id)
{
	struct frame_dir *d = arg;

	return frame_dir_open(&d->tier, frame_id);
}

int frame_dir_borrow(struct tier *t, uint64_t frame_id)
{
	struct frame_dir *d = frame_dir_of(t);

	return d->fds ? fd_cache_borrow(d->fds, frame_id, open_sealed, d) : frame_dir_open(t, frame_id);
}

void frame_dir_give_back(struct tier *t, uint64_t frame_id, int fd)
{
	struct frame_dir *d = frame_dir_of(t);

	if (d->fds)
		fd_cache_give_back(d->fds, frame_id, fd);
	else
		close(fd);
}

/* ---- in memory ---- */

static int open_to_map(struct frame_dir *d, uint64_t frame_id)
{
	int fd = frame_name_open(d, frame_id, O_RDWR);

	return frame_space_free_fds(d, fd) ? frame_name_open(d, frame_id, O_RDWR) : fd;
}

int frame_dir_map(struct tier *t, uint64_t frame_id, uint64_t bytes, int fd, struct frame_map **out)
{
	struct frame_dir *d = frame_dir_of(t);
	struct frame_map *found = frame_maps_find(d->maps, frame_id, bytes);

	if (found) {
		*out = found;
		return 0;
	}
	autoclose int opened = fd < 0 ? open_to_map(d, frame_id) : -1;
	if (fd < 0 && opened < 0)
		return opened;
	return frame_maps_get(d->maps, frame_id, bytes, fd < 0 ? opened : fd, out);
}

void frame_dir_unmap(struct tier *t, struct frame_map *map)
{
	frame_maps_put(frame_dir_of(t)->maps, map);
}

void frame_dir_set_registrar(struct tier *t, const struct tier_registrar *r)
{
	frame_maps_set_registrar(frame_dir_of(t)->maps, r);
}

void frame_dir_get_map_stats(struct tier *t, struct tier_map_stats *out)
{
	frame_maps_get_stats(frame_dir_of(t)->maps, out);
}

/* ---- the end of a frame ---- */

void frame_dir_discard(struct tier *t, struct frame *f)
{
	struct frame_dir *d = frame_dir_of(t);
	struct recycled r = {.id = f->id, .fd = f->fd};
	struct stat st;

	if (f->id == 0)
		return;
	/* Pages may have come and gone since the charge was made. An unreadable frame is just removed. */
	bool is_known = !fstat(f->fd, &st);
	pthread_mutex_lock(&d->space_lock);
	d->space.n_open--;
	frame_space_uncharge_locked(d, f->charged_bytes);
	if (is_known) {
		r.size_bytes = (uint64_t)st.st_size;
		r.charged_bytes = stat_charge(d, &st);
		d->space.used_bytes += r.charged_bytes;
	}
	pthread_mutex_unlock(&d->space_lock);
	frame_space_retire(d, &r);
	*f = FRAME_NONE;
}

void frame_dir_drop(struct tier *t, uint64_t frame_id, uint64_t size_bytes, uint64_t charged_bytes)
{
	struct frame_dir *d = frame_dir_of(t);
	struct recycled r = {
		.id = frame_id, .size_bytes = size_bytes, .charged_bytes = charged_bytes};
	struct stat st;

	if (d->fds)
		fd_cache_forget(d->fds, frame_id);
	pthread_mutex_lock(&d->space_lock);
	d->space.n_sealed--;
	pthread_mutex_unlock(&d->space_lock);
	r.fd = d->maps ? frame_maps_fd(d->maps, frame_id) : -1;
	if (r.fd < 0)
		r.fd = frame_name_open(d, frame_id, O_RDWR);
	if (frame_space_free_fds(d, r.fd))
		r.fd = frame_name_open(d, frame_id, O_RDWR);
	if (r.fd < 0) {
		log_error("%s: drop frame %016llx: %s", d->conf.name, (unsigned long long)frame_id,
			  strerror(-r.fd));
		if (r.fd != -ENOENT)
			(void)frame_name_unlink(d, frame_id);
		frame_space_uncharge(d, charged_bytes);
		return;
	}
	/* A size that is wrong in the caller's record would show old bytes to the next object. */
	if (fstat(r.fd, &st) || (uint64_t)st.st_size != size_bytes)
		r.size_bytes = 0; /* not recycled */
	frame_space_retire(d, &r);
}

/* ---- upkeep ---- */

void frame_dir_adopt(struct tier *t, uint64_t frame_id, uint64_t charged_bytes)
{
	struct frame_dir *d = frame_dir_of(t);

	frame_name_seen(d, frame_id);
	guard_lock(&d->space_lock);
	d->space.n_sealed++;
	d->space.used_bytes += charged_bytes;
}

/* ---- lifecycle ---- */

static void ignore_lease_signal(void)
{
	struct sigaction now, ignore = {.sa_handler = SIG_IGN};

	if (!sigaction(SIGIO, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
	    now.sa_handler == SIG_DFL)
		sigaction(SIGIO, &ignore, NULL);
}

/* At most a quarter of the fds this process may have. */
static uint32_t fd_share(uint32_t wanted)
{
	struct rlimit fds;

	if (!getrlimit(RLIMIT_NOFILE, &fds) && fds.rlim_cur / 4 < wanted)
		return (uint32_t)(fds.rlim_cur / 4);
	return wanted;
}

/* Each has a descriptor, and counts against the mappings of this process, of which others need some too. */
static uint32_t map_share(uint32_t wanted)
{
	unsigned long max_maps = 65530; /* Linux's default */
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");

	if (f) {
		if (fscanf(f, "%lu", &max_maps) != 1)
			max_maps = 65530;
		fclose(f);
	}
	uint32_t share = fd_share(wanted);
	return share < max_maps / 2 ? share : (uint32_t)(max_maps / 2);
}

int frame_dir_init(struct frame_dir *d, const struct tier_ops *ops,
		   const struct frame_dir_conf *conf)
{
	struct timespec now;
	int rc;

	*d = (struct frame_dir){
		.tier.ops = ops, .conf = *conf, .space.budget_bytes = conf->budget_bytes};
	d->conf.path = strdup(conf->path);
	if (!d->conf.path)
		return -ENOMEM;
	rc = free_list_init(&d->free_list, conf->recycles ? fd_share(FREE_LIST_MAX_FRAMES) : 0);
	if (rc)
		goto err_path;
	d->fd = open(conf->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->fd < 0) {
		rc = -errno;
		log_error("%s: open directory %s: %m", conf->name, conf->path);
		goto err_free_list;
	}
	/* Where frames are recycled they are in memory, and read in large numbers. */
	d->fds = conf->recycles ? fd_cache_create(fd_share(FD_CACHE_MAX_FRAMES)) : NULL;
	d->maps = conf->recycles ? frame_maps_create(map_share(FRAME_MAPS_MAX)) : NULL;
	if ((!d->fds || !d->maps) && conf->recycles) {
		rc = -ENOMEM;
		goto err_caches;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	d->next_id = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	pthread_mutex_init(&d->space_lock, NULL);
	pthread_mutex_init(&d->grow_lock, NULL);
	ignore_lease_signal();
	return 0;

err_caches:
	fd_cache_destroy(d->fds);
	frame_maps_destroy(d->maps);
	close(d->fd);
err_free_list:
	free_list_fini(&d->free_list);
err_path:
	free((char *)(uintptr_t)d->conf.path);
	return rc;
}

void frame_dir_fini(struct frame_dir *d, bool removes_frames)
{
	fd_cache_destroy(d->fds);
	frame_space_fini(d);
	frame_maps_destroy(d->maps);
	if (d->space.n_open > 0)
		log_warn("%s: %llu frames still open at the end", d->conf.name,
			 (unsigned long long)d->space.n_open);
	if (removes_frames)
		frame_name_remove_all(d);
	close(d->fd);
	pthread_mutex_destroy(&d->grow_lock);
	pthread_mutex_destroy(&d->space_lock);
	free((char *)(uintptr_t)d->conf.path);
}
