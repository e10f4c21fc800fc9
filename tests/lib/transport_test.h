/* SPDX-License-Identifier: Apache-2.0 */
/* transport_test: Criterion tests that run over every provider. Included by one test file per program. */
#ifndef MCFS_TRANSPORT_TEST_H
#define MCFS_TRANSPORT_TEST_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "deadline.h"
#include "mcfs/transport.h"

/* Of tests that expect success, sanitizers and a busy machine allowed for. */
#define SOON deadline_in_ms(20000)

enum { N_PROVIDERS = 3 };
static const char *const provider_names[N_PROVIDERS] = { "loopback", "tcp", "rdma" };

/*
 * Which of them: those that are built in, in front of indexes; how many. MCFS_TEST_TRANSPORT names one. rdma is the real
 * one over a fake of its libraries, but in the programs that tests/rdma/run.sh runs.
 */
static inline size_t pick_providers(int indexes[N_PROVIDERS])
{
	const char *only = getenv("MCFS_TEST_TRANSPORT");
	size_t n = 0;

	for (int k = 0; k < N_PROVIDERS; k++)
		if (only ? !strcmp(only, provider_names[k]) : transport_find(provider_names[k]) != NULL)
			indexes[n++] = k;
	return n;
}

/* A free port of an address of this machine, MCFS_TEST_HOST says which. */
static inline const char *any_port(void)
{
	static char text[TRANSPORT_ADDRESS_BYTES];
	const char *host = getenv("MCFS_TEST_HOST");

	snprintf(text, sizeof(text), "%s:0", host ? host : "127.0.0.1");
	return text;
}

/* A test over all providers; `ops` is one. */
#define EACH_TRANSPORT(suite, name)                                                         \
	static void body_##name(const struct transport_ops *ops);                           \
	ParameterizedTestParameters(suite, name)                                            \
	{                                                                                   \
		static int indexes[N_PROVIDERS];                                            \
		return cr_make_param_array(int, indexes, pick_providers(indexes));          \
	}                                                                                   \
	ParameterizedTest(int *index, suite, name, .timeout = 120)                          \
	{                                                                                   \
		const struct transport_ops *found = transport_find(provider_names[*index]); \
		cr_assert_not_null(found);                                                  \
		body_##name(found);                                                         \
	}                                                                                   \
	static void body_##name(const struct transport_ops *ops)

/* A file without a name, of bytes that depend on the seed. */
static inline int make_file(size_t len, unsigned int seed)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)len), 0);
	if (!len)
		return fd;
	uint8_t *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	for (size_t k = 0; k < len; k++)
		map[k] = (uint8_t)(k * 2654435761u >> 13 ^ k >> 20 ^ seed);
	munmap(map, len);
	return fd;
}

#endif
