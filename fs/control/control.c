/* SPDX-License-Identifier: Apache-2.0 */
#include "control/control.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "fastpath/buffer.h"
#include "fs.h"
#include "inode_table.h"
#include "object/object.h"
#include "object/scrub.h"

/* Inode numbers 2..: above the root, below every number of the version clock. */
#define FIRST_KEY 2

static const struct {
	const char *name;
	mode_t mode;
	char *(*text)(struct fs *fs, size_t *len_out);
} files[N_CONTROL] = {
	[CONTROL_DIR] = { ".mooncake", S_IFDIR | 0555, NULL },
	[CONTROL_STATUS] = { "status.json", S_IFREG | 0444, status_json },
	[CONTROL_METRICS] = { "metrics", S_IFREG | 0444, metrics_text },
	[CONTROL_CONTROL] = { "control", S_IFREG | 0200, NULL },
	[CONTROL_SESSION] = { "session", S_IFREG | 0666, NULL },
	[CONTROL_BUFFERS] = { "buffers", S_IFDIR | S_ISVTX | 0777, NULL },
};

uint64_t control_ino(int control_id)
{
	return FIRST_KEY + (uint64_t)control_id;
}

void control_init(struct fs *fs)
{
	int64_t now = now_real_ns();

	guard_lock(&fs->lock);
	for (int k = 0; k < N_CONTROL; k++) {
		struct entry e = { .ino = FIRST_KEY + (uint64_t)k, .mode = files[k].mode,
				   .uid = geteuid(), .gid = getegid(), .atime_ns = now,
				   .mtime_ns = now, .ctime_ns = now, .btime_ns = now };
		struct inode *i = inode_create_locked(fs, e.ino, INODE_CONTROL,
						      k ? FIRST_KEY : CATALOG_ROOT_INO,
						      files[k].name, &e);
		i->control_id = k;
	}
}

static struct inode *find(struct fs *fs, int control_id)
{
	guard_lock(&fs->lock);
	struct inode *i = inode_find(fs, FIRST_KEY + (uint64_t)control_id);
	inode_get_locked(i);
	return i;
}

struct inode *control_lookup(struct fs *fs, struct inode *dir, const char *name)
{
	if (control_is_reserved(dir, name))
		return find(fs, CONTROL_DIR);
	if (dir->kind != INODE_CONTROL)
		return NULL;
	if (dir->control_id == CONTROL_BUFFERS)
		return buffer_lookup(fs, name);
	for (int k = CONTROL_DIR + 1; k < N_CONTROL; k++)
		if (!strcmp(name, files[k].name))
			return find(fs, k);
	return NULL;
}

bool control_is_reserved(const struct inode *dir, const char *name)
{
	return dir->key == CATALOG_ROOT_INO && !strcmp(name, files[CONTROL_DIR].name);
}

char *control_text(struct fs *fs, int control_id, size_t *len_out)
{
	*len_out = 0;
	return files[control_id].text ? files[control_id].text(fs, len_out) : NULL;
}

/* What follows "scrub": nothing, a rate in bytes per second, or "stop". */
static int scrub_command(struct fs *fs, const char *text, size_t len)
{
	char word[32];
	uint64_t rate = 0;

	while (len && *text == ' ')
		text++, len--;
	if (len >= sizeof(word))
		return -EINVAL;
	memcpy(word, text, len);
	word[len] = '\0';
	if (!strcmp(word, "stop")) {
		scrub_stop(fs->scrub);
		return 0;
	}
	if (len && parse_size(word, &rate)) {
		log_warn("control: scrub: '%s' is no rate in bytes per second", word);
		return -EINVAL;
	}
	return scrub_start(fs->scrub, rate);
}

int control_command(struct fs *fs, const char *text, size_t len)
{
	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (len >= 5 && !memcmp(text, "scrub", 5) && (len == 5 || text[5] == ' '))
		return scrub_command(fs, text + 5, len - 5);
	bool is_free = len == 9 && !memcmp(text, "stop free", 9);
	if (!is_free && !(len == 4 && !memcmp(text, "stop", 4))) {
		log_warn("control: unknown command \"%.*s\"; known: stop, stop free, scrub [RATE], scrub stop",
			 (int)(len < 64 ? len : 64), text);
		return -EINVAL;
	}
	pthread_mutex_lock(&fs->lock);
	fs->free_on_stop = is_free;
	pthread_mutex_unlock(&fs->lock);
	/* The same way out as for an operator's SIGTERM, after this request was answered. */
	kill(getpid(), SIGTERM);
	return 0;
}

const char *control_dir_entry(struct fs *fs, unsigned int k, struct inode **inode_out)
{
	if (k + 1 >= N_CONTROL)
		return NULL;
	guard_lock(&fs->lock);
	*inode_out = inode_find(fs, FIRST_KEY + k + 1);
	return files[k + 1].name;
}
