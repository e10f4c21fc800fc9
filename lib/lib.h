/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib: what the files of libmooncakefs share. Programs see include/mooncakefs.h alone.
 *
 *   session.c  open, close, reconnect          memory.c   buffer files, registered and mapped
 *   dir.c      directory handles by path       area.c     where descriptors of a submission lie
 *   batch.c    requests <-> struct mcfs_item   lookup.c   names <-> struct mcfs_state
 *   call.c     synchronous calls               async.c    asynchronous ones, over ticket.c
 *   map.c      objects in place                error.c    what went wrong, in words
 *
 * A session is alive or dead, and goes back to alive by reconnecting, which counts up its generation:
 *
 *   alive --a system call says ENOTCONN or ECONNABORTED--> dead --reconnect--> alive
 *
 * Lock order: life, then dirs_lock, lock or tickets->lock (one of them). Under dirs_lock a directory may be
 * opened; under the others nothing waits for the daemon: completions are read by one thread at a time, with
 * tickets->lock free.
 */
#ifndef MCFS_LIB_H
#define MCFS_LIB_H

#include "mooncakefs.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#define LIB_PUBLIC __attribute__((visibility("default")))
#define LIB_PAGE 4096u
/* Limits of the ABI. */
#define LIB_SUFFIX_MAX 64
#define LIB_HASH_MAX 64

/* ---- the system calls that reach the daemon; tests put a fake in their place ---- */

struct lib_kernel {
	int (*ioctl)(int fd, unsigned long request, void *arg);
	ssize_t (*read)(int fd, void *buf, size_t len);
	int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms);
};
extern struct lib_kernel lib_kernel;

/* ioctl that returns 0 or a negative errno, one that says the daemon is gone as -ENOTCONN. */
int lib_ioctl(int fd, unsigned long request, void *arg);
/* The negative errno of a failed system call on the mount, those of a dead daemon as -ENOTCONN. */
int lib_errno(int error);

uint64_t lib_now_us(void); /* CLOCK_MONOTONIC */

/* ---- error.c ---- */

/* Notes what error (negative) meant, for mcfs_strerror; returns error. */
int lib_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A call begins: what it will say of items is not about the failure before. */
void lib_forget_error(void);

/* ---- memory.c: a buffer file ---- */

struct lib_memory {
	char *memory;	 /* page-aligned; stays where it is when the session reconnects */
	size_t bytes;	 /* whole pages */
	uint32_t number; /* registered as, by life */
};

struct mcfs_buffer {
	struct mcfs_session *s;
	struct lib_memory m;
};

/* With life held. s->fd and s->mount are used. */
int lib_memory_create(struct mcfs_session *s, size_t bytes, struct lib_memory *out);
/* -EBUSY: a submission uses it, nothing is done. */
int lib_memory_destroy(struct mcfs_session *s, struct lib_memory *m);
/* Gives the mapping a new file with the same content. life is held for writing. */
int lib_memory_revive(struct mcfs_session *s, struct lib_memory *m);

/* The buffer that holds [p, p + bytes), or NULL. s->lock is held. */
struct mcfs_buffer *lib_buffer_find_locked(struct mcfs_session *s, const void *p, uint64_t bytes);

/* ---- dir.c ---- */

/* Its fields are guarded by s->dirs_lock. */
struct mcfs_dir {
	struct mcfs_dir *next;
	struct mcfs_session *s;
	char *path;
	unsigned n_refs;
	int fd;
	uint64_t handle;
	uint64_t generation; /* of the session the handle belongs to */
};

/*
 * Opens the directory again if it belongs to a session of before. With life held for reading. Returns 0 and
 * the handle, or a negative errno.
 */
int lib_dir_handle(struct mcfs_dir *d, uint64_t *handle_out);
/* All of them; the session ends. */
void lib_dirs_destroy(struct mcfs_session *s);

/* ---- area.c ---- */

/* Room for the descriptors of one submission, in a registered buffer. */
struct lib_area {
	char *memory;
	uint64_t offset; /* of memory in its buffer */
	uint32_t buffer;
	struct area_chunk *chunk;
	uint32_t first_page, n_pages;
};

/* bytes of room, page-aligned. With life held for reading. */
int lib_area_take(struct mcfs_session *s, size_t bytes, struct lib_area *out);
void lib_area_drop(struct mcfs_session *s, struct lib_area *a);
/* With no area taken; life is held for writing. */
void lib_areas_destroy(struct mcfs_session *s);

/* ---- one call: a batch of requests or names, submitted in parts ---- */

struct lib_job {
	enum mcfs_op op;
	struct mcfs_call call; /* suffix and names are borrowed */
	uint64_t end_us;       /* by lib_now_us; 0: each part has the daemon's own deadline */
	size_t n, done;	       /* requests or names, all and those of parts before */
	struct mcfs_request *requests;

	struct mcfs_dir *dir; /* LOOKUP */
	struct mcfs_names names;
	struct mcfs_state *states;

	/* the part under way */
	struct lib_area area;
	size_t part;
	uint32_t n_items; /* of it that are with the daemon */

	/* what came of it */
	long n_ok;    /* LOOKUP: the ready prefix */
	bool has_gap; /* LOOKUP: a part was not ready to its end */
	int error;    /* a submission as a whole failed */
};

/*
 * Takes an area and writes the next part of the job into it and into submit. 0; -errno, the job then has
 * failed. n_items 0: nothing of it can be submitted. With life held for reading.
 */
int lib_job_begin_part(struct mcfs_session *s, struct lib_job *j, struct mcfs_submit *submit);
/* Takes the outcome of the part out of its area and drops it. error: that of the submission as a whole. */
void lib_job_end_part(struct mcfs_session *s, struct lib_job *j, uint32_t ready_prefix, int error);
static inline bool lib_job_has_more(const struct lib_job *j)
{
	return !j->error && j->done < j->n;
}
/* Marks what was not begun with the job's error. Returns what the caller of the job is told. */
long lib_job_result(struct lib_job *j);
/* From now on. */
void lib_job_set_deadline(struct lib_job *j);
/* Makes a job that has failed ready to be done again from its start. */
void lib_job_rewind(struct lib_job *j);

/* 0 or -EINVAL. */
int lib_job_of_requests(enum mcfs_op op, struct mcfs_request *requests, size_t n,
			const struct mcfs_call *call, struct lib_job *job_out);
int lib_job_of_names(struct mcfs_session *s, struct mcfs_dir *dir, const struct mcfs_names *names,
		     const struct mcfs_call *call, struct mcfs_state *states,
		     struct lib_job *job_out);

/* batch.c and lookup.c, for lib_job_begin_part and lib_job_end_part */
size_t lib_items_bytes(const struct lib_job *j);
int lib_items_write(struct mcfs_session *s, struct lib_job *j, struct mcfs_submit *submit);
void lib_items_read(struct lib_job *j, int error);
size_t lib_names_bytes(const struct lib_job *j);
int lib_names_write(struct lib_job *j, struct mcfs_submit *submit);
void lib_names_read(struct lib_job *j, uint32_t ready_prefix, int error);

/* ---- session.c, ticket.c ---- */

struct lib_tickets;

struct mcfs_session {
	char *mount;
	unsigned flags;
	pthread_rwlock_t life; /* held for reading by calls, for writing by reconnect */
	int fd;		       /* -1 in the end */
	uint64_t generation;   /* from 1 */
	struct mcfs_hello hello;

	pthread_mutex_t lock;	      /* guards buffers and areas */
	struct mcfs_buffer **buffers; /* by address */
	size_t n_buffers, buffers_capacity;
	struct area_chunk *chunks;

	pthread_mutex_t dirs_lock;
	struct mcfs_dir *dirs;

	struct lib_tickets *tickets; /* has a lock of its own */
};

/*
 * After a call of generation failed with -ENOTCONN: true when the session allows it and has been opened
 * anew, so that the call can be repeated. Once per call, which *tried (false at first) remembers.
 */
bool lib_session_recover(struct mcfs_session *s, uint64_t generation, bool *tried);

int lib_tickets_create(struct lib_tickets **out);
/* Frees all tickets, also running ones: their session is closed. */
void lib_tickets_destroy(struct mcfs_session *s);
/* The daemon is gone: every running ticket ends with -ENOTCONN. With life held. */
void lib_tickets_abandon(struct mcfs_session *s);

#endif
