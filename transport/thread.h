/* SPDX-License-Identifier: Apache-2.0 */
/* thread: one of this folder's threads: takes no signals, has a small stack. */
#ifndef TRANSPORT_THREAD_H
#define TRANSPORT_THREAD_H

#include <pthread.h>

/* Negative errno of pthread_create. The thread is joined by whom it was started for. */
int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
