/* SPDX-License-Identifier: Apache-2.0 */
/* ssd_box: see ssd_box.h. Set-up that fails aborts: no test can say anything then. */
#include "lib/ssd_box.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/fault_tier.h"

static void must(bool is_ok, const char *what)
{
	if (!is_ok) {
		fprintf(stderr, "ssd_box: %s: %m\n", what);
		abort();
	}
}

static struct ssd_box *creating;

static struct tier *wrap(struct tier *frames)
{
	for (uint32_t k = 0; k < SSD_BOX_MAX; k++)
		if (!creating->faults[k])
			return creating->faults[k] = fault_tier_create(frames);
	return NULL;
}

void ssd_box_init(struct ssd_box *box, uint32_t n, uint64_t budget_bytes)
{
	const char *tmp = getenv("TMPDIR");

	*box = (struct ssd_box){.n_dirs = n};
	if (!tmp || strlen(tmp) > 32 || access(tmp, W_OK))
		tmp = "/tmp";
	snprintf(box->top, sizeof(box->top), "%s/mcfs-ssd-XXXXXX", tmp);
	must(mkdtemp(box->top) != NULL, "mkdtemp");
	snprintf(box->state, sizeof(box->state), "%s/state", box->top);
	must(mkdir(box->state, 0700) == 0, "mkdir");
	for (uint32_t k = 0; k < SSD_BOX_MAX; k++) {
		snprintf(box->paths[k], sizeof(box->paths[k]), "%s/disk%u", box->top, k);
		box->dirs[k] =
			(struct ssd_dir){.path = box->paths[k], .budget_bytes = budget_bytes};
	}
}

int ssd_box_create(struct ssd_box *box)
{
	const struct ssd_conf conf = {
		.dirs = box->dirs, .n_dirs = box->n_dirs, .state_dir = box->state, .wrap = wrap};

	memset(box->faults, 0, sizeof(box->faults));
	creating = box;
	return ssd_tier_create(&conf, &box->t);
}

void ssd_box_destroy(struct ssd_box *box)
{
	if (box->t)
		tier_call(box->t, destroy, false);
	box->t = NULL;
}

void ssd_box_fini(struct ssd_box *box)
{
	char command[128];

	ssd_box_destroy(box);
	for (uint32_t k = 0; k < SSD_BOX_MAX; k++)
		umount2(box->paths[k], MNT_DETACH);
	snprintf(command, sizeof(command), "rm -rf %s", box->top);
	must(system(command) == 0, "rm");
}

int ssd_box_put(struct ssd_box *box, uint64_t size, struct ssd_box_frame *out)
{
	static const char bytes[65536] = "bytes";
	struct frame f = FRAME_NONE;
	int rc = tier_call(box->t, take, size, &f);

	if (rc)
		return rc;
	struct ssd_box_frame s = {.id = f.id, .size = size};
	rc = tier_call(box->t, charge, &f, size);
	for (uint64_t off = 0; !rc && off < size; off += sizeof(bytes))
		rc = tier_call(box->t, write, &f, bytes,
			       size - off < sizeof(bytes) ? size - off : sizeof(bytes), off);
	if (!rc)
		rc = tier_call(box->t, sync, &f);
	if (!rc)
		rc = tier_call(box->t, seal, &f, &s.charge);
	if (rc)
		tier_call(box->t, discard, &f);
	else
		*out = s;
	return rc;
}

bool ssd_box_opens(struct ssd_box *box, uint64_t frame_id)
{
	int fd = tier_call(box->t, open, frame_id);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

struct tier_stats ssd_box_stats(struct ssd_box *box)
{
	struct tier_stats stats;

	tier_call(box->t, get_stats, &stats);
	return stats;
}

struct ssd_disk_stats ssd_box_disk(struct ssd_box *box, uint32_t index)
{
	struct ssd_disk_stats stats;

	must(ssd_get_disk_stats(box->t, index, &stats) == 0, "get_disk_stats");
	return stats;
}

static bool has_own_mounts;

const char *ssd_box_mount(struct ssd_box *box, const char *path, uint64_t bytes)
{
	static uint32_t n_images;
	char image[96], command[320];

	if (geteuid() != 0)
		return "needs root to mount a loop device";
	if (!has_own_mounts &&
	    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)))
		return "needs a mount namespace of its own";
	has_own_mounts = true;
	snprintf(image, sizeof(image), "%s/image%u", box->top, n_images++);
	int fd = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "make image");
	close(fd);
	must(mkdir(path, 0700) == 0 || access(path, F_OK) == 0, "mkdir");
	snprintf(command, sizeof(command),
		 "mkfs.ext4 -q -m 0 -O ^has_journal %s >/dev/null 2>&1 && "
		 "mount -o loop %s %s >/dev/null 2>&1",
		 image, image, path);
	return system(command) ? "needs mkfs.ext4 and loop devices" : NULL;
}
