// SPDX-License-Identifier: Apache-2.0
/*
 * fault_disk_mount - disks in memory that lose power and fail when told to
 *
 * usage: fault_disk_mount DIR N MIB
 *
 * Mounts a file system at DIR that has N files "disk0" ... of MIB MiB, to put loop devices on, and a file
 * "control". Stays in the foreground until it is unmounted.
 *
 * A disk has a volatile cache that is as large as the disk and writes to the medium at a flush only:
 *
 *   write --> cache --flush (fsync, which a loop device sends for each of its own)--> medium
 *
 * Commands are written to "control", one by one; the write fails with what became of it:
 *
 *   cut PATH KEEP SEED   what a power failure at this moment leaves of all disks: images PATH.0 ... The
 *                        disks go on. Of what is in the caches survives, by KEEP:
 *                          none     nothing
 *                          all      all of it
 *                          prefix   the first writes
 *                          some     any of its 4 KiB sectors, chosen by SEED
 *   fail K WHAT          from now on disk K answers EIO to: none, reads, writes, all
 *
 * One thread, so a cut is one moment for all disks, between two requests.
 *
 * Exit status: 0 unmounted, 77 called without arguments, 99 cannot run.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_DISKS = 4,
	SECTOR = 4096,
	INO_CONTROL = 2,
	INO_DISK = 3
};

struct cached_write {
	struct cached_write *next;
	uint64_t off;
	size_t len;
	char data[];
};

struct disk {
	int cache, medium; /* memfds: with and without what is not flushed */
	struct cached_write *first, **end;
	uint64_t n_writes;
	bool fails_reads, fails_writes;
};

static struct disk disks[MAX_DISKS];
static unsigned n_disks;
static uint64_t disk_bytes;

/* ---- disk ---- */

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static int write_all(int fd, const char *data, size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, (off_t)off);
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

static int disk_write(struct disk *d, const char *data, size_t len, uint64_t off)
{
	if (d->fails_writes)
		return -EIO;
	if (off + len > disk_bytes)
		return -ENOSPC;
	struct cached_write *w = malloc(sizeof(*w) + len);
	if (!w)
		return -ENOMEM;
	*w = (struct cached_write){.off = off, .len = len};
	memcpy(w->data, data, len);
	*d->end = w;
	d->end = &w->next;
	d->n_writes++;
	return write_all(d->cache, data, len, off);
}

static int disk_flush(struct disk *d)
{
	int rc = d->fails_writes ? -EIO : 0;

	while (!rc && d->first) {
		struct cached_write *w = d->first;
		rc = write_all(d->medium, w->data, w->len, w->off);
		d->first = w->next;
		free(w);
	}
	if (!d->first) {
		d->end = &d->first;
		d->n_writes = 0;
	}
	return rc;
}

/* ---- power failure ---- */

static int copy_medium(const struct disk *d, int to)
{
	static char buf[1 << 20];
	off_t off = 0;

	if (ftruncate(to, (off_t)disk_bytes))
		return -errno;
	while ((off = lseek(d->medium, off, SEEK_DATA)) >= 0) {
		off_t end = lseek(d->medium, off, SEEK_HOLE);
		while (off < end) {
			size_t step = (uint64_t)(end - off) < sizeof(buf) ? (size_t)(end - off) :
									    sizeof(buf);
			ssize_t n = pread(d->medium, buf, step, off);
			int rc = n <= 0 ? -EIO : write_all(to, buf, (size_t)n, (uint64_t)off);
			if (rc)
				return rc;
			off += n;
		}
	}
	return errno == ENXIO ? 0 : -errno; /* no data behind off */
}

/* The sectors of a write, each by chance, with a likelihood of its own for the whole write. */
static int keep_some(int to, const struct cached_write *w, uint64_t *rng)
{
	uint64_t of_8 = next_random(rng) % 9;
	int rc = 0;

	for (size_t at = 0, step; !rc && at < w->len; at += step) {
		step = SECTOR - (w->off + at) % SECTOR;
		if (step > w->len - at)
			step = w->len - at;
		if (next_random(rng) % 8 < of_8)
			rc = write_all(to, w->data + at, step, w->off + at);
	}
	return rc;
}

static int keep_cached(const struct disk *d, int to, const char *keep, uint64_t *rng)
{
	bool is_some = strcmp(keep, "some") == 0;
	uint64_t left = strcmp(keep, "none") == 0   ? 0 :
			strcmp(keep, "prefix") == 0 ? next_random(rng) % (d->n_writes + 1) :
						      d->n_writes;
	int rc = 0;

	for (const struct cached_write *w = d->first; !rc && left; w = w->next, left--)
		rc = is_some ? keep_some(to, w, rng) : write_all(to, w->data, w->len, w->off);
	return rc;
}

static int cut(const char *path, const char *keep, uint64_t seed)
{
	int rc = 0;

	for (unsigned k = 0; !rc && k < n_disks; k++) {
		char image[4200];
		snprintf(image, sizeof(image), "%s.%u", path, k);
		int to = open(image, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (to < 0)
			return -errno;
		rc = copy_medium(&disks[k], to);
		if (!rc)
			rc = keep_cached(&disks[k], to, keep, &seed);
		close(to);
	}
	return rc;
}

static int command(const char *text)
{
	char path[4096], what[16];
	unsigned long seed;
	unsigned k;

	if (sscanf(text, "cut %4095s %15s %lu", path, what, &seed) == 3)
		return cut(path, what, seed);
	if (sscanf(text, "fail %u %15s", &k, what) != 2 || k >= n_disks)
		return -EINVAL;
	bool is_all = strcmp(what, "all") == 0;
	disks[k].fails_reads = is_all || strcmp(what, "reads") == 0;
	disks[k].fails_writes = is_all || strcmp(what, "writes") == 0;
	return 0;
}

/* ---- FUSE ---- */

static struct disk *disk_of(fuse_ino_t ino)
{
	return ino >= INO_DISK && ino < INO_DISK + n_disks ? &disks[ino - INO_DISK] : NULL;
}

static bool fill_attr(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_mode = S_IFREG | 0600};
	if (ino == FUSE_ROOT_ID)
		st->st_mode = S_IFDIR | 0700;
	else if (disk_of(ino))
		st->st_size = (off_t)disk_bytes;
	else if (ino != INO_CONTROL)
		return false;
	return true;
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.attr_timeout = 1000, .entry_timeout = 1000};
	unsigned k;

	if (strcmp(name, "control") == 0)
		e.ino = INO_CONTROL;
	else if (sscanf(name, "disk%u", &k) == 1)
		e.ino = INO_DISK + k;
	if (parent == FUSE_ROOT_ID && e.ino && fill_attr(e.ino, &e.attr))
		fuse_reply_entry(req, &e);
	else
		fuse_reply_err(req, ENOENT);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	if (fill_attr(ino, &st))
		fuse_reply_attr(req, &st, 1000);
	else
		fuse_reply_err(req, ENOENT);
}

/* mkfs and O_TRUNC of the shell: the size stays as it is. */
static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	do_getattr(req, ino, fi);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static char buf[1 << 20];
	struct disk *d = disk_of(ino);

	if (!d || d->fails_reads) {
		fuse_reply_err(req, EIO);
		return;
	}
	ssize_t n = pread(d->cache, buf, size < sizeof(buf) ? size : sizeof(buf), off);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct disk *d = disk_of(ino);
	char text[4200];

	snprintf(text, sizeof(text), "%.*s", (int)(size < sizeof(text) ? size : sizeof(text) - 1),
		 buf);
	int rc = d ? disk_write(d, buf, size, (uint64_t)off) : command(text);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_write(req, size);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct disk *d = disk_of(ino);

	fuse_reply_err(req, d ? -disk_flush(d) : 0);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = do_lookup,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.open = do_open,
	.read = do_read,
	.write = do_write,
	.fsync = do_fsync,
};

static int memory(void)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)disk_bytes))
		err(99, "memfd of %lu bytes", disk_bytes);
	return fd;
}

int main(int argc, char **argv)
{
	char *words[] = {argv[0], (char *)"-o", (char *)"fsname=fault_disk"};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);

	if (argc < 4) {
		puts("needs a folder, a number of disks and their MiB: run by integration tests");
		return 77;
	}
	n_disks = (unsigned)atoi(argv[2]);
	disk_bytes = strtoull(argv[3], NULL, 0) << 20;
	if (!n_disks || n_disks > MAX_DISKS || !disk_bytes)
		errx(99, "1 to %d disks", MAX_DISKS);
	for (unsigned k = 0; k < n_disks; k++)
		disks[k] = (struct disk){
			.cache = memory(), .medium = memory(), .end = &disks[k].first};
	struct fuse_session *se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	if (!se || fuse_set_signal_handlers(se) || fuse_session_mount(se, argv[1]))
		errx(99, "cannot mount at %s", argv[1]);
	fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	return 0;
}
