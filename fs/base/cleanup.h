/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup: scope guards for temporaries and locks. */
#ifndef MCFS_CLEANUP_H
#define MCFS_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_unlock(pthread_mutex_t **m)
{
	if (*m)
		pthread_mutex_unlock(*m);
}

#define autofree __attribute__((cleanup(cleanup_free)))
#define autoclose __attribute__((cleanup(cleanup_close)))

#define GUARD_CAT2(a, b) a##b
#define GUARD_CAT(a, b) GUARD_CAT2(a, b)
/* Holds the mutex from here to the end of the scope. */
#define guard_lock(m)                                                                              \
	pthread_mutex_t *GUARD_CAT(guard_, __LINE__)                                               \
		__attribute__((cleanup(cleanup_unlock), unused)) = (pthread_mutex_lock(m), (m))

#endif
