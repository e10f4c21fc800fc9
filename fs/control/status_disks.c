/* SPDX-License-Identifier: Apache-2.0 */
#include "control/status.h"

#include <limits.h>

#include "base/utf8.h"
#include "control/snapshot.h"

static json_t *disk_object(const struct ssd_disk_stats *d)
{
	char path[PATH_MAX], reason[sizeof(d->failed_reason)];

	return json_pack("{s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}",
			 "path", utf8_clean(d->path, path, sizeof(path)),
			 "number", d->is_known ? status_u64(d->number) : json_null(), "id", d->id,
			 "state", d->is_failed ? "failed" : "ok",
			 "reason", utf8_clean(d->is_failed ? d->failed_reason : "", reason, sizeof(reason)),
			 "budget_bytes", status_u64(d->budget_bytes),
			 "wanted_bytes", status_u64(d->wanted_bytes),
			 "used_bytes", status_u64(d->used_bytes),
			 "objects", status_u64(d->n_sealed), "errors", status_u64(d->n_errors));
}

json_t *status_disks(const struct snapshot *s)
{
	json_t *disks = json_array();

	for (uint32_t k = 0; k < s->n_disks; k++)
		json_array_append_new(disks, disk_object(&s->disks[k]));
	return disks;
}
