/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_rdma: libibverbs and librdmacm, as much of them as transport/rdma uses, inside one process: linked in place of
 * the libraries into unit tests, stress programs and fuzz targets, never into the daemon. One device, fake0, with one
 * port that has a RoCE v2 GID for 127.0.0.1 and ::1. READs are done when they are posted, unless they are held.
 *
 * What goes wrong is set in fake_rdma, at any time, from any thread. Misuse that would hang or corrupt with the real
 * libraries (events that nobody acknowledged, a queue that is destroyed while in use) aborts with a line that says so.
 */
#ifndef MCFS_TESTS_FAKE_RDMA_H
#define MCFS_TESTS_FAKE_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fake_rdma {
	/* The n-th of these calls from now fails, with ENOMEM; 0: none. */
	atomic_int fail_alloc_pd, fail_reg_mr, fail_create_cq, fail_create_channel, fail_create_id,
		fail_create_qp, fail_post_send, fail_accept;
	atomic_int wc_after,
		wc_status; /* the READ after so many others completes with that status; once */
	atomic_bool holds_reads;	 /* READs do not complete until fake_rdma_release_reads */
	atomic_bool loses_notifications; /* no completion is told of, only polling finds it */
	atomic_bool is_silent;		 /* rdma_cm never answers */
	atomic_int resolve_status;	 /* negative errno: addresses are not resolved */
	atomic_int reject_status; /* what a REQ is rejected with; 0: nobody does but the listener */
	atomic_bool has_no_device, has_no_gid;

	/* How many there are. */
	atomic_int n_pds, n_mrs, n_cqs, n_channels, n_qps, n_ids, n_event_channels;
	atomic_int n_doorbells, n_signalled; /* ever: posts, READs that asked for a completion */
	atomic_int longest_chain, most_outstanding;
};

extern struct fake_rdma fake_rdma;

/* READs that are held happen now, on the queue pairs that are still there. How many. */
int fake_rdma_release_reads(void);
/* All things that were made and not destroyed. */
int fake_rdma_n_left(void);
/* For good: every id on the device is told, and no address is on it any more. */
void fake_rdma_remove_device(void);
/* The device says that of itself. */
void fake_rdma_say(enum ibv_event_type type);
/* Every queue pair that is connected is cut, as by a peer that dies: its other end hears of it. */
void fake_rdma_disconnect_all(void);

/* ---- between the halves of the fake ---- */

extern struct ibv_context fake_context;
extern pthread_mutex_t fake_lock; /* guards all of the fake but the atomics */

/* Is it this call's turn to fail? */
bool fake_fails(atomic_int *n);
struct ibv_qp *fake_qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void fake_qp_destroy(struct ibv_qp *qp);
void fake_qp_set_connected_locked(struct ibv_qp *qp, bool is_connected);

#endif
