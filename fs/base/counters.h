/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters: monotonic event counts, one list for .mooncake/metrics and status.json.
 * Thread safety: all functions (relaxed atomics).
 */
#ifndef MCFS_COUNTERS_H
#define MCFS_COUNTERS_H

#include <stdint.h>

/* X(name, help) - exported as mooncakefs_<name>_total */
#define COUNTERS(X)                                                                                \
	X(lookups, "LOOKUP requests")                                                              \
	X(lookup_misses, "LOOKUP requests answered ENOENT")                                        \
	X(opens, "OPEN requests of published objects for reading")                                 \
	X(opens_passthrough, "opens served by kernel passthrough")                                 \
	X(opens_direct, "opens served by direct_io")                                               \
	X(creates, "drafts made by CREATE")                                                        \
	X(redirects, "write opens of published names redirected to a draft (ESTALE)")              \
	X(reads, "READ requests served by the daemon")                                             \
	X(read_bytes, "bytes of READ requests served by the daemon")                               \
	X(writes, "WRITE requests")                                                                \
	X(write_bytes, "bytes of WRITE requests")                                                  \
	X(publishes, "objects published")                                                          \
	X(publish_bytes, "bytes of objects published")                                             \
	X(publish_replaces, "publishes that replaced an older object")                             \
	X(publish_failures, "publishes that failed; close() returned the error")                   \
	X(promises_kept, "fsynced drafts published after their writer or the daemon died")         \
	X(drafts_poisoned, "drafts thrown away because their writer was killed")                   \
	X(drafts_copied, "drafts that copied an older object's bytes at the first change")         \
	X(pid0_calls, "calls from another PID namespace that had to decide without a process id")  \
	X(unlinks, "names removed by unlink")                                                      \
	X(evictions, "objects evicted from dram")                                                  \
	X(evicted_bytes, "bytes of objects evicted from dram")                                     \
	X(ssd_evictions, "objects, or copies of objects, evicted from the ssd")                    \
	X(ssd_evicted_bytes, "bytes of what was evicted from the ssd")                             \
	X(evicted_names, "names that eviction removed with the last copy of their object")         \
	X(writeback_objects, "objects copied to the ssd in the background")                        \
	X(writeback_bytes, "bytes of objects copied to the ssd in the background")                 \
	X(writeback_failures, "copies to the ssd in the background that failed")                   \
	X(promotions, "objects copied from the ssd to dram because they were used again")          \
	X(promoted_bytes, "bytes of objects copied from the ssd to dram")                          \
	X(verifications, "ssd frames checked against their checksums before a first open")         \
	X(corrupt, "copies dropped because their bytes or their size were wrong")                  \
	X(spill_waits, "writes that waited for a copy to the ssd")                                 \
	X(expired, "objects removed because their ttl_s ran out")                                  \
	X(lost, "objects whose bytes were found missing")                                          \
	X(orphans, "frames that no object needed, removed after a start")                          \
	X(space_waits, "writes that waited for space")                                             \
	X(space_failures, "writes that got ENOSPC")                                                \
	X(interrupts, "requests interrupted while they waited")                                    \
	X(fsyncs, "fsync and fdatasync requests")                                                  \
	X(notify_failures, "kernel notifications that failed")                                     \
	X(fastpath_lookups, "names looked up by sessions")                                         \
	X(fastpath_reads, "items read by sessions")                                                \
	X(fastpath_read_bytes, "bytes read by sessions")                                           \
	X(fastpath_writes, "items written by sessions")                                            \
	X(fastpath_write_bytes, "bytes written by sessions")                                       \
	X(announcements, "changes of names told to the cluster's directory")                       \
	X(remote_lookups, "names looked up in the cluster's directory")                            \
	X(fetches, "objects fetched from peers")                                                   \
	X(fetch_bytes, "bytes of objects fetched from peers")                                      \
	X(fetch_failures, "fetches that found no holder, or failed with all of them")              \
	X(fetch_waits, "opens that waited for a fetch that another one had begun")                 \
	X(grants, "reads of objects granted to peers")                                             \
	X(served_bytes, "bytes read by peers")                                                     \
	X(invalidations, "names of which peers said that they have changed")                       \
	X(invalidations_posted, "messages to holders that went through the directory")             \
	X(catalog_errors, "catalog operations that failed")

enum counter_id {
#define X(name, help) COUNTER_##name,
	COUNTERS(X)
#undef X
	N_COUNTERS
};

void counter_add_id(enum counter_id id, uint64_t n);
uint64_t counter_get(enum counter_id id);
const char *counter_name(enum counter_id id);
const char *counter_help(enum counter_id id);

#define counter_add(name, n) counter_add_id(COUNTER_##name, (uint64_t)(n))
#define counter_inc(name) counter_add_id(COUNTER_##name, 1)

#endif
