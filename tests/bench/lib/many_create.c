/* SPDX-License-Identifier: Apache-2.0 */
/* many: making them, and what the kernel keeps for each. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fast_client.h"
#include "many.h"

#define CHUNK 1000 /* files of one side before the other's turn; items of a batch */

static int create_file(const char *dir, const struct many *m, uint32_t k)
{
	char path[JOB_PATH_MAX], payload[4096];

	snprintf(path, sizeof(path), "%s/%07u", dir, k);
	many_payload(m, k, payload);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return bench_fail(-errno, "create %s", path);
	int rc = bench_write_fully(fd, payload, m->object_bytes);
	if (rc)
		bench_fail(rc, "write %s", path);
	if (close(fd) && !rc)
		rc = bench_fail(-errno, "close %s", path);
	return rc;
}

static int create_chunk(const char *dir, const struct many *m, uint32_t from, uint32_t to,
			uint64_t *ns_out)
{
	uint64_t begin_ns = bench_now_ns();
	int rc = 0;

	for (uint32_t k = from; !rc && k < to; k++)
		rc = create_file(dir, m, k);
	*ns_out = bench_now_ns() - begin_ns;
	return rc;
}

static void remove_raw(const struct many *m)
{
	char path[JOB_PATH_MAX];

	for (uint32_t k = 0; k < m->n_plain; k++) {
		snprintf(path, sizeof(path), "%s/%07u", m->raw_dir, k);
		unlink(path);
	}
	rmdir(m->raw_dir);
}

static int create_plain(struct many *m)
{
	struct samples ratios = {0};
	uint64_t total_ns = 0, ns[N_SIDES];
	int rc = mkdir(m->raw_dir, 0755) ? bench_fail(-errno, "mkdir %s", m->raw_dir) : 0;

	for (uint32_t k = 0; !rc && k < m->n_plain; k += CHUNK) {
		uint32_t to = m->n_plain - k < CHUNK ? m->n_plain : k + CHUNK;
		for (int i = 0; !rc && i < N_SIDES; i++) {
			int side = i ^ (int)(k / CHUNK & 1);
			rc = create_chunk(side == SIDE_OURS ? m->dir : m->raw_dir, m, k, to,
					  &ns[side]);
		}
		total_ns += ns[SIDE_OURS];
		samples_add(&ratios, (double)ns[SIDE_RAW] / (double)ns[SIDE_OURS]);
	}
	if (!rc && m->n_plain)
		many_add_against(m, "create_plain", m->n_plain / ((double)total_ns / 1e9),
				 "files/s", (double)total_ns / 1e3 / m->n_plain, "raw tmpfs",
				 samples_quantile(&ratios, 0.5));
	samples_fini(&ratios);
	remove_raw(m);
	return rc;
}

/* ---- batches ---- */

static int write_batch(struct fast_client *c, const struct many *m, uint32_t from, uint32_t n)
{
	size_t stride = (m->object_bytes + 7) & ~(size_t)7;
	char name[16];

	for (uint32_t k = 0; k < n; k++) {
		many_name(from + k, name);
		many_payload(m, from + k, c->memory + c->data + k * stride);
		fast_item(c, k, name, k * stride, m->object_bytes, 1, 0);
	}
	return fast_submit(c, MCFS_OP_WRITE, n);
}

static int create_batches(struct many *m)
{
	struct fast_client c;
	struct samples calls = {0};
	uint32_t n_made = m->n_objects - m->n_plain;
	int rc = fast_open(&c, m->dir, CHUNK, CHUNK * (m->object_bytes + 8));
	uint64_t begin_ns = bench_now_ns();

	for (uint32_t k = m->n_plain; !rc && k < m->n_objects; k += CHUNK) {
		uint32_t n = m->n_objects - k < CHUNK ? m->n_objects - k : CHUNK;
		uint64_t call_ns = bench_now_ns();
		rc = write_batch(&c, m, k, n);
		samples_add(&calls, (double)(bench_now_ns() - call_ns) / 1e3);
	}
	double seconds = (double)(bench_now_ns() - begin_ns) / 1e9;
	fast_close(&c);
	if (!rc && n_made)
		many_add(m, "create_batch", n_made / seconds, "objects/s",
			 samples_quantile(&calls, 0.5) / CHUNK, 0);
	samples_fini(&calls);
	return rc;
}

/* ---- the kernel's memory for them ---- */

struct kernel_memory {
	double slab;  /* all of it: others use it too */
	double files; /* inodes, names and index nodes alone */
};

static double slab_of_files(void)
{
	static const char *const caches[] = {"shmem_inode_cache", "dentry", "radix_tree_node",
					     "maple_node", "fuse_inode"};
	char line[512], name[64];
	double sum = 0;
	unsigned long long n_active, n_all, bytes;
	FILE *file = fopen("/proc/slabinfo", "re");

	if (!file)
		return NAN;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %llu %llu %llu", name, &n_active, &n_all, &bytes) != 4)
			continue;
		for (size_t k = 0; k < ARRAY_LEN(caches); k++)
			if (!strcmp(name, caches[k]))
				sum += (double)n_all * (double)bytes;
	}
	fclose(file);
	return sum;
}

static double all_slab(void)
{
	char line[256];
	unsigned long long kib;
	double sum = NAN;
	FILE *file = fopen("/proc/meminfo", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Slab: %llu", &kib) == 1)
			sum = (double)kib * 1024;
	if (file)
		fclose(file);
	return sum;
}

static struct kernel_memory kernel_memory(void)
{
	return (struct kernel_memory){all_slab(), slab_of_files()};
}

/* What the daemon charges its dram budget. */
static double charged_bytes(const struct many *m)
{
	return many_metric(m, "mooncakefs_tier_used_bytes{tier=\"dram\"}");
}

int many_create(struct many *m)
{
	if (mkdir(m->dir, 0755))
		return bench_fail(-errno, "mkdir %s", m->dir);
	int rc = create_plain(m);
	struct kernel_memory before = kernel_memory();
	double charged_before = charged_bytes(m);
	if (!rc)
		rc = create_batches(m);
	struct kernel_memory after = kernel_memory();
	double charged_after = charged_bytes(m), n = m->n_objects - m->n_plain;
	if (rc || n == 0)
		return rc;
	many_add(m, "slab_per_object", (after.slab - before.slab) / n, "bytes", NAN, 0);
	many_add(m, "slab_files_per_object", (after.files - before.files) / n, "bytes", NAN, 0);
	many_add(m, "charged_per_object", (charged_after - charged_before) / n, "bytes", NAN, 0);
	return 0;
}
