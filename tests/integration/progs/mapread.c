// SPDX-License-Identifier: Apache-2.0
/*
 * mapread - maps a file, closes its descriptor, and copies the mapping to stdout
 *
 * usage: mapread [-p] [-w] PATH private|populate|shared
 *
 *   -p  copy up to the end of the last page, not of the file
 *   -w  when mapped, print "mapped" to stderr and read a line from stdin before copying
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "mapread: %s: %s\n", what, strerror(errno));
	exit(99);
}

int main(int argc, char **argv)
{
	bool wait = false, whole_pages = false;
	struct stat st;
	char line[16];
	int opt;

	while ((opt = getopt(argc, argv, "pw")) != -1) {
		if (opt == '?')
			return 99;
		wait |= opt == 'w';
		whole_pages |= opt == 'p';
	}
	argv += optind;
	if (argc - optind != 2) {
		fprintf(stderr, "usage: mapread [-p] [-w] PATH private|populate|shared\n");
		return 99;
	}
	int flags = !strcmp(argv[1], "shared") ? MAP_SHARED : MAP_PRIVATE;
	if (!strcmp(argv[1], "populate"))
		flags |= MAP_POPULATE;
	int fd = open(argv[0], O_RDONLY);
	if (fd < 0 || fstat(fd, &st))
		die(argv[0]);
	char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, flags, fd, 0);
	if (map == MAP_FAILED)
		die("mmap");
	close(fd);
	if (wait) {
		fprintf(stderr, "mapped\n");
		if (read(STDIN_FILENO, line, sizeof(line)) < 0)
			die("read");
	}
	off_t end = whole_pages ? (st.st_size + 4095) / 4096 * 4096 : st.st_size;
	for (off_t done = 0; done < end;) {
		ssize_t n = write(STDOUT_FILENO, map + done, (size_t)(end - done));
		if (n < 0)
			die("write");
		done += n;
	}
	return 0;
}
