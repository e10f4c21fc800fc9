/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standalone: a main for the fuzz targets where no fuzzing engine is at hand.
 *
 * usage: fuzz_NAME FILE|DIRECTORY...
 *
 * Feeds each file, and each file below a directory, once to LLVMFuzzerTestOneInput and prints how
 * many. Status 1 when there was none or one could not be read. A finding ends the process; the name
 * printed last is then its input.
 */
#include <errno.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_files, n_failed;

static void feed(const char *path, size_t size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = malloc(size ? size : 1);

	if (!f || !data || fread(data, 1, size, f) != size) {
		fprintf(stderr, "%s: %s\n", path, errno ? strerror(errno) : "it became shorter");
		n_failed++;
	} else {
		printf("%s\n", path);
		fflush(stdout);
		LLVMFuzzerTestOneInput(data, size);
		n_files++;
	}
	free(data);
	if (f)
		fclose(f);
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_F && S_ISREG(st->st_mode)) {
		feed(path, (size_t)st->st_size);
	} else if (type == FTW_DNR || type == FTW_NS) {
		fprintf(stderr, "%s: cannot be read\n", path);
		n_failed++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		errno = 0;
		if (nftw(argv[i], visit, 16, 0) < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
			n_failed++;
		}
	}
	printf("%d files\n", n_files);
	return !n_files || n_failed;
}
