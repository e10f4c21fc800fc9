/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fsck.h"

#include "base/parse.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdio.h>

static const struct {
	const char *json, *words;
	bool is_leftover;
} findings[FSCK_N_FINDINGS] = {
#define X(id, json, words, leftover) [FSCK_##id] = {json, words, leftover},
	FSCK_FINDINGS(X)
#undef X
};

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *finding_json(const struct fsck *f, int k)
{
	const struct fsck_tally *t = &f->tallies[k];

	return json_pack("{s:s, s:s, s:o, s:o, s:b, s:O?}", "kind", findings[k].json, "text",
			 findings[k].words, "count", number(t->n), "repaired", number(t->n_repaired),
			 "leftover", findings[k].is_leftover, "examples", t->examples);
}

static json_t *tier_json(const struct fsck_tier *t)
{
	json_t *dirs = json_array();

	for (size_t k = 0; k < t->n_dirs; k++)
		json_array_append_new(dirs, text_json(t->dirs[k]));
	return json_pack("{s:s, s:o, s:b, s:o, s:o}", "name", t->name, "directories", dirs, "present",
			 t->is_there, "frames", number(t->n), "bytes", number(t->bytes));
}

json_t *fsck_json(const struct fsck *f)
{
	json_t *list = json_array();

	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		if (f->tallies[k].n)
			json_array_append_new(list, finding_json(f, k));
	return json_pack("{s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[o, o], s:o?, s:o}",
			 "state_dir", text_json(f->state_dir), "complete", f->is_complete, "clean",
			 f->is_complete && !fsck_n_left(f), "data_checked", f->checks_data,
			 "directories", number(f->n_dirs), "files", number(f->n_files), "symlinks",
			 number(f->n_symlinks), "objects", number(f->n_objects), "bytes",
			 number(f->object_bytes), "fsynced_drafts", number(f->n_promises),
			 "checked_bytes", number(f->checked_bytes), "tiers", tier_json(&f->dram),
			 tier_json(&f->ssd), "copy", *f->copy_path ? text_json(f->copy_path) : NULL,
			 "findings", list);
}

static void print_counts(const struct fsck *f)
{
	char a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES], size[TEXT_BYTES];

	printf("%s: %s objects, %s; %s files, %s directories, %s symlinks\n", f->state_dir,
	       text_count(f->n_objects, a), format_size(f->object_bytes, size, sizeof(size)),
	       text_count(f->n_files, b), text_count(f->n_dirs, c), text_count(f->n_symlinks, d));
	if (f->n_promises)
		printf("fsynced drafts, to be published at the next start: %s\n",
		       text_count(f->n_promises, a));
	for (int k = 0; k < 2; k++) {
		const struct fsck_tier *t = k ? &f->ssd : &f->dram;
		if (!t->is_there)
			printf("%s: not mounted\n", t->name);
		else
			printf("%s: %s frames, %s\n", t->name, text_count(t->n, a),
			       format_size(t->bytes, size, sizeof(size)));
	}
	if (f->checks_data)
		printf("bytes read and compared: %s\n",
		       format_size(f->checked_bytes, size, sizeof(size)));
}

static void print_findings(const struct fsck *f)
{
	static const struct table_column columns[] = {
		{"FOUND", true, false}, {"REPAIRED", true, false}, {"WHAT", false, true}};
	struct table *table = table_create(columns, 3);
	char n[TEXT_BYTES], done[TEXT_BYTES];

	for (int k = 0; table && k < FSCK_N_FINDINGS; k++)
		if (f->tallies[k].n)
			table_row(table, text_count(f->tallies[k].n, n),
				  text_count(f->tallies[k].n_repaired, done), findings[k].words);
	if (table)
		table_print(table, stdout, table_limit(stdout));
	table_destroy(table);
}

static void print_examples(const struct fsck *f)
{
	for (int k = 0; k < FSCK_N_FINDINGS; k++) {
		const json_t *examples = f->tallies[k].examples;
		size_t shown = json_array_size(examples);
		char n[TEXT_BYTES];
		if (!shown)
			continue;
		printf("\n%s:\n", findings[k].words);
		for (size_t i = 0; i < shown; i++) {
			printf("  ");
			for (const char *p = json_string_value(json_array_get(examples, i)); *p; p++)
				putchar((unsigned char)*p < ' ' || *p == 127 ? '?' : *p);
			putchar('\n');
		}
		if (f->tallies[k].n > shown)
			printf("  ... and %s more\n", text_count(f->tallies[k].n - shown, n));
	}
}

static bool has_leftovers_alone(const struct fsck *f)
{
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		if (f->tallies[k].n && !findings[k].is_leftover)
			return false;
	return true;
}

void fsck_print(const struct fsck *f)
{
	bool has_findings = false;

	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		has_findings = has_findings || f->tallies[k].n;
	if (f->is_complete)
		print_counts(f);
	if (has_findings) {
		print_findings(f);
		print_examples(f);
		putchar('\n');
	}
	if (*f->copy_path)
		printf("The catalog as it was before the repair: %s\n", f->copy_path);
	if (!f->is_complete)
		printf("%s: the database cannot be read as a whole, the rest was not checked.\n"
		       "Repair it with: mooncakectl fsck --repair %s\n",
		       f->state_dir, f->state_dir);
	else if (!has_findings)
		printf("%s: clean.\n", f->state_dir);
	else if (!fsck_n_left(f))
		printf("%s: repaired.\n", f->state_dir);
	else if (has_leftovers_alone(f))
		printf("Leftovers alone: the next start of the daemon removes them.\n");
	else if (!f->repairs)
		printf("Repair with: mooncakectl fsck --repair %s\n", f->state_dir);
	else
		printf("Not all of it could be repaired.\n");
}
