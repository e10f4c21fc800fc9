// SPDX-License-Identifier: Apache-2.0
/*
 * torture_mount - processes that change files of a mount in every way, readers that check each read
 * against a model of what may be there
 *
 * usage: torture_mount DIR SECONDS SEED [rename-only]
 *
 * DIR is an empty directory. Two runs with one SEED make the same choices, in other interleavings.
 *
 * Content: 64-bit words. Word 0 is the content's uid, word 1 its length in bytes, word i a hash of
 * (uid, i): each 8 bytes of a file say to which content they belong. A uid is never used twice.
 *
 * Model: every name has one owner, a writer process. Each change of a name has a number, in order:
 *
 *   issued     the change has begun; readers may see it
 *   committed  its system call has returned; readers must see it, or a later one
 *
 * and an expectation (absent, or a uid and its length), kept for the last RING changes. A reader notes
 * committed before it opens a name and issued afterwards; what it found must be one of the changes
 * between. Hence a change that is torn, mixed, lost, reordered or that comes back is found by its
 * first reader. A handle that stays open while the name changes must keep its content.
 *
 * Changes: create or replace by rename of a temporary name, by O_TRUNC, by rewriting in place through
 * O_RDWR (rename-only leaves these two out: other file systems tear them), unlink, rename between two
 * names; and writers that are killed half-way, which changes nothing. Readers: read(2) of all,
 * pread at an offset, mappings, O_DIRECT, stat, readdir.
 *
 * Exit status: 0 all right (prints counts), 1 a difference (named), 77 called without arguments,
 * 99 cannot run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_WRITERS = 4, N_READERS = 3, READER_THREADS = 2, NAMES_PER_WRITER = 6, RING = 64 };
enum { N_NAMES = N_WRITERS * NAMES_PER_WRITER, MAX_WORDS = 48 * 1024 };

struct expectation {
	uint64_t uid; /* 0: absent */
	uint64_t length;
};

struct name_model {
	atomic_ulong committed, issued;
	struct expectation ring[RING];
};

static struct shared {
	atomic_bool stop, failed;
	atomic_ulong next_uid, n_changes, n_kills, n_reads, n_lists;
	struct name_model names[N_NAMES];
} *shared;

static const char *dir;
static bool rename_only;
static uint64_t seed;

/* ---- helpers ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static uint64_t next_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15;
	return mix(*state);
}

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void fail(const char *fmt, ...)
{
	char text[512];
	va_list args;
	int saved = errno;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (!atomic_exchange(&shared->failed, true))
		fprintf(stderr, "torture_mount: %s (errno %d: %s)\n", text, saved, strerror(saved));
	atomic_store(&shared->stop, true);
	_exit(1);
}

static void path_of(int name, char *out)
{
	snprintf(out, 4096, "%s/object-%02d", dir, name);
}

static uint64_t word_of(uint64_t uid, uint64_t length, uint64_t i)
{
	return i == 0 ? uid : i == 1 ? length : mix(uid * 0x10001 + i);
}

static void fill(uint64_t *words, struct expectation e)
{
	for (uint64_t i = 0; i < e.length / 8; i++)
		words[i] = word_of(e.uid, e.length, i);
}

static struct expectation new_content(uint64_t *rng)
{
	uint64_t words = next_random(rng) % 4 ? 2 + next_random(rng) % 2046
					      : 2 + next_random(rng) % (MAX_WORDS - 2);

	if (next_random(rng) % 3 == 0)
		words = (words + 511) / 512 * 512;
	return (struct expectation){ atomic_fetch_add(&shared->next_uid, 1), words * 8 };
}

/* ---- model ---- */

static void issue(int name, struct expectation e)
{
	struct name_model *m = &shared->names[name];
	unsigned long n = atomic_load(&m->issued) + 1;

	m->ring[n % RING] = e;
	atomic_store(&m->issued, n);
}

static void commit(int name)
{
	struct name_model *m = &shared->names[name];

	atomic_store(&m->committed, atomic_load(&m->issued));
}

static struct expectation current(int name)
{
	struct name_model *m = &shared->names[name];

	return m->ring[atomic_load(&m->issued) % RING];
}

/* Whether (uid, length) was to be seen under a name between two change numbers. */
static bool was_possible(int name, unsigned long from, unsigned long to, uint64_t uid, uint64_t length)
{
	struct name_model *m = &shared->names[name];

	if (to - from >= RING - 2)
		return true; /* this reader slept through too much to tell */
	for (unsigned long n = from; n <= to; n++) {
		struct expectation e = m->ring[n % RING];
		if (e.uid == uid && (!uid || e.length == length))
			return true;
	}
	/* The ring may have turned over while it was searched. */
	return atomic_load(&m->issued) - from >= RING - 2;
}

/* Where a content that turned up in the wrong place belongs, for the message. */
static const char *origin(uint64_t uid)
{
	static _Thread_local char text[64];

	for (int name = 0; name < N_NAMES; name++) {
		struct name_model *m = &shared->names[name];
		unsigned long last = atomic_load(&m->issued);
		for (unsigned long n = last > RING - 2 ? last - (RING - 2) : 1; n <= last; n++)
			if (m->ring[n % RING].uid == uid) {
				snprintf(text, sizeof(text), "change %lu of object-%02d", n, name);
				return text;
			}
	}
	return "no recent change of any name";
}

/* ---- writers ---- */

static void write_words(int fd, const uint64_t *words, uint64_t length, uint64_t *rng)
{
	for (uint64_t off = 0; off < length;) {
		uint64_t step = 4096 + next_random(rng) % 131072;
		if (step > length - off)
			step = length - off;
		ssize_t n = pwrite(fd, (const char *)words + off, step, (off_t)off);
		if (n != (ssize_t)step)
			fail("pwrite returned %zd for %lu bytes", n, step);
		off += step;
	}
}

static void write_file(const char *path, int flags, struct expectation e, uint64_t *words, uint64_t *rng)
{
	int fd = open(path, flags, 0644);

	if (fd < 0)
		fail("open %s for write, flags %#o", path, flags);
	fill(words, e);
	if (!(flags & O_TRUNC) && ftruncate(fd, (off_t)e.length))
		fail("ftruncate %s", path);
	write_words(fd, words, e.length, rng);
	if (close(fd))
		fail("close %s", path);
}

static void replace_by_rename(int name, uint64_t *words, uint64_t *rng)
{
	struct expectation e = new_content(rng);
	char path[4096], tmp[4128];
	bool open_rename = next_random(rng) % 4 == 0;

	path_of(name, path);
	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	if (!open_rename || rename_only) {
		write_file(tmp, O_WRONLY | O_CREAT | O_TRUNC, e, words, rng);
		issue(name, e);
		if (rename(tmp, path))
			fail("rename %s", tmp);
	} else {
		/* Renamed before close: it publishes at close. */
		int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0)
			fail("create %s", tmp);
		fill(words, e);
		write_words(fd, words, e.length, rng);
		issue(name, e);
		if (rename(tmp, path) || close(fd))
			fail("rename or close of open %s", tmp);
	}
	commit(name);
}

static void replace_in_place(int name, uint64_t *words, uint64_t *rng)
{
	struct expectation e = new_content(rng);
	char path[4096];
	bool rewrite = current(name).uid && next_random(rng) % 2;

	path_of(name, path);
	issue(name, e);
	write_file(path, rewrite ? O_RDWR : O_WRONLY | O_CREAT | O_TRUNC, e, words, rng);
	commit(name);
}

static void remove_name(int name)
{
	char path[4096];

	if (!current(name).uid)
		return;
	path_of(name, path);
	issue(name, (struct expectation){ 0 });
	if (unlink(path))
		fail("unlink %s", path);
	commit(name);
}

static void move_name(int from, int to)
{
	struct expectation e = current(from);
	char from_path[4096], to_path[4096];

	if (!e.uid || from == to)
		return;
	path_of(from, from_path);
	path_of(to, to_path);
	issue(to, e);
	issue(from, (struct expectation){ 0 });
	if (rename(from_path, to_path))
		fail("rename %s to %s", from_path, to_path);
	commit(to);
	commit(from);
}

/* A child that opens the name for writing and dies half-way. */
static void kill_a_writer(int name, uint64_t *words, uint64_t *rng)
{
	struct expectation e = new_content(rng);
	char path[4096];
	bool truncate_it = next_random(rng) % 2;

	path_of(name, path);
	pid_t pid = fork();
	if (!pid) {
		int fd = open(path, truncate_it ? O_WRONLY | O_CREAT | O_TRUNC : O_RDWR | O_CREAT, 0644);
		if (fd >= 0) {
			fill(words, e);
			write_words(fd, words, e.length / 2 / 8 * 8, rng);
		}
		raise(SIGKILL);
	}
	int wstatus;
	if (pid < 0 || waitpid(pid, &wstatus, 0) != pid)
		fail("fork of a writer to kill");
	if (!WIFSIGNALED(wstatus))
		fail("a writer to kill ended by itself");
	atomic_fetch_add(&shared->n_kills, 1);
}

static void run_writer(int writer)
{
	uint64_t rng = mix(seed * 1000 + (uint64_t)writer);
	uint64_t *words = malloc(MAX_WORDS * 8 + 4096);

	while (!atomic_load(&shared->stop)) {
		int first = writer * NAMES_PER_WRITER;
		int name = first + (int)(next_random(&rng) % NAMES_PER_WRITER);
		unsigned what = (unsigned)(next_random(&rng) % 100);
		if (what < 45)
			replace_by_rename(name, words, &rng);
		else if (what < 75 && !rename_only)
			replace_in_place(name, words, &rng);
		else if (what < 85)
			remove_name(name);
		else if (what < 96 || rename_only)
			move_name(name, first + (int)(next_random(&rng) % NAMES_PER_WRITER));
		else
			kill_a_writer(name, words, &rng);
		atomic_fetch_add(&shared->n_changes, 1);
	}
	free(words);
}

/* ---- readers ---- */

struct reader {
	uint64_t rng;
	uint64_t *words; /* page aligned, MAX_WORDS and a page */
};

/* The whole content, and that its words belong together. */
static void check_content(const char *path, const uint64_t *words, uint64_t n_bytes)
{
	if (n_bytes < 16)
		fail("%s: %lu bytes, no header", path, n_bytes);
	if (words[1] != n_bytes)
		fail("%s: content %#lx is %lu bytes long, read %lu", path, words[0], words[1], n_bytes);
	for (uint64_t i = 2; i < n_bytes / 8; i++)
		if (words[i] != word_of(words[0], words[1], i))
			fail("%s: content %#lx of %lu bytes: wrong word at offset %lu (mixed or torn): %#lx",
			     path, words[0], words[1], i * 8, words[i]);
}

static uint64_t read_whole(struct reader *r, const char *path, int fd)
{
	ssize_t n = read(fd, r->words, MAX_WORDS * 8 + 4096);

	if (n < 0)
		fail("read %s", path);
	check_content(path, r->words, (uint64_t)n);
	return r->words[0];
}

static uint64_t read_mapped(const char *path, int fd, uint64_t size, bool populate)
{
	const uint64_t *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE | (populate ? MAP_POPULATE : 0), fd, 0);

	if (map == MAP_FAILED)
		fail("mmap %s", path);
	check_content(path, map, size);
	uint64_t uid = map[0];
	munmap((void *)(uintptr_t)map, size);
	return uid;
}

static uint64_t read_part(struct reader *r, const char *path, int fd, uint64_t size)
{
	uint64_t header[2];
	uint64_t off = next_random(&r->rng) % (size / 8) * 8;
	uint64_t len = 8 + next_random(&r->rng) % 65536 / 8 * 8;

	if (len > size - off)
		len = size - off;
	if (pread(fd, header, 16, 0) != 16)
		fail("pread of the header of %s", path);
	ssize_t n = pread(fd, r->words, len, (off_t)off);
	if (n != (ssize_t)len)
		fail("%s: pread of %lu bytes at %lu returned %zd, size %lu", path, len, off, n, size);
	if (header[1] != size)
		fail("%s: content %#lx is %lu bytes long, fstat says %lu", path, header[0], header[1], size);
	for (uint64_t i = 0; i < len / 8; i++)
		if (r->words[i] != word_of(header[0], header[1], off / 8 + i))
			fail("%s: content %#lx: wrong word at offset %lu", path, header[0], off + i * 8);
	return header[0];
}

static void read_name(struct reader *r, int name)
{
	struct name_model *m = &shared->names[name];
	unsigned how = (unsigned)(next_random(&r->rng) % 6);
	char path[4096];
	struct stat st;

	path_of(name, path);
	unsigned long from = atomic_load(&m->committed);
	int fd = open(path, O_RDONLY | (how == 4 ? O_DIRECT : 0));
	unsigned long to = atomic_load(&m->issued);
	if (fd < 0) {
		if (errno != ENOENT)
			fail("open %s", path);
		if (!was_possible(name, from, to, 0, 0))
			fail("%s: ENOENT, but changes %lu to %lu never removed it", path, from, to);
		return;
	}
	if (fstat(fd, &st))
		fail("fstat %s", path);
	if (st.st_size < 16)
		fail("%s: %ld bytes: an empty or torn version", path, (long)st.st_size);
	uint64_t uid = how == 0 ? read_mapped(path, fd, (uint64_t)st.st_size, false) :
		       how == 1 ? read_mapped(path, fd, (uint64_t)st.st_size, true) :
		       how == 2 ? read_part(r, path, fd, (uint64_t)st.st_size) : read_whole(r, path, fd);
	if (!was_possible(name, from, to, uid, (uint64_t)st.st_size))
		fail("%s: content %#lx (%s), which no change from %lu to %lu put there: lost or reordered; "
		     "change %lu made it %#lx",
		     path, uid, origin(uid), from, to, to, m->ring[to % RING].uid);
	if (how == 5) { /* the name may change meanwhile, the handle must not */
		usleep((useconds_t)(next_random(&r->rng) % 5000));
		if (lseek(fd, 0, SEEK_SET) || read_whole(r, path, fd) != uid)
			fail("%s: an open handle changed from content %#lx to %#lx", path, uid, r->words[0]);
	}
	close(fd);
	atomic_fetch_add(&shared->n_reads, 1);
}

static void stat_name(int name)
{
	struct name_model *m = &shared->names[name];
	char path[4096];
	struct stat st;
	bool found = false;

	path_of(name, path);
	unsigned long from = atomic_load(&m->committed);
	int rc = stat(path, &st);
	unsigned long to = atomic_load(&m->issued);
	if (rc && errno != ENOENT)
		fail("stat %s", path);
	if (to - from >= RING - 2)
		return;
	for (unsigned long n = from; n <= to; n++) {
		struct expectation e = m->ring[n % RING];
		found |= rc ? !e.uid : e.uid && e.length == (uint64_t)st.st_size;
	}
	if (!found && atomic_load(&m->issued) - from < RING - 2)
		fail("stat %s: %s, size %ld: no change from %lu to %lu says so; change %lu made it %lu bytes of "
		     "%#lx", path, rc ? "absent" : "present", rc ? -1 : (long)st.st_size, from, to, to,
		     m->ring[to % RING].length, m->ring[to % RING].uid);
}

/* Names that nobody changed while the directory was read appear once, or not at all. */
static void list_names(void)
{
	unsigned long from[N_NAMES];
	int seen[N_NAMES] = { 0 };
	struct dirent *e;
	int name;

	for (int i = 0; i < N_NAMES; i++)
		from[i] = atomic_load(&shared->names[i].committed);
	DIR *stream = opendir(dir);
	if (!stream)
		fail("opendir %s", dir);
	while ((e = readdir(stream)))
		if (sscanf(e->d_name, "object-%d", &name) == 1 && !strchr(e->d_name, '.') && name >= 0 &&
		    name < N_NAMES)
			seen[name]++;
	closedir(stream);
	for (int i = 0; i < N_NAMES; i++) {
		struct name_model *m = &shared->names[i];
		bool present = m->ring[from[i] % RING].uid != 0;
		if (atomic_load(&m->issued) == from[i] && seen[i] != (present ? 1 : 0))
			fail("readdir lists object-%02d %d times, it is %s", i, seen[i],
			     present ? "present" : "absent");
	}
	atomic_fetch_add(&shared->n_lists, 1);
}

static void *read_for_ever(void *arg)
{
	struct reader r = { .rng = mix(seed * 77 + (uintptr_t)arg) };

	if (posix_memalign((void **)&r.words, 4096, MAX_WORDS * 8 + 8192))
		_exit(99);
	while (!atomic_load(&shared->stop)) {
		unsigned what = (unsigned)(next_random(&r.rng) % 100);
		int name = (int)(next_random(&r.rng) % N_NAMES);
		if (what < 85)
			read_name(&r, name);
		else if (what < 97)
			stat_name(name);
		else
			list_names();
	}
	free(r.words);
	return NULL;
}

static void run_reader(int reader)
{
	pthread_t threads[READER_THREADS];

	for (int i = 0; i < READER_THREADS; i++)
		if (pthread_create(&threads[i], NULL, read_for_ever,
				   (void *)(uintptr_t)(reader * READER_THREADS + i)))
			_exit(99);
	for (int i = 0; i < READER_THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* ---- start and end ---- */

static bool reap_all(void)
{
	bool ok = true;
	int wstatus;
	pid_t pid;

	while ((pid = wait(&wstatus)) > 0) {
		if (WIFSIGNALED(wstatus))
			fprintf(stderr, "torture_mount: process %d died of signal %d\n", (int)pid,
				WTERMSIG(wstatus));
		ok &= WIFEXITED(wstatus) && !WEXITSTATUS(wstatus);
	}
	return ok;
}

/* Everything stands still: each name must be exactly what its last change made it. */
static void check_the_end(void)
{
	struct reader r = { .rng = 1 };

	if (posix_memalign((void **)&r.words, 4096, MAX_WORDS * 8 + 8192))
		_exit(99);
	for (int i = 0; i < N_NAMES; i++)
		for (int round = 0; round < 8; round++)
			read_name(&r, i);
	list_names();
	free(r.words);
}

int main(int argc, char **argv)
{
	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: torture_mount DIR SECONDS SEED [rename-only]\n");
		puts("needs a mount: run by tests/integration/test_faults.py");
		return 77;
	}
	dir = argv[1];
	double seconds = atof(argv[2]);
	seed = strtoull(argv[3], NULL, 0);
	rename_only = argc == 5 && !strcmp(argv[4], "rename-only");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 99;
	atomic_store(&shared->next_uid, mix(seed) << 20 | 1);
	for (int i = 0; i < N_WRITERS + N_READERS; i++) {
		pid_t pid = fork();
		if (pid < 0)
			return 99;
		if (!pid) {
			if (i < N_WRITERS)
				run_writer(i);
			else
				run_reader(i - N_WRITERS);
			_exit(0);
		}
	}
	struct timespec step = { .tv_nsec = 20 * 1000 * 1000 };
	for (double t = 0; t < seconds && !atomic_load(&shared->stop); t += 0.02)
		nanosleep(&step, NULL);
	atomic_store(&shared->stop, true);
	if (!reap_all() || atomic_load(&shared->failed))
		return 1;
	check_the_end();
	printf("ok: %lu changes, %lu killed writers, %lu reads, %lu listings\n",
	       atomic_load(&shared->n_changes), atomic_load(&shared->n_kills),
	       atomic_load(&shared->n_reads), atomic_load(&shared->n_lists));
	return 0;
}
