/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket: a job that the daemon works on while the program goes on.
 *
 *   OWNED --submitted--> WITH_DAEMON --claimed--> OWNED --no part left, or an error--> ENDED
 *
 * Who owns a ticket writes and reads its job: the thread that submits it, then whoever claims it: the
 * reader of its completion, the submitter when the submission failed, or who finds the daemon gone.
 * Completions name the slot and the sequence number of a ticket, so that one too many harms nothing.
 *
 * One thread at a time reads completions (has_reader), for all tickets; the others wait until it has made
 * progress or leaves. lock guards the fields marked so; it is never held during a system call.
 */
#ifndef MCFS_LIB_TICKET_H
#define MCFS_LIB_TICKET_H

#include "lib.h"

enum stage {
	OWNED,
	WITH_DAEMON,
	ENDED
};

struct mcfs_ticket {
	struct mcfs_session *s;
	struct lib_job job;
	char suffix[LIB_SUFFIX_MAX + 1];
	uint32_t slot; /* constant */

	/* under lock */
	uint32_t sequence; /* of the part */
	enum stage stage;
	bool is_cancelled;
	bool is_waiting; /* in the list of ended tickets */
	uint64_t number; /* the daemon's, of the part; 0: not known yet */
	struct mcfs_ticket *next;
};

struct lib_tickets {
	pthread_mutex_t lock;
	pthread_cond_t progress; /* a ticket ended, or the reader left */
	bool has_reader;
	struct mcfs_ticket **slots;
	size_t n_slots;
	size_t first_free; /* no slot below it is free */
	uint32_t sequence;
	uint64_t n_ended;
	struct mcfs_ticket *ended, **ended_last; /* in this order, not given out yet */
};

/* Takes a slot. 0 or -ENOMEM. */
int ticket_list(struct mcfs_ticket *t);
/* Frees it; it is owned, or has ended. */
void ticket_destroy(struct mcfs_ticket *t);

/*
 * Submits what is next of an owned ticket. True: it is over, and still owned; false: it is owned no more.
 * With life held for reading.
 */
bool ticket_go(struct mcfs_ticket *t);
/* An owned ticket has ended. */
void ticket_end(struct mcfs_ticket *t);
/* Asks the daemon to end a part early. With life held for reading. */
void ticket_cancel_part(struct mcfs_session *s, uint64_t number);

/* Gives it out: it is no longer in the list of ended ones. With lock held. */
void ended_remove_locked(struct lib_tickets *ts, struct mcfs_ticket *t);
/* Reads completions, waiting up to timeout_ms for one. With lock held, which is given up meanwhile. */
void become_reader_locked(struct mcfs_session *s, int timeout_ms);
/* Waits for the reader's progress. With lock held, which is given up meanwhile. */
void wait_for_reader_locked(struct lib_tickets *ts, int timeout_ms);

#endif
