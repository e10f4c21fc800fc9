/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup: names of the program, as they lie in the area of a submission:
 *
 *   struct mcfs_state [n], the suffix, the names (each string with its NUL, or hashes)
 */
#include "lib.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

size_t lib_names_bytes(const struct lib_job *j)
{
	size_t bytes =
		j->part * sizeof(struct mcfs_state) + (j->call.suffix ? strlen(j->call.suffix) : 0);

	if (!j->names.strings)
		return bytes + j->part * j->names.hash_bytes;
	for (size_t i = 0; i < j->part; i++)
		bytes += strlen(j->names.strings[j->done + i]) + 1;
	return bytes;
}

/* Returns their length. */
static size_t names_copy(const struct lib_job *j, char *to)
{
	char *end = to;

	if (!j->names.strings) {
		size_t len = j->part * j->names.hash_bytes;
		memcpy(to, (const char *)j->names.hashes + j->done * j->names.hash_bytes, len);
		return len;
	}
	for (size_t i = 0; i < j->part; i++)
		end = stpcpy(end, j->names.strings[j->done + i]) + 1;
	return (size_t)(end - to);
}

int lib_names_write(struct lib_job *j, struct mcfs_submit *submit)
{
	size_t end = j->part * sizeof(struct mcfs_state);
	size_t n_suffix = j->call.suffix ? strlen(j->call.suffix) : 0;

	int rc = lib_dir_handle(j->dir, &submit->directory);
	if (rc)
		return rc;
	memset(j->area.memory, 0, end);
	memcpy(j->area.memory + end, j->call.suffix ? j->call.suffix : "", n_suffix);
	submit->suffix = n_suffix ? j->area.offset + end : 0;
	submit->suffix_bytes = (uint32_t)n_suffix;
	end += n_suffix;
	submit->items = j->area.offset;
	submit->names = j->area.offset + end;
	submit->names_bytes = (uint32_t)names_copy(j, j->area.memory + end);
	submit->name_kind = j->names.strings ? MCFS_NAME_TEXT : MCFS_NAME_BINARY;
	submit->name_bytes = j->names.strings ? 0 : (uint16_t)j->names.hash_bytes;
	j->n_items = (uint32_t)j->part;
	return 0;
}

void lib_names_read(struct lib_job *j, uint32_t ready_prefix, int error)
{
	if (j->states && j->part)
		memcpy(j->states + j->done, j->area.memory, j->part * sizeof(struct mcfs_state));
	if (error || j->has_gap)
		return;
	j->n_ok += ready_prefix;
	j->has_gap = ready_prefix < j->part;
}

int lib_job_of_names(struct mcfs_session *s, struct mcfs_dir *dir, const struct mcfs_names *names,
		     const struct mcfs_call *call, struct mcfs_state *states,
		     struct lib_job *job_out)
{
	lib_forget_error();
	*job_out = (struct lib_job){
		.op = MCFS_OP_LOOKUP, .dir = dir, .names = *names, .n = names->n, .states = states};
	if (call)
		job_out->call = *call;
	if (job_out->call.deadline_us)
		lib_job_set_deadline(job_out);
	bool has_hashes = names->hashes && names->hash_bytes && names->hash_bytes <= LIB_HASH_MAX;
	if (!dir || dir->s != s || (names->n && !names->strings && !has_hashes) ||
	    names->reserved || names->n > LONG_MAX)
		return lib_fail(-EINVAL, "a lookup of %zu names of %u bytes", names->n,
				(unsigned)names->hash_bytes);
	if (job_out->call.flags || job_out->call.reserved ||
	    (call && call->suffix && strlen(call->suffix) > LIB_SUFFIX_MAX))
		return lib_fail(-EINVAL, "a lookup with flags 0x%x", (unsigned)job_out->call.flags);
	return 0;
}
