/* SPDX-License-Identifier: Apache-2.0 */
/* disk_health: recent holds the last frames with an error, the oldest gives way. */
#include "tier/disk_health.h"

#include <errno.h>
#include <stddef.h>

bool disk_error_is_fatal(int err)
{
	return err == -EROFS || err == -ENODEV || err == -ENXIO || err == -ESTALE ||
	       err == -ESHUTDOWN;
}

bool disk_error_is_io(int err)
{
	return err == -EIO || err == -EUCLEAN || err == -EBADMSG || err == -EREMOTEIO ||
	       err == -ETIMEDOUT || disk_error_is_fatal(err);
}

static bool is_recent(const struct disk_error *e, int64_t now_ns)
{
	return e->frame_id != 0 && now_ns - e->at_ns <= DISK_ERRORS_NS;
}

bool disk_health_note(struct disk_health *h, uint64_t frame_id, int err, int64_t now_ns)
{
	struct disk_error *slot = &h->recent[0];
	uint32_t n_recent = 0;

	h->n_errors++;
	if (disk_error_is_fatal(err))
		return true;
	if (frame_id == 0)
		frame_id = UINT64_MAX - h->n_errors; /* unlike any other */
	for (size_t k = 0; k < DISK_MAX_ERRORS; k++)
		if (h->recent[k].at_ns < slot->at_ns)
			slot = &h->recent[k];
	for (size_t k = 0; k < DISK_MAX_ERRORS; k++)
		if (h->recent[k].frame_id == frame_id)
			slot = &h->recent[k];
	*slot = (struct disk_error){.frame_id = frame_id, .at_ns = now_ns};
	for (size_t k = 0; k < DISK_MAX_ERRORS; k++)
		n_recent += is_recent(&h->recent[k], now_ns);
	return n_recent == DISK_MAX_ERRORS;
}
