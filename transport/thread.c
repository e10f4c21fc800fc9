/* SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <signal.h>
#include <stddef.h>

/* There is one per connection; handlers of the daemon, catalog included, run on it. */
#define STACK_BYTES (1u << 20)

int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int rc = -pthread_attr_init(&attr);

	if (rc)
		return rc;
	rc = -pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!rc)
		rc = -pthread_create(out, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}
