/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix_load: loads the blocks of a prefix that are there, up to 256, with one call.
 *
 *   prefix_load /mnt/mooncake kv/llama 65536 <names      (one name per line, in the order of the chain)
 *   cc prefix_load.c -o prefix_load $(pkg-config --cflags --libs mooncakefs)
 */
#include <mooncakefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 256

static char names[MAX_BLOCKS][256];

static void must(long rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "prefix_load: %s: %s\n", what, mcfs_strerror((int)rc));
	exit(1);
}

int main(int argc, char **argv)
{
	const char *pointers[MAX_BLOCKS];
	struct mcfs_names list = {.strings = pointers};
	struct mcfs_session *s;
	struct mcfs_dir *dir;
	struct mcfs_buffer *buffer;
	struct mcfs_batch batch = {0};

	if (argc != 4 || atoi(argv[3]) <= 0) {
		fprintf(stderr, "Usage: prefix_load MOUNT DIRECTORY BLOCK_BYTES <names\n");
		return 2;
	}
	unsigned bytes = (unsigned)atoi(argv[3]);
	while (list.n < MAX_BLOCKS && scanf("%255s", names[list.n]) == 1) {
		pointers[list.n] = names[list.n];
		list.n++;
	}
	must(mcfs_session_open(argv[1], MCFS_RECONNECT, &s), "session");
	must(mcfs_dir_open(s, argv[2], &dir), "directory");
	must(mcfs_buffer_alloc(s, (size_t)MAX_BLOCKS * bytes, &buffer), "buffer");
	char *memory = mcfs_buffer_memory(buffer);

	long ready = mcfs_lookup_prefix(s, dir, &list, NULL, NULL);
	must(ready, "lookup");
	for (long i = 0; i < ready; i++)
		mcfs_batch_add(&batch, dir, names[i], memory + i * bytes, bytes);
	long loaded = mcfs_read_batch(s, batch.requests, batch.n, NULL);
	must(loaded, "read");
	printf("%ld of %zu blocks ready, %ld loaded\n", ready, list.n, loaded);

	mcfs_batch_free(&batch);
	mcfs_session_close(s); /* the buffer goes along */
	return loaded == ready ? 0 : 1;
}
