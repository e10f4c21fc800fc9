/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_lease: the thread that keeps us known to the server, and knows whether it is there.
 *
 * A beat: connect where needed; see that it is the server it was (its run id changes with a restart, which may
 * have lost what it had); renew the lease, or get a slot; read the nodes. Five beats fall in the time of a lease.
 * While the server is away a beat is a probe, five a second.
 *
 * States: no slot; a slot, whose lease holds until lease_ms, less a tenth for what clocks and messages take, have
 * passed since the renewal that the server confirmed last was *sent*.
 *
 * A resync is due: at the first slot; when the slot is another, or its claim was gone (somebody wiped the server);
 * when the run id changed; when the lease had run out, so that names may have changed without our being told; when
 * changes were given up, but then not oftener than every two leases.
 *
 * Lock: lease.lock guards what sleepers wait for and the reason for having no slot.
 *
 * How it fails: a beat that fails drops the connection and says that the server is away. A server without a slot
 * for us is there for lookups.
 */
#include "directory_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

#define PROBE_NS (200 * NS_PER_MS)
#define TOUCH_NS (60 * NS_PER_S)
#define NODES_NS (NS_PER_S - 50 * NS_PER_MS)
#define GOODBYE_NS (300 * NS_PER_MS)
#define EVENTS_MAX "10000"
#define RESYNC_GAP_MAX_NS (600 * NS_PER_S)

static int64_t io_deadline(const struct directory *d)
{
	return clock_now_ns() + d->io_ns;
}

int directory_slot(struct directory *d)
{
	return atomic_load(&d->lease.slot);
}

bool directory_lease_holds(struct directory *d)
{
	int64_t lease_ns = d->conf.lease_ms * NS_PER_MS;

	return directory_slot(d) >= 0 &&
	       clock_now_ns() < atomic_load(&d->lease.renewed_ns) + lease_ns - lease_ns / 10;
}

static void slot_set(struct directory *d, int slot, int error, const char *text)
{
	struct directory_lease *l = &d->lease;

	atomic_store(&l->slot, slot);
	guard_lock(&l->lock);
	if (error && (l->error != error || strcmp(l->text, text)))
		log_warn("directory %s: no slot: %s", d->where, text);
	l->error = error;
	snprintf(l->text, sizeof(l->text), "%s", text);
}

/* ---- events ---- */

static int event_write(struct directory *d, struct redis *r, int64_t deadline_ns, const char *event)
{
	const struct directory_node *self = &d->lease.self;
	char key[DIRECTORY_KEY_BYTES], slot[8], id[20], incarnation[24];
	struct redis_reply reply;

	directory_events_key(key, d->prefix);
	snprintf(slot, sizeof(slot), "%u", self->slot);
	snprintf(id, sizeof(id), "%016" PRIx64, self->id);
	snprintf(incarnation, sizeof(incarnation), "%" PRIu64, self->incarnation);
	const char *argv[] = {"XADD", key,	  "MAXLEN", "~",  EVENTS_MAX, "*", "event",	  event,
			      "node", self->name, "slot",   slot, "id",	      id,  "incarnation", incarnation};
	int rc = redis_run(r, sizeof(argv) / sizeof(*argv), argv, NULL, deadline_ns, &reply);
	if (!rc || !redis_is_connected(r))
		return rc;
	log_warn("directory %s: event %s: %s", d->where, event, redis_text(r));
	return 0;
}

/* ---- beats ---- */

static void rtt_add(struct directory *d, int64_t rtt_ns)
{
	int64_t older_ns = atomic_load(&d->rtt_ns);

	atomic_store(&d->rtt_ns, older_ns ? older_ns + (rtt_ns - older_ns) / 8 : rtt_ns);
}

/* Sets *changed_out when the server is not the one it was, or was started again. */
static int identity_check(struct directory *d, struct redis *r, bool *changed_out)
{
	struct directory_lease *l = &d->lease;
	struct redis_reply reply;
	char run_id[sizeof(l->run_id)] = "";
	int64_t sent_ns = clock_now_ns();
	int rc = redis_run(r, 2, (const char *[]){"INFO", "server"}, NULL, io_deadline(d), &reply);

	if (rc)
		return rc;
	rtt_add(d, clock_now_ns() - sent_ns);
	const char *at = reply.kind == REDIS_BYTES ? strstr((const char *)reply.bytes, "run_id:") : NULL;
	if (!at || sscanf(at, "run_id:%47[0-9a-zA-Z]", run_id) != 1)
		return -EIO;
	*changed_out = *l->run_id && strcmp(run_id, l->run_id);
	if (*changed_out)
		log_warn("directory %s: it was restarted", d->where);
	memcpy(l->run_id, run_id, sizeof(run_id));
	return 0;
}

/* One that may throw away what it likes is a directory with holes, or without leases. */
static int policy_check(struct directory *d, struct redis *r)
{
	struct redis_reply reply;
	char policy[32] = "";
	int rc = redis_run(r, 2, (const char *[]){"INFO", "memory"}, NULL, io_deadline(d), &reply);

	if (rc)
		return rc;
	const char *at = reply.kind == REDIS_BYTES ? strstr((const char *)reply.bytes, "maxmemory_policy:") : NULL;
	if (at && sscanf(at, "maxmemory_policy:%31[a-z-]", policy) == 1 && strcmp(policy, "noeviction"))
		log_warn("directory %s: its maxmemory-policy is %s, noeviction is what it should be", d->where,
			 policy);
	return 0;
}

static int slot_get(struct directory *d, struct redis *r)
{
	struct directory_lease *l = &d->lease;
	int slot;
	bool was_ours;
	int rc = directory_slot_claim(d, r, io_deadline(d), &slot, &was_ours);

	if (rc == -EBUSY)
		slot_set(d, -1, EBUSY, "a later incarnation of this node has one");
	else if (rc == -EAGAIN)
		slot_set(d, -1, EAGAIN, "all are in use");
	else if (rc && redis_is_connected(r))
		slot_set(d, -1, -rc, redis_text(r));
	if (rc)
		return redis_is_connected(r) ? 0 : rc;
	bool is_lost = l->was_claimed && !was_ours;
	if (is_lost)
		log_warn("directory %s: slot %u is ours no more, or all was wiped: now slot %d", d->where,
			 l->self.slot, slot);
	else
		log_info("directory %s: slot %d", d->where, slot);
	bool is_wiped = is_lost && slot == l->self.slot;
	l->needs_resync |= !l->was_claimed || is_lost;
	l->was_claimed = true;
	l->self.slot = (uint16_t)slot;
	l->touched_ns = clock_now_ns();
	slot_set(d, slot, 0, "");
	if (is_wiped)
		rc = event_write(d, r, io_deadline(d), "wiped");
	return rc ? rc : event_write(d, r, io_deadline(d), "joined");
}

static int slot_renew(struct directory *d, struct redis *r)
{
	struct directory_lease *l = &d->lease;
	int slot = directory_slot(d);
	int64_t sent_ns = clock_now_ns();
	int rc = directory_slot_renew(d, r, io_deadline(d), slot);

	if (!rc && sent_ns - l->touched_ns >= TOUCH_NS) {
		rc = directory_slot_touch(d, r, io_deadline(d), slot);
		l->touched_ns = sent_ns;
		if (rc == -ENOSPC)
			rc = 0; /* the lease was renewed all the same, and the claim stays */
	}
	if (rc == -EAGAIN) {
		slot_set(d, -1, EAGAIN, "the lease ran out");
		l->needs_resync = true;
	}
	return rc;
}

static int slot_keep(struct directory *d, struct redis *r)
{
	struct directory_lease *l = &d->lease;
	int rc = -EAGAIN;

	if (d->conf.on_renew)
		d->conf.on_renew(d->conf.arg, &l->self);
	if (directory_slot(d) >= 0)
		rc = slot_renew(d, r);
	return rc == -EAGAIN ? slot_get(d, r) : rc;
}

static int lease_beat(struct directory *d, struct redis *r)
{
	struct directory_lease *l = &d->lease;
	bool is_changed = false;
	int rc = 0;

	if (!redis_is_connected(r)) {
		rc = redis_connect(r, &d->address, NULL, io_deadline(d));
		if (!rc)
			rc = policy_check(d, r);
	}
	if (!rc)
		rc = identity_check(d, r, &is_changed);
	l->needs_resync |= is_changed;
	if (!rc)
		rc = slot_keep(d, r);
	if (!rc && clock_now_ns() - l->nodes_read_ns >= NODES_NS) {
		l->nodes_read_ns = clock_now_ns();
		rc = directory_nodes_refresh(d, r, io_deadline(d));
	}
	return rc;
}

static void resync_check(struct directory *d)
{
	struct directory_lease *l = &d->lease;
	int64_t now_ns = clock_now_ns(), gap_min_ns = 2 * d->conf.lease_ms * NS_PER_MS;

	if (directory_slot(d) < 0)
		return;
	if (l->needs_resync || now_ns - l->resynced_ns > 2 * l->resync_gap_ns)
		l->resync_gap_ns = gap_min_ns;
	if (!l->needs_resync && (now_ns - l->resynced_ns < l->resync_gap_ns || !atomic_load(&d->queue.gave_up)))
		return;
	atomic_store(&d->queue.gave_up, false);
	if (!l->needs_resync && l->resync_gap_ns < RESYNC_GAP_MAX_NS)
		l->resync_gap_ns *= 2;
	l->needs_resync = false;
	l->resynced_ns = now_ns;
	directory_resync_request(d);
}

/* ---- the thread ---- */

/* False: it is to end. */
static bool lease_sleep(struct directory_lease *l, int64_t until_ns)
{
	guard_lock(&l->lock);
	while (!l->stopping && !l->is_probe_wanted)
		if (clock_cond_wait(&l->wake, &l->lock, until_ns))
			break;
	l->is_probe_wanted = false;
	return !l->stopping;
}

static void lease_goodbye(struct directory *d, struct redis *r)
{
	int64_t deadline_ns = clock_now_ns() + GOODBYE_NS;
	int slot = directory_slot(d), rc = 0;

	atomic_store(&d->lease.slot, -1);
	if (slot < 0 || directory_health_check(d))
		return;
	redis_set_stop_fd(r, -1);
	if (!redis_is_idle(r))
		rc = directory_connect(d, r, deadline_ns);
	if (!rc)
		rc = directory_slot_release(d, r, deadline_ns, slot);
	if (!rc)
		rc = event_write(d, r, deadline_ns, "left");
	if (rc)
		log_warn("directory %s: the lease was not given back and runs out: %s", d->where, redis_text(r));
}

static void *lease_main(void *arg)
{
	struct directory *d = arg;
	struct directory_lease *l = &d->lease;
	int64_t wait_ns;

	do {
		int rc = lease_beat(d, l->redis);
		wait_ns = PROBE_NS;
		if (rc == -ECANCELED)
			break;
		if (rc) {
			bool is_known = rc == -ENETDOWN || rc == -ETIMEDOUT || rc == -EACCES;
			directory_health_down(d, is_known ? rc : -ENETDOWN, redis_text(l->redis));
			redis_disconnect(l->redis);
		} else {
			directory_health_up(d, l->redis);
			resync_check(d);
			wait_ns = d->conf.lease_ms * NS_PER_MS / 5;
		}
	} while (lease_sleep(l, clock_now_ns() + wait_ns));
	lease_goodbye(d, l->redis);
	redis_destroy(l->redis);
	return NULL;
}

int directory_lease_start(struct directory *d)
{
	struct directory_lease *l = &d->lease;

	l->self = d->conf.self;
	l->redis = redis_create(d->stop_fd);
	if (!l->redis)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	clock_cond_init(&l->wake);
	l->error = EAGAIN;
	snprintf(l->text, sizeof(l->text), "none yet");
	atomic_store(&l->slot, -1);
	int rc = -pthread_create(&l->thread, NULL, lease_main, d);
	if (rc) {
		pthread_cond_destroy(&l->wake);
		pthread_mutex_destroy(&l->lock);
		redis_destroy(l->redis);
	}
	return rc;
}

void directory_lease_stop(struct directory *d)
{
	struct directory_lease *l = &d->lease;

	pthread_mutex_lock(&l->lock);
	l->stopping = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
}

void directory_lease_probe(struct directory *d)
{
	guard_lock(&d->lease.lock);
	d->lease.is_probe_wanted = true;
	pthread_cond_signal(&d->lease.wake);
}
