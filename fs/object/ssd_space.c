/* SPDX-License-Identifier: Apache-2.0 */
#include "object/ssd_space.h"

#include <errno.h>
#include <stdbool.h>

#include "base/counters.h"
#include "fs.h"
#include "object/copies.h"
#include "object/object.h"
#include "object/residency.h"
#include "object/space.h"

/* Of one call of ssd_space_trim; the next goes on. */
#define MAX_TRIMMED 256

/* 0 and the bytes it took, -ENOSPC: nothing may go, or why its records could not be changed. */
static int evict_one(struct fs *fs, uint64_t *bytes_out)
{
	struct residency *r = fs->residency;

	pthread_mutex_lock(&fs->lock);
	struct object *o = residency_pick_locked(fs, r->ssd);
	bool is_in_dram = o && o->dram_frame;
	uint64_t size = o ? o->size : 0;
	if (o)
		residency_note_age_locked(fs, &r->ssd_age, o);
	if (is_in_dram) {
		object_open_locked(o);
		o->goes_without = true; /* it is colder than all that stays: not worth another copy */
	} else if (o) {
		object_begin_evict_locked(fs, o);
	}
	pthread_mutex_unlock(&fs->lock);
	if (!o)
		return -ENOSPC;
	int rc = is_in_dram ? copies_drop_ssd(fs, o) : space_remove_object(fs, o);
	if (is_in_dram)
		object_close(fs, o);
	if (rc)
		return rc;
	counter_inc(ssd_evictions);
	counter_add(ssd_evicted_bytes, size);
	if (!is_in_dram)
		counter_inc(evicted_names);
	*bytes_out = ssd_charge(size);
	return 0;
}

int ssd_space_make(struct fs *fs, uint64_t bytes)
{
	uint64_t freed = 0, one = 0;
	int rc = 0;
	bool has_any = false;

	while (freed < bytes && !(rc = evict_one(fs, &one))) {
		freed += one;
		has_any = true;
	}
	return has_any ? 0 : rc;
}

static void trim(struct fs *fs)
{
	struct tier_stats s;
	uint64_t freed = 0, one = 0;

	tier_call(fs->ssd, get_stats, &s);
	if (s.used_bytes <= s.high_watermark_bytes)
		return;
	for (int n = 0; n < MAX_TRIMMED && s.used_bytes - freed > s.low_watermark_bytes; n++) {
		if (evict_one(fs, &one))
			return;
		freed = freed + one < s.used_bytes ? freed + one : s.used_bytes;
	}
}

void ssd_space_trim(struct fs *fs)
{
	struct residency *r = fs->residency;

	pthread_mutex_lock(&fs->lock);
	bool is_mine = !r->is_trimming;
	r->is_trimming = true;
	pthread_mutex_unlock(&fs->lock);
	if (!is_mine)
		return;
	trim(fs);
	pthread_mutex_lock(&fs->lock);
	r->is_trimming = false;
	pthread_mutex_unlock(&fs->lock);
}
