/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakefs: the fast path of a mooncakefs mount, many objects per system call.
 *
 * A program opens <mount>/.mooncake/session, makes a buffer file below <mount>/.mooncake/buffers/, sizes
 * it (ftruncate), maps it (MAP_SHARED) and registers it with the session. From then on one ioctl looks
 * up, reads or writes any number of objects: their bytes move between the store's own memory and the
 * mapped buffer. What to do stands in an array of struct mcfs_item inside a buffer; the ioctl carries
 * its place and count only, and every item gets its own outcome there.
 *
 * This part is the ABI between a program and the daemon. libmooncakefs (below) wraps it. All numbers are
 * little-endian and of fixed width; reserved fields are 0, or the call is -EINVAL; offsets are bytes
 * from the start of the buffer file.
 *
 * Ioctls answer -1 with errno: EINVAL a field is out of range (or a reserved one not 0); EFAULT a range
 * lies outside its buffer; ENOENT no such buffer, handle or ticket; EPERM the handle is another user's;
 * EACCES the buffer is not open for reading and writing, the directory not to be searched; EBUSY; EMFILE
 * a limit of struct mcfs_hello (or of the daemon) is reached; EAGAIN too much is under way, collect
 * completions first; EINTR a signal came: items not begun say -EINTR; ENOTTY not a file of this file system.
 * A synchronous READ, WRITE or PREFETCH that ran out of time returns 0, and the items that were not begun
 * say -ETIMEDOUT; a LOOKUP then fails as a whole. Creating a buffer is EOPNOTSUPP where the mount has no
 * passthrough (status.json says why): a mapping would not be of the daemon's memory.
 */
#ifndef MOONCAKEFS_H
#define MOONCAKEFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCFS_ABI_VERSION 1

/* ---- on any open file, directory or buffer of the mount ---- */

enum mcfs_handle_kind { MCFS_HANDLE_FILE = 1, MCFS_HANDLE_DIR = 2, MCFS_HANDLE_BUFFER = 3 };

/*
 * A name for an open file description that a session's items can use: random, good until that
 * description is closed, for sessions of the user who asked. A FILE is one opened for reading (a
 * version: it does not change); a DIR stands for its names, as with openat(2). EBUSY: the file is still
 * being written, or was opened while its writer was closing it: open it again.
 */
struct mcfs_handle {
	uint64_t handle;
	uint64_t size;      /* FILE, BUFFER: bytes */
	uint32_t kind;      /* enum mcfs_handle_kind */
	uint32_t reserved;
};

/* ---- on a session ---- */

/* First call of a session; EPROTO when the daemon does not speak abi_version. */
struct mcfs_hello {
	uint32_t abi_version;      /* in: the program's; out: the daemon's */
	uint32_t features;         /* out: 0 so far */
	uint32_t max_items;        /* out: per submission */
	uint32_t max_buffers;      /* out: registered per session */
	uint32_t max_tickets;      /* out: submitted and not collected, per session */
	uint32_t max_segments;     /* out: per item */
	uint64_t max_buffer_bytes; /* out: of all buffers of the mount */
	uint64_t incarnation;      /* out: changes when the daemon was restarted */
	uint64_t reserved[3];
};

enum mcfs_memory { MCFS_MEMORY_HOST = 0 };

/* Makes [offset, offset + length) of a buffer file usable; while it is, the file cannot shrink. */
struct mcfs_register {
	uint64_t handle;           /* in: of the buffer, MCFS_IOC_HANDLE on its O_RDWR descriptor */
	uint64_t offset, length;   /* in: pages of 4096; length 0: all from offset on */
	uint32_t memory;           /* in: enum mcfs_memory */
	uint32_t buffer;           /* out: its number in this session, from 1 */
	uint64_t reserved[12];     /* device memory to come */
};

struct mcfs_unregister {
	uint32_t buffer;           /* EBUSY while a submission uses it */
	uint32_t reserved;
};

enum mcfs_op {
	MCFS_OP_LOOKUP = 1,   /* names of one directory -> struct mcfs_state each */
	MCFS_OP_READ = 2,     /* objects -> buffer */
	MCFS_OP_WRITE = 3,    /* buffer -> new objects, each published whole */
	MCFS_OP_PREFETCH = 4, /* objects move to DRAM: of this node, done when they are on their way; of others, when here */
};

enum mcfs_submit_flags {
	MCFS_ASYNC = 1u << 0, /* returns a ticket; a completion is read from the session */
	MCFS_GROUP = 1u << 1, /* WRITE: all items (1,024 at most) become visible together, or none */
};

enum mcfs_name_kind {
	MCFS_NAME_TEXT = 0,   /* bytes as they are; in a LOOKUP each name ends with a NUL */
	MCFS_NAME_BINARY = 1, /* a hash: the file's name is its lower-case hexadecimal form (+ suffix) */
};

struct mcfs_submit {
	uint32_t op;               /* enum mcfs_op */
	uint32_t flags;            /* enum mcfs_submit_flags */
	uint32_t buffer;           /* registered buffer with the items, names and suffix */
	uint32_t n_items;          /* 1 to max_items */
	uint64_t items;            /* offset of the array (a multiple of 8): struct mcfs_item, for LOOKUP struct mcfs_state */
	uint64_t deadline_us;      /* from now on; items not done by then say -ETIMEDOUT. 0: 60 s */
	uint64_t user_data;        /* comes back with the completion */

	/* LOOKUP */
	uint64_t directory;        /* handle of a DIR */
	uint64_t names;            /* offset of n_items names, one after another */
	uint32_t names_bytes;      /* of all of them */
	uint16_t name_kind;        /* enum mcfs_name_kind */
	uint16_t name_bytes;       /* BINARY: of each, 1 to 64 */

	/* binary names, of a LOOKUP or of items */
	uint64_t suffix;           /* offset of the text behind each hexadecimal name, such as ".bin" */
	uint32_t suffix_bytes;     /* 0 to 64 */
	uint32_t reserved;
	uint64_t reserved2[2];

	uint32_t n_ok;             /* out: items with status 0; LOOKUP: names that are READY */
	uint32_t ready_prefix;     /* out, LOOKUP: how many names from the first are READY without a gap */
	uint64_t ticket;           /* out, ASYNC: its number, from 1 */
};

enum mcfs_tier { MCFS_TIER_NONE = 0, MCFS_TIER_DRAM = 1, MCFS_TIER_SSD = 2, MCFS_TIER_REMOTE = 3 };

enum mcfs_state_kind {
	MCFS_MISS = 0,
	MCFS_READY = 1,     /* can be read now, from tier */
	MCFS_IN_FLIGHT = 2, /* being written or fetched on this node */
	MCFS_REMOTE = 3,    /* another node has it */
};

/* Outcome of one name of a LOOKUP. Nothing is promised by it: an object may be evicted before a READ. */
struct mcfs_state {
	uint8_t state;             /* enum mcfs_state_kind */
	uint8_t tier;              /* enum mcfs_tier */
	uint16_t reserved;
	uint32_t eta_us;           /* estimated time until its first byte can be read; 0: now; UINT32_MAX: not known */
	uint64_t size;             /* bytes; READY */
};

/*
 * One object of a READ, WRITE or PREFETCH. Its bytes lie in segment_count pieces of segment_bytes, the
 * first at base, each stride after the one before; the last piece may be cut short by the object's end.
 */
struct mcfs_item {
	uint64_t object;           /* handle of a FILE, or, with a name, of the DIR it is in */
	uint64_t name;             /* offset in the submission's buffer */
	uint16_t name_bytes;       /* 0: object is a FILE (not for WRITE) */
	uint16_t name_kind;        /* enum mcfs_name_kind */
	uint32_t mode;             /* WRITE: permission bits of the new file */
	uint64_t file_offset;      /* READ: of the first byte; else 0 */
	uint64_t base;             /* offset in buffer */
	uint64_t stride;           /* >= segment_bytes when there are several */
	uint32_t buffer;           /* registered, may be another than the submission's */
	uint32_t segment_bytes;
	uint32_t segment_count;    /* WRITE: segment_bytes times segment_count is the object's size */
	uint32_t reserved;

	int32_t status;            /* out: 0 or a negative errno; -ENOENT: no such object */
	uint8_t tier;              /* out: where the bytes came from, enum mcfs_tier */
	uint8_t reserved_out[3];
	uint64_t bytes;            /* out: moved; less than asked only at the end of the object. PREFETCH: come from others */
	uint64_t size;             /* out: of the object */
	uint64_t version;          /* out */
};

/* What read(2) on a session gives, as many as fit; it waits for one unless O_NONBLOCK. poll(2) works. */
struct mcfs_completion {
	uint64_t ticket;
	uint64_t user_data;
	int32_t status;            /* 0: the items say how it went; -ECANCELED, -ETIMEDOUT: some were not begun */
	uint32_t n_ok;
	uint32_t ready_prefix;
	uint32_t reserved;
};

struct mcfs_cancel {
	uint64_t ticket;           /* its completion comes soon; until then its memory is in use */
};

#define MCFS_IOC_MAGIC 0xc4
#define MCFS_IOC_HANDLE _IOR(MCFS_IOC_MAGIC, 1, struct mcfs_handle)
#define MCFS_IOC_HELLO _IOWR(MCFS_IOC_MAGIC, 2, struct mcfs_hello)
#define MCFS_IOC_REGISTER _IOWR(MCFS_IOC_MAGIC, 3, struct mcfs_register)
#define MCFS_IOC_UNREGISTER _IOW(MCFS_IOC_MAGIC, 4, struct mcfs_unregister)
#define MCFS_IOC_SUBMIT _IOWR(MCFS_IOC_MAGIC, 5, struct mcfs_submit)
#define MCFS_IOC_CANCEL _IOW(MCFS_IOC_MAGIC, 6, struct mcfs_cancel)

#ifdef __cplusplus
#define MCFS_STATIC_ASSERT static_assert
#else
#define MCFS_STATIC_ASSERT _Static_assert
#endif
#define MCFS_ABI_ASSERT(type, size, last, at)                                                      \
	MCFS_STATIC_ASSERT(sizeof(struct type) == (size), #type);                                  \
	MCFS_STATIC_ASSERT(offsetof(struct type, last) == (at), #type "." #last)
MCFS_ABI_ASSERT(mcfs_handle, 24, reserved, 20);
MCFS_ABI_ASSERT(mcfs_hello, 64, reserved, 40);
MCFS_ABI_ASSERT(mcfs_register, 128, reserved, 32);
MCFS_ABI_ASSERT(mcfs_unregister, 8, reserved, 4);
MCFS_ABI_ASSERT(mcfs_submit, 112, ticket, 104);
MCFS_ABI_ASSERT(mcfs_state, 16, size, 8);
MCFS_ABI_ASSERT(mcfs_item, 96, version, 88);
MCFS_ABI_ASSERT(mcfs_completion, 32, reserved, 28);
MCFS_ABI_ASSERT(mcfs_cancel, 8, ticket, 0);

/* ---- libmooncakefs: the library over the ABI above; mooncakefs(3) says more ---- */

/*
 * Functions return 0 or a count, or a negative errno; mcfs_strerror says what it meant. Of any of them:
 *   -ENOTCONN  the daemon of the session is gone (see mcfs_session_reconnect)
 *   -EINVAL    an argument is out of range      -ENOMEM
 * Unless said otherwise a function may be called by any thread at any time, also several on one session;
 * an object must not be freed while a call uses it. Sessions do not survive fork(2).
 */

struct mcfs_session; /* an open session of one mount */
struct mcfs_dir;     /* a directory whose names calls use */
struct mcfs_buffer;  /* memory shared with the daemon */
struct mcfs_ticket;  /* a batch under way */

/*
 * The last failure of this thread in words, when it was error; else strerror. Valid until the thread's
 * next call.
 */
const char *mcfs_strerror(int error);

/* ---- session ---- */

enum mcfs_open_flags {
	/*
	 * A call that finds the daemon gone reconnects (waiting up to 10 s for a new one) and is repeated,
	 * once. What other threads store into buffers during such a call may be lost.
	 */
	MCFS_RECONNECT = 1,
};

/*
 * mount: the mount point. flags: enum mcfs_open_flags.
 * -ENOENT, -ENOTDIR not a mount of mooncakefs; -EPROTO a daemon of another version; -EACCES; -EMFILE.
 */
int mcfs_session_open(const char *mount, unsigned flags, struct mcfs_session **session_out);

/*
 * Ends the session and frees all that is left of it: buffers, directories, tickets. No other call may be
 * running or follow. NULL is fine.
 */
void mcfs_session_close(struct mcfs_session *s);

/*
 * Opens the session anew after its daemon was restarted, trying for timeout_ms (0: once). Buffers keep
 * address and content: what they held is copied into new buffer files, so nothing may be stored into
 * them meanwhile. Directories are opened again when next used. File handles are void, tickets end with
 * -ENOTCONN. Waits for calls under way. Does nothing when the session is alive.
 * -ETIMEDOUT no daemon came; the errnos of mcfs_session_open: the session stays as it is.
 */
int mcfs_session_reconnect(struct mcfs_session *s, int timeout_ms);

/* What the daemon said at the opening. */
void mcfs_session_hello(struct mcfs_session *s, struct mcfs_hello *hello_out);

/*
 * A descriptor for poll(2), readable when a ticket makes progress: then call mcfs_session_next_done.
 * It keeps its number when the session reconnects, but an epoll set must be told again.
 */
int mcfs_session_fd(const struct mcfs_session *s);

/* ---- memory ---- */

/*
 * bytes (rounded up to pages) of zeroed memory shared with the daemon, counted in its max_buffer_bytes.
 * Meant to be large and cut up by the program. -ENOSPC the mount's limit; -EMFILE too many buffers;
 * -EOPNOTSUPP the mount runs without passthrough.
 */
int mcfs_buffer_alloc(struct mcfs_session *s, size_t bytes, struct mcfs_buffer **buffer_out);

/* -EBUSY: a submission uses it, and it lives on. NULL is fine. */
int mcfs_buffer_free(struct mcfs_buffer *b);

void *mcfs_buffer_memory(const struct mcfs_buffer *b);
size_t mcfs_buffer_bytes(const struct mcfs_buffer *b);

/* ---- names ---- */

/*
 * Directory path, or path below the mount point when relative, such as "kv/llama"; opened once per path
 * and session. -ENOENT, -ENOTDIR, -EACCES; -EXDEV: on another mount.
 */
int mcfs_dir_open(struct mcfs_session *s, const char *path, struct mcfs_dir **dir_out);

/* Gives the reference back; the last one is kept open for the next mcfs_dir_open. NULL is fine. */
void mcfs_dir_close(struct mcfs_dir *d);

/* The handle of an open file of the mount, for mcfs_request.file. -ENOTTY: not of a mooncakefs. */
int mcfs_file_handle(int fd, uint64_t *handle_out);

/* ---- batches ---- */

/* One object to read, write or prefetch. All zero but what is named is a valid start. */
struct mcfs_request {
	struct mcfs_dir *dir;   /* with name; or NULL, with file */
	const void *name;       /* borrowed until the call, or its ticket, has ended */
	uint32_t name_bytes;    /* 0: name is a string */
	uint32_t name_kind;     /* enum mcfs_name_kind; MCFS_NAME_BINARY: 1 to 64 bytes */
	uint64_t file;          /* of mcfs_file_handle; READ, PREFETCH */
	uint64_t file_offset;   /* READ: of the first byte */
	void *memory;           /* first segment, in a buffer of the session */
	uint64_t stride;        /* from one segment to the next; 0: segment_bytes */
	uint32_t segment_bytes;
	uint32_t segment_count; /* 0: 1 */
	uint32_t mode;          /* WRITE: permission bits; 0: 0644 */

	int32_t status;         /* out: 0 or a negative errno: -ENOENT, -EFAULT memory is in no buffer, ... */
	uint64_t bytes;         /* out: moved */
	uint64_t size;          /* out: of the object */
	uint64_t version;       /* out */
	uint8_t tier;           /* out: enum mcfs_tier */
	uint8_t reserved[7];
};

/* How a call is done; NULL stands for all zero. */
struct mcfs_call {
	uint64_t deadline_us;   /* requests not done by then say -ETIMEDOUT; 0: 60 s */
	const char *suffix;     /* behind each binary name, such as ".bin"; NULL: none; up to 64 bytes */
	void *user;             /* mcfs_ticket_user gives it back */
	uint32_t flags;         /* MCFS_GROUP */
	uint32_t reserved;
};

/*
 * Reads, writes or prefetches n objects in as few system calls as max_items allows, one after another.
 * Returns how many requests have status 0; a negative errno when a submission was refused or broken off
 * (-EINTR by a signal): requests not begun then carry it too. -E2BIG: MCFS_GROUP with more than
 * max_items. Blocks up to the deadline.
 */
long mcfs_read_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
		     const struct mcfs_call *call);
long mcfs_write_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
		      const struct mcfs_call *call);
long mcfs_prefetch_batch(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
			 const struct mcfs_call *call);

/* Names to look up in one directory: strings, or n hashes of hash_bytes each, one after another. */
struct mcfs_names {
	const char *const *strings; /* n of them; or NULL */
	const void *hashes;
	uint32_t hash_bytes;        /* 1 to 64 */
	uint32_t reserved;
	size_t n;
};

/*
 * states_out: n outcomes, or NULL. Returns how many names from the first are READY without a gap.
 */
long mcfs_lookup_prefix(struct mcfs_session *s, struct mcfs_dir *dir, const struct mcfs_names *names,
			const struct mcfs_call *call, struct mcfs_state *states_out);

/* A list of requests that grows; all zero is empty. Used by one thread at a time. */
struct mcfs_batch {
	struct mcfs_request *requests;
	size_t n, capacity;
};

/*
 * Adds the object name of dir: bytes at memory. The name is borrowed. Returns the request, whose other
 * fields may be set until the next one is added; NULL: out of memory.
 */
struct mcfs_request *mcfs_batch_add(struct mcfs_batch *b, struct mcfs_dir *dir, const char *name,
				    void *memory, uint32_t bytes);
void mcfs_batch_free(struct mcfs_batch *b);

/* ---- the same, without waiting ---- */

/*
 * Begin and return a ticket. Requests, names, memory and states_out are in use until the ticket has
 * ended. More than max_items are submitted part by part, as the program collects.
 * -EAGAIN: too many tickets wait to be collected.
 */
int mcfs_read_batch_async(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
			  const struct mcfs_call *call, struct mcfs_ticket **ticket_out);
int mcfs_write_batch_async(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
			   const struct mcfs_call *call, struct mcfs_ticket **ticket_out);
int mcfs_prefetch_batch_async(struct mcfs_session *s, struct mcfs_request *requests, size_t n,
			      const struct mcfs_call *call, struct mcfs_ticket **ticket_out);
int mcfs_lookup_prefix_async(struct mcfs_session *s, struct mcfs_dir *dir,
			     const struct mcfs_names *names, const struct mcfs_call *call,
			     struct mcfs_state *states_out, struct mcfs_ticket **ticket_out);

/*
 * Waits timeout_ms (-1: as long as it takes). Returns what the call without ticket would have;
 * -EINPROGRESS: it has not ended. May be repeated.
 */
long mcfs_ticket_wait(struct mcfs_ticket *t, int timeout_ms);

/* A ticket that has ended and was not given out yet, or NULL. Reads what is there, does not wait. */
struct mcfs_ticket *mcfs_session_next_done(struct mcfs_session *s);

void *mcfs_ticket_user(const struct mcfs_ticket *t);

/* Asks for an early end; what was not begun says -ECANCELED. The ticket ends soon, not at once. */
int mcfs_ticket_cancel(struct mcfs_ticket *t);

/* Frees the ticket; one that has not ended is cancelled and waited for. NULL is fine. */
void mcfs_ticket_free(struct mcfs_ticket *t);

/* ---- without a copy ---- */

/* An object's bytes in place, read-only, this version for as long as it is mapped. */
struct mcfs_map {
	const void *data;       /* NULL for an object of 0 bytes */
	size_t bytes;
};

enum mcfs_map_flags { MCFS_MAP_POPULATE = 1 /* all pages now, not at first touch */ };

/*
 * path: a file; or with dir a name in it. Opens, maps (MAP_SHARED), closes: no session is needed, dir may
 * be NULL. A file system error under a mapping that is read is SIGBUS.
 */
int mcfs_map(struct mcfs_dir *dir, const char *path, unsigned flags, struct mcfs_map *map_out);
void mcfs_unmap(struct mcfs_map *m);

#ifdef __cplusplus
}
#endif

#endif
