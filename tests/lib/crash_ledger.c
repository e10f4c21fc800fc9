/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/crash_ledger.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- random numbers ---- */

uint64_t crash_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

uint64_t crash_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15;
	return crash_mix(*state);
}

/* ---- file and names ---- */

struct crash_ledger *crash_ledger_map(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || fstat(fd, &st))
		err(99, "ledger %s", path);
	bool is_new = st.st_size != sizeof(struct crash_ledger);
	if (is_new && (ftruncate(fd, 0) || ftruncate(fd, sizeof(struct crash_ledger))))
		err(99, "ledger %s", path);
	struct crash_ledger *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (l == MAP_FAILED)
		err(99, "ledger %s", path);
	close(fd);
	if (is_new) {
		atomic_store(&l->next_uid, 1);
		for (unsigned n = 0; n < CRASH_NAMES; n++) {
			l->names[n].changes[0].flags = CRASH_SAFE;
			l->names[n].changes[0].from = CRASH_NAMES;
		}
	}
	return l;
}

static void compact(struct crash_name *n)
{
	unsigned first = n->durable < n->seen ? n->durable : n->seen;

	for (unsigned k = first; first && k <= n->issued; k++)
		n->changes[k - first] = n->changes[k];
	n->issued -= first;
	n->returned -= first;
	n->seen -= first;
	n->durable -= first;
	for (unsigned k = 0; k <= n->issued; k++)
		n->changes[k].from = CRASH_NAMES; /* its number has changed */
}

void crash_ledger_compact(struct crash_ledger *l)
{
	for (unsigned n = 0; n < CRASH_NAMES; n++)
		compact(&l->names[n]);
}

enum {
	PER_WRITER = 2 * CRASH_PER_CLASS
};

unsigned crash_name_first(unsigned writer, bool keep)
{
	return writer * PER_WRITER + (keep ? CRASH_PER_CLASS : 0);
}

bool crash_name_is_keep(unsigned n)
{
	return n < CRASH_WRITERS * PER_WRITER && n % PER_WRITER >= CRASH_PER_CLASS;
}

void crash_name_path(unsigned n, char out[32])
{
	if (n >= CRASH_WRITERS * PER_WRITER)
		snprintf(out, 32, "b/%u", n - CRASH_WRITERS * PER_WRITER);
	else
		snprintf(out, 32, "%s/%u-%u", crash_name_is_keep(n) ? "weights" : "c",
			 n / PER_WRITER, n % CRASH_PER_CLASS);
}

/* ---- content ---- */

static uint64_t word_of(struct crash_content c, uint64_t i)
{
	return i == 0 ? c.uid : i == 1 ? c.words : crash_mix(c.uid * 0x10001 + i);
}

void crash_content_fill(struct crash_content c, uint64_t *words)
{
	for (uint64_t i = 0; i < c.words; i++)
		words[i] = word_of(c, i);
}

static ssize_t read_all(int fd, void *buf, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = pread(fd, (char *)buf + at, len - at, (off_t)at);
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

const char *crash_content_read(int fd, uint64_t *buf, struct crash_content *out)
{
	static _Thread_local char text[160];
	ssize_t n = read_all(fd, buf, (CRASH_MAX_WORDS + 1) * sizeof(*buf));
	struct crash_content c = {0};

	if (n < 0) {
		snprintf(text, sizeof(text), "read: %s", strerror(errno));
		return text;
	}
	if (n >= 16)
		c = (struct crash_content){buf[0], (uint32_t)buf[1]};
	if (n < 16 || buf[1] > CRASH_MAX_WORDS || (size_t)n != c.words * sizeof(*buf)) {
		snprintf(text, sizeof(text), "%zd bytes, begins with uid %lu of %u words", n, c.uid,
			 c.words);
		return text;
	}
	for (uint64_t i = 2; i < c.words; i++)
		if (buf[i] != word_of(c, i)) {
			snprintf(text, sizeof(text), "torn: uid %lu of %u words, word %lu is %#lx",
				 c.uid, c.words, i, buf[i]);
			return text;
		}
	*out = c;
	return NULL;
}

/* ---- changes ---- */

unsigned crash_issue(struct crash_ledger *l, unsigned name, struct crash_content c, unsigned flags)
{
	struct crash_name *n = &l->names[name];
	unsigned k = atomic_load(&n->issued) + 1;

	if (k >= CRASH_CHANGES)
		return 0;
	n->changes[k] = (struct crash_change){
		.uid = c.uid, .words = c.words, .flags = flags, .from = CRASH_NAMES};
	atomic_store(&n->issued, k);
	atomic_fetch_add(&l->n_changes, 1);
	return k;
}

bool crash_is_possible(const struct crash_name *n, unsigned lo, unsigned hi, struct crash_content c,
		       unsigned *at_out)
{
	for (unsigned k = hi + 1; k-- > lo;) {
		const struct crash_change *it = &n->changes[k];
		if (it->flags & CRASH_FAILED)
			continue;
		if (it->uid == c.uid && (!c.uid || it->words == c.words)) {
			*at_out = k;
			return true;
		}
	}
	return false;
}
