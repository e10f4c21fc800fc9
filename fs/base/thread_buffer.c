/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_buffer.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	pthread_key_create(&key, free);
}

void *thread_buffer(void)
{
	pthread_once(&once, make_key);
	void *buf = pthread_getspecific(key);
	if (!buf) {
		buf = aligned_alloc(4096, THREAD_BUFFER_BYTES);
		if (!buf)
			abort();
		pthread_setspecific(key, buf);
	}
	return buf;
}
