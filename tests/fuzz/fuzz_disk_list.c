/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a disk's marker and as the list of disks: what is taken keeps the rules of disk_list.h. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tier/disk_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void must_be_identity(const struct disk_identity *identity)
{
	must(identity->number <= DISK_MAX_NUMBER);
	must(strlen(identity->id) == DISK_ID_DIGITS);
	must(strspn(identity->id, "0123456789abcdef") == DISK_ID_DIGITS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct disk_identity marker;
	struct disk_list list;

	if (!disk_marker_parse((const char *)data, size, &marker))
		must_be_identity(&marker);
	if (disk_list_parse((const char *)data, size, &list))
		return 0;
	for (uint32_t k = 0; k < list.n; k++) {
		const struct disk_entry *e = &list.v[k];
		must_be_identity(&e->identity);
		must(e->path != NULL);
		must(disk_list_by_id(&list, e->identity.id) == e);
		for (uint32_t j = 0; j < k; j++)
			must(list.v[j].identity.number != e->identity.number);
	}
	disk_list_fini(&list);
	return 0;
}
