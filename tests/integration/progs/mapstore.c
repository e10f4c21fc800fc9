// SPDX-License-Identifier: Apache-2.0
/*
 * mapstore - writes a file through a shared mapping whose descriptor is closed before the stores
 *
 * usage: mapstore [-h N] [-k] [-s] [-x] [-r TO] PATH BYTES SEED
 *
 *   -h N   first write a header of N bytes 'h' with write(2), close, and reopen with O_RDWR
 *   -k     keep the descriptor open, close it after munmap
 *   -s     msync(MS_SYNC) after the stores
 *   -x     exit without munmap
 *   -r TO  rename PATH to TO after munmap
 *
 * Byte i is (SEED + i + i / 4096) mod 256, except a header's. (Python's mmap keeps a duplicate of the
 * descriptor, so it cannot do this.)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "mapstore: %s: %s\n", what, strerror(errno));
	exit(99);
}

static void write_header(const char *path, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	char *header = malloc(n);

	if (fd < 0 || !header)
		die(path);
	memset(header, 'h', n);
	if (write(fd, header, n) != (ssize_t)n)
		die("write");
	if (close(fd))
		die("close");
	free(header);
}

int main(int argc, char **argv)
{
	size_t header = 0;
	bool keep = false, sync_it = false, just_exit = false;
	const char *to = NULL;
	int opt;

	while ((opt = getopt(argc, argv, "h:ksxr:")) != -1) {
		switch (opt) {
		case 'h': header = strtoull(optarg, NULL, 0); break;
		case 'k': keep = true; break;
		case 's': sync_it = true; break;
		case 'x': just_exit = true; break;
		case 'r': to = optarg; break;
		default: return 99;
		}
	}
	if (argc - optind != 3) {
		fprintf(stderr, "usage: mapstore [-h N] [-k] [-s] [-x] [-r TO] PATH BYTES SEED\n");
		return 99;
	}
	const char *path = argv[optind];
	size_t n = strtoull(argv[optind + 1], NULL, 0);
	unsigned seed = (unsigned)strtoul(argv[optind + 2], NULL, 0);

	if (header)
		write_header(path, header);
	int fd = open(path, header ? O_RDWR : O_RDWR | O_CREAT, 0644);
	if (fd < 0)
		die(path);
	if (ftruncate(fd, (off_t)n))
		die("ftruncate");
	unsigned char *map = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("mmap");
	if (!keep && close(fd))
		die("close");
	for (size_t i = header; i < n; i++)
		map[i] = (unsigned char)(seed + i + i / 4096);
	if (sync_it && msync(map, n, MS_SYNC))
		die("msync");
	if (just_exit)
		return 0;
	if (munmap(map, n))
		die("munmap");
	if (keep && close(fd))
		die("close after munmap");
	if (to && rename(path, to))
		die("rename");
	return 0;
}
