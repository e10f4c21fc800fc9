/* SPDX-License-Identifier: Apache-2.0 */
/* mem_room: on small copies of /proc and /sys/fs/cgroup as kernels write them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier/mem_room.h"

#define MIB(n) ((uint64_t)(n) << 20)

/* ---- fixture ---- */

static char root[] = "/tmp/mcfs-room-XXXXXX";

/* Writes root + path, making the directories above it. */
static void put(const char *path, const char *text)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	cr_assert_not_null(file);
	fputs(text, file);
	fclose(file);
}

static void setup(void)
{
	cr_assert_not_null(mkdtemp(root));
	put("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree:         1024000 kB\n"
			     "MemAvailable:    8192000 kB\nBuffers:            1000 kB\n");
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(mem_room, .init = setup, .fini = teardown);

#define AVAILABLE (UINT64_C(8192000) * 1024)
#define MOUNTS_OF_V1                                                                  \
	"25 30 0:23 / /proc rw,relatime - proc proc rw\n"                             \
	"40 35 0:34 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup " \
	"rw,cpu,cpuacct\n"                                                            \
	"41 35 0:35 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
#define MOUNT_OF_V2 \
	"35 28 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

/* ---- helpers ---- */

static struct mem_room look(uint64_t held_bytes)
{
	struct mem_room room;

	cr_assert_eq(mem_room_read(root, held_bytes, &room), 0);
	return room;
}

/* ---- success ---- */

Test(mem_room, without_cgroups_only_memory_limits)
{
	struct mem_room room = look(0);

	cr_expect_eq(room.available_bytes, AVAILABLE);
	cr_expect_eq(room.cgroup_bytes, UINT64_MAX);
	cr_expect_str_eq(room.cgroup, "");
	cr_expect_eq(look(MIB(5)).available_bytes, AVAILABLE + MIB(5));
}

Test(mem_room, v2_takes_the_tightest_ancestor)
{
	put("/proc/self/mountinfo", MOUNT_OF_V2);
	put("/proc/self/cgroup", "0::/system.slice/mooncakefs.service\n");
	put("/sys/fs/cgroup/system.slice/memory.max", "104857600\n"); /* 100 MiB */
	put("/sys/fs/cgroup/system.slice/memory.current", "41943040\n");
	put("/sys/fs/cgroup/system.slice/mooncakefs.service/memory.max", "max\n");
	put("/sys/fs/cgroup/system.slice/mooncakefs.service/memory.current", "1048576\n");
	struct mem_room room = look(0);

	cr_expect_eq(room.cgroup_bytes, MIB(60));
	cr_expect_eq(room.cgroup_limit_bytes, MIB(100));
	cr_expect_str_eq(room.cgroup, "/sys/fs/cgroup/system.slice");
}

Test(mem_room, page_cache_and_own_frames_are_room)
{
	put("/proc/self/mountinfo", MOUNT_OF_V2);
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/memory.max", "104857600\n");
	put("/sys/fs/cgroup/a/memory.current", "83886080\n"); /* 80 MiB */
	put("/sys/fs/cgroup/a/memory.stat",
	    "anon 1\nfile 2\nshmem 20971520\ninactive_file 31457280\n");

	cr_expect_eq(look(0).cgroup_bytes, MIB(20) + MIB(30));
	cr_expect_eq(look(MIB(10)).cgroup_bytes, MIB(20) + MIB(30) + MIB(10));
	cr_expect_eq(look(MIB(99)).cgroup_bytes, MIB(20) + MIB(30) + MIB(20),
		     "not beyond its shmem");
}

Test(mem_room, v1_reads_the_memory_hierarchy)
{
	put("/proc/self/mountinfo", MOUNTS_OF_V1);
	put("/proc/self/cgroup", "9:name=systemd:/x\n5:cpu,cpuacct:/y\n4:memory:/jobs/42\n0::/z\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "209715200\n"); /* 200 MiB */
	put("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "104857600\n");
	put("/sys/fs/cgroup/memory/jobs/memory.stat",
	    "inactive_file 1\nshmem 2\ntotal_inactive_file 10485760\ntotal_shmem 5242880\n");
	put("/sys/fs/cgroup/memory/jobs/42/memory.limit_in_bytes", "9223372036854771712\n");
	struct mem_room room = look(MIB(50));

	cr_expect_eq(room.cgroup_bytes, MIB(100) + MIB(10) + MIB(5));
	cr_expect_str_eq(room.cgroup, "/sys/fs/cgroup/memory/jobs");
}

Test(mem_room, a_container_sees_a_part_of_the_hierarchy)
{
	put("/proc/self/mountinfo",
	    "41 35 0:35 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup "
	    "rw,memory\n");
	put("/proc/self/cgroup", "4:memory:/docker/c0ffee/child\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
	put("/sys/fs/cgroup/memory/child/memory.limit_in_bytes", "52428800\n");
	put("/sys/fs/cgroup/memory/child/memory.usage_in_bytes", "5242880\n");

	cr_expect_eq(look(0).cgroup_bytes, MIB(45));
	put("/proc/self/cgroup", "4:memory:/docker/c0ffee\n");
	cr_expect_eq(look(0).cgroup_bytes, MIB(90));
	put("/proc/self/cgroup", "4:memory:/docker/other\n");
	cr_expect_eq(look(0).cgroup_bytes, MIB(90), "only the top is known");
	put("/proc/self/cgroup", "4:memory:/../..\n");
	cr_expect_eq(look(0).cgroup_bytes, MIB(90));
}

Test(mem_room, mount_points_may_hold_blanks)
{
	put("/proc/self/mountinfo", "35 28 0:30 / /sys/c\\040g rw - cgroup2 cgroup2 rw\n");
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/c g/a/memory.max", "104857600\n");
	cr_expect_eq(look(0).cgroup_bytes, MIB(100));
}

Test(mem_room, more_than_the_limit_in_use_is_no_room)
{
	put("/proc/self/mountinfo", MOUNT_OF_V2);
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/memory.max", "104857600\n");
	put("/sys/fs/cgroup/a/memory.current", "104857601\n");
	cr_expect_eq(look(0).cgroup_bytes, 0);
}

/* ---- failure ---- */

Test(mem_room, without_meminfo_it_says_so)
{
	struct mem_room room;

	cr_expect_eq(mem_room_read("/nonexistent", 0, &room), -ENOENT);
}
