/* SPDX-License-Identifier: Apache-2.0 */
/* fault_tier: counts, waits, fails, passes on. lock guards the rules and counts, never a call. */
#include "fakes/fault_tier.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"

struct fault_rule {
	uint64_t n_calls;
	uint64_t fails_at; /* value of n_calls that fails; 0: none */
	uint64_t delay_ns;
	int err;
};

struct fault_tier {
	struct tier tier;
	struct tier *inner;
	pthread_mutex_t lock;
	struct fault_rule rules[N_FAULT_OPS];
};

static struct fault_tier *fault_of(struct tier *t)
{
	return (struct fault_tier *)t;
}

static struct tier *inner_of(struct tier *t)
{
	return fault_of(t)->inner;
}

/* 0, or what the call returns instead of being passed on. */
static int fault(struct tier *t, enum fault_op op)
{
	struct fault_tier *ft = fault_of(t);
	struct fault_rule *rule = &ft->rules[op];

	pthread_mutex_lock(&ft->lock);
	int rc = ++rule->n_calls == rule->fails_at ? -rule->err : 0;
	uint64_t delay_ns = rule->delay_ns;
	pthread_mutex_unlock(&ft->lock);
	if (delay_ns > 0) {
		struct timespec delay = {.tv_sec = (time_t)(delay_ns / 1000000000),
					 .tv_nsec = (long)(delay_ns % 1000000000)};
		nanosleep(&delay, NULL);
	}
	return rc;
}

static int fault_take(struct tier *t, uint64_t size_hint_bytes, struct frame *out)
{
	int rc = fault(t, FAULT_take);
	return rc ? rc : tier_call(inner_of(t), take, size_hint_bytes, out);
}

static int fault_charge(struct tier *t, struct frame *f, uint64_t bytes)
{
	int rc = fault(t, FAULT_charge);
	return rc ? rc : tier_call(inner_of(t), charge, f, bytes);
}

static int fault_resize(struct tier *t, struct frame *f, uint64_t bytes)
{
	int rc = fault(t, FAULT_resize);
	return rc ? rc : tier_call(inner_of(t), resize, f, bytes);
}

static int fault_write(struct tier *t, struct frame *f, const void *buf, size_t len, uint64_t off)
{
	int rc = fault(t, FAULT_write);
	return rc ? rc : tier_call(inner_of(t), write, f, buf, len, off);
}

static int fault_read(struct tier *t, struct frame *f, void *buf, size_t len, uint64_t off)
{
	int rc = fault(t, FAULT_read);
	return rc ? rc : tier_call(inner_of(t), read, f, buf, len, off);
}

static int fault_zero(struct tier *t, struct frame *f, uint64_t off, uint64_t len)
{
	int rc = fault(t, FAULT_zero);
	return rc ? rc : tier_call(inner_of(t), zero, f, off, len);
}

static int fault_sync(struct tier *t, struct frame *f)
{
	int rc = fault(t, FAULT_sync);
	return rc ? rc : tier_call(inner_of(t), sync, f);
}

static int fault_seal(struct tier *t, struct frame *f, uint64_t *charged_out)
{
	int rc = fault(t, FAULT_seal);
	return rc ? rc : tier_call(inner_of(t), seal, f, charged_out);
}

static void fault_discard(struct tier *t, struct frame *f)
{
	(void)fault(t, FAULT_discard);
	tier_call(inner_of(t), discard, f);
}

/* Fails as open does. */
static int fault_borrow(struct tier *t, uint64_t frame_id)
{
	int rc = fault(t, FAULT_open);
	return rc ? rc : tier_call(inner_of(t), borrow, frame_id);
}

static void fault_give_back(struct tier *t, uint64_t frame_id, int fd)
{
	tier_call(inner_of(t), give_back, frame_id, fd);
}

static int fault_map(struct tier *t, uint64_t frame_id, uint64_t bytes, int fd, struct frame_map **out)
{
	int rc = fault(t, FAULT_map);
	return rc ? rc : tier_call(inner_of(t), map, frame_id, bytes, fd, out);
}

static void fault_unmap(struct tier *t, struct frame_map *map)
{
	tier_call(inner_of(t), unmap, map);
}

static void fault_set_registrar(struct tier *t, const struct tier_registrar *r)
{
	tier_call(inner_of(t), set_registrar, r);
}

static void fault_get_map_stats(struct tier *t, struct tier_map_stats *out)
{
	tier_call(inner_of(t), get_map_stats, out);
}

static int fault_open(struct tier *t, uint64_t frame_id)
{
	int rc = fault(t, FAULT_open);
	return rc ? rc : tier_call(inner_of(t), open, frame_id);
}

static void fault_drop(struct tier *t, uint64_t frame_id, uint64_t size_bytes,
		       uint64_t charged_bytes)
{
	(void)fault(t, FAULT_drop);
	tier_call(inner_of(t), drop, frame_id, size_bytes, charged_bytes);
}

static int fault_scan(struct tier *t, tier_scan_fn fn, void *arg)
{
	int rc = fault(t, FAULT_scan);
	return rc ? rc : tier_call(inner_of(t), scan, fn, arg);
}

static void fault_adopt(struct tier *t, uint64_t frame_id, uint64_t charged_bytes)
{
	(void)fault(t, FAULT_adopt);
	tier_call(inner_of(t), adopt, frame_id, charged_bytes);
}

static int fault_remove_orphan(struct tier *t, uint64_t frame_id)
{
	int rc = fault(t, FAULT_remove_orphan);
	return rc ? rc : tier_call(inner_of(t), remove_orphan, frame_id);
}

static uint64_t fault_reclaim(struct tier *t, uint64_t keep_bytes)
{
	(void)fault(t, FAULT_reclaim);
	return tier_call(inner_of(t), reclaim, keep_bytes);
}

static bool fault_may_return(struct tier *t, uint64_t frame_id)
{
	return tier_call(inner_of(t), may_return, frame_id);
}

static bool fault_is_lost(struct tier *t, uint64_t frame_id)
{
	return tier_call(inner_of(t), is_lost, frame_id);
}

static int fault_report_error(struct tier *t, uint64_t frame_id, int err)
{
	return tier_call(inner_of(t), report_error, frame_id, err);
}

static void fault_get_stats(struct tier *t, struct tier_stats *out)
{
	tier_call(inner_of(t), get_stats, out);
}

static void fault_destroy(struct tier *t, bool removes_frames)
{
	struct fault_tier *ft = fault_of(t);

	tier_call(ft->inner, destroy, removes_frames);
	pthread_mutex_destroy(&ft->lock);
	free(ft);
}

static const struct tier_ops fault_ops = {.name = "fault",
					  .get_stats = fault_get_stats,
					  .is_lost = fault_is_lost,
					  .may_return = fault_may_return,
					  .report_error = fault_report_error,
					  .borrow = fault_borrow,
					  .give_back = fault_give_back,
					  .unmap = fault_unmap,
					  .set_registrar = fault_set_registrar,
					  .get_map_stats = fault_get_map_stats,
					  .destroy = fault_destroy,
#define X(op) .op = fault_##op,
					  FAULT_TIER_OPS(X)
#undef X
};

struct tier *fault_tier_create(struct tier *inner)
{
	struct fault_tier *ft = calloc(1, sizeof(*ft));

	if (!ft)
		return NULL;
	ft->tier.ops = &fault_ops;
	ft->inner = inner;
	pthread_mutex_init(&ft->lock, NULL);
	return &ft->tier;
}

struct tier *fault_tier_inner(struct tier *t)
{
	return inner_of(t);
}

void fault_tier_fail(struct tier *t, enum fault_op op, uint64_t nth, int err)
{
	struct fault_tier *ft = fault_of(t);
	struct fault_rule *rule = &ft->rules[op];

	guard_lock(&ft->lock);
	rule->fails_at = nth > 0 ? rule->n_calls + nth : 0;
	rule->err = err;
}

void fault_tier_delay(struct tier *t, enum fault_op op, uint64_t delay_ns)
{
	struct fault_tier *ft = fault_of(t);

	guard_lock(&ft->lock);
	ft->rules[op].delay_ns = delay_ns;
}

uint64_t fault_tier_calls(struct tier *t, enum fault_op op)
{
	struct fault_tier *ft = fault_of(t);

	guard_lock(&ft->lock);
	return ft->rules[op].n_calls;
}

const char *fault_op_name(enum fault_op op)
{
	static const char *const names[] = {
#define X(op) #op,
		FAULT_TIER_OPS(X)
#undef X
	};

	return names[op];
}
