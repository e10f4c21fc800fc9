/* SPDX-License-Identifier: Apache-2.0 */
/* thread_buffer: page-aligned memory for the bytes of one request, a piece for each thread that asks. */
#ifndef MCFS_THREAD_BUFFER_H
#define MCFS_THREAD_BUFFER_H

#define THREAD_BUFFER_BYTES (1u << 20)

/* The calling thread's, until it ends; its content is whatever the thread left there. Never NULL. */
void *thread_buffer(void);

#endif
