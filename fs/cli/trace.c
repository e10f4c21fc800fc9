/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A trace that grows. */
struct loader {
	struct trace trace;
	size_t requests_capacity, ids_capacity;
	struct trace_error *error;
};

__attribute__((format(printf, 2, 3))) static int bad_line(struct loader *l, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(l->error->reason, sizeof(l->error->reason), fmt, args);
	va_end(args);
	return -EINVAL;
}

/* Makes room for n more elements. Returns 0 or -ENOMEM. */
static int reserve(void **array, size_t *capacity, size_t used, size_t n, size_t element_bytes)
{
	if (n <= *capacity - used)
		return 0;
	size_t wanted = *capacity * 2 > used + n ? *capacity * 2 : used + n + 64;
	void *grown = reallocarray(*array, wanted, element_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*capacity = wanted;
	return 0;
}

static int parse_number(struct loader *l, const json_t *object, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(object, key);

	*out = 0;
	if (!value)
		return 0;
	if (!json_is_number(value))
		return bad_line(l, "%s is not a number", key);
	double number = json_number_value(value);
	if (number < 0 || number >= 9223372036854775808.0)
		return bad_line(l, "%s is out of range", key);
	*out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;
	return 0;
}

static int parse_chain(struct loader *l, const json_t *object)
{
	struct trace *t = &l->trace;
	const json_t *chain = json_object_get(object, "hash_ids");

	if (!chain)
		return bad_line(l, "hash_ids is missing");
	if (!json_is_array(chain))
		return bad_line(l, "hash_ids is not an array");
	size_t n = json_array_size(chain);
	int rc = reserve((void **)&t->ids, &l->ids_capacity, t->n_ids, n, sizeof(*t->ids));
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(chain, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0)
			return bad_line(l, "hash_ids[%zu] is not a non-negative integer", i);
		t->ids[t->n_ids + i] = (uint64_t)json_integer_value(id);
	}
	return 0;
}

static int parse_object(struct loader *l, const json_t *object)
{
	struct trace *t = &l->trace;
	struct trace_request request = {.first_id = t->n_ids};
	int rc;

	if (!json_is_object(object))
		return bad_line(l, "not a JSON object");
	if ((rc = parse_number(l, object, "timestamp", &request.timestamp_ms)) ||
	    (rc = parse_number(l, object, "input_length", &request.input_length)) ||
	    (rc = parse_number(l, object, "output_length", &request.output_length)) ||
	    (rc = parse_chain(l, object)) ||
	    (rc = reserve((void **)&t->requests, &l->requests_capacity, t->n_requests, 1,
			  sizeof(*t->requests))))
		return rc;
	request.n_ids = json_array_size(json_object_get(object, "hash_ids"));
	t->n_ids += request.n_ids;
	t->requests[t->n_requests++] = request;
	if (request.n_ids > t->max_chain)
		t->max_chain = request.n_ids;
	return 0;
}

static bool is_blank(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!memchr(" \t\r\n", line[i], 4))
			return false;
	return true;
}

static int parse_line(struct loader *l, const char *line, size_t len)
{
	json_error_t cause;

	if (is_blank(line, len))
		return 0;
	json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, &cause);
	if (!object) {
		if (json_error_code(&cause) == json_error_out_of_memory)
			return -ENOMEM;
		if (cause.column <= 0)
			return bad_line(l, "not valid JSON: %s", cause.text);
		return bad_line(l, "not valid JSON: %s at column %d", cause.text, cause.column);
	}
	int rc = parse_object(l, object);
	json_decref(object);
	return rc;
}

int trace_load(FILE *file, size_t limit, struct trace *out, struct trace_error *error_out)
{
	struct loader l = {.error = error_out};
	char *line = NULL;
	size_t capacity = 0;
	int rc = 0;

	*error_out = (struct trace_error){0};
	while (!rc && (!limit || l.trace.n_requests < limit)) {
		errno = 0;
		ssize_t len = getline(&line, &capacity, file);
		if (len < 0) {
			rc = feof(file) ? 0 : errno ? -errno : -EIO;
			break;
		}
		error_out->line++;
		rc = parse_line(&l, line, (size_t)len);
	}
	free(line);
	if (rc) {
		trace_free(&l.trace);
		if (rc != -EINVAL)
			bad_line(&l, "%s", strerror(-rc));
		return rc;
	}
	*out = l.trace;
	return 0;
}

void trace_free(struct trace *t)
{
	free(t->requests);
	free(t->ids);
	*t = (struct trace){0};
}
