/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_change.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "directory_value.h"
#include "directory_wire.h"
#include "mcfs/catalog.h"

/* The value as announced: by one holder, whose slot is filled in when it is sent. */
static int body_encode(enum directory_script script, uint64_t version, const struct directory_value *value,
		       uint8_t *body, size_t *len_out)
{
	if (script != DIRECTORY_ANNOUNCE) {
		*len_out = version ? (size_t)(wire_put_be64(body, version) - body) : 0;
		return 0;
	}
	if (value->kind == DIRECTORY_TOMBSTONE)
		return -EINVAL;
	struct directory_value alone = *value;
	alone.n_holders = 1;
	alone.holders[0] = 0;
	return directory_value_encode(&alone, body, len_out);
}

struct directory_change *directory_change_create(enum directory_script script, const char *dir, const char *name,
						 uint64_t version, const struct directory_value *value,
						 directory_done_fn done, void *arg)
{
	uint8_t field[DIRECTORY_FIELD_MAX], body[DIRECTORY_VALUE_MAX];
	size_t field_len = 0, body_len = 0;
	int rc = directory_field_encode(name, field, &field_len);

	if (!rc)
		rc = body_encode(script, version, value, body, &body_len);
	if (rc)
		field_len = body_len = 0;
	struct directory_change *c = malloc(sizeof(*c) + field_len + body_len);
	if (!c)
		return NULL;
	*c = (struct directory_change){
		.bytes = sizeof(*c) + field_len + body_len,
		.script = script,
		.hash = directory_path_hash(dir),
		.bucket = rc ? 0 : directory_bucket_of(catalog_name_cookie(name)),
		.done = done,
		.arg = arg,
		.is_done = rc,
		.rc = rc,
		.is_copy = value && value->is_copy,
		.field_len = field_len,
		.body_len = body_len,
	};
	memcpy(c->data, field, field_len);
	memcpy(c->data + field_len, body, body_len);
	return c;
}

void directory_change_finish(struct directory_change *c)
{
	c->before.is_unsure = c->n_sent > 1;
	if (c->done)
		c->done(c->arg, c->rc, &c->before);
	directory_value_fini(&c->before);
	free(c);
}

void directory_change_call(struct directory_change *c, const char *prefix, uint16_t slot,
			   char key[DIRECTORY_KEY_BYTES], struct redis_call *call)
{
	uint8_t *body = c->data + c->field_len;

	c->n_sent++;
	*call = (struct redis_call){
		.script = c->script,
		.key = key,
		.key_len = directory_bucket_key(key, prefix, c->hash, c->bucket),
		.n_args = 2,
		.args = {(const char *)c->data, (const char *)body},
		.lens = {c->field_len, c->body_len},
	};
	if (c->script == DIRECTORY_ANNOUNCE) {
		wire_put_be16(body + c->body_len - DIRECTORY_SLOT_BYTES, slot);
		call->args[2] = c->is_copy ? "1" : "0";
		call->lens[2] = 1;
		call->n_args = 3;
	} else if (c->script == DIRECTORY_RETRACT) {
		wire_put_be16(c->slot, slot);
		call->args[1] = (const char *)c->slot;
		call->lens[1] = sizeof(c->slot);
		call->args[2] = (const char *)body; /* an object, or nothing */
		call->lens[2] = c->body_len;
		call->n_args = 3;
	}
}

int directory_change_reply(struct directory_change *c, const struct redis_reply *reply)
{
	if (reply->kind == REDIS_FAILURE && (reply->rc == -ENETDOWN || reply->rc == -EACCES))
		return reply->rc;
	c->is_done = true;
	c->rc = reply->kind == REDIS_FAILURE ? reply->rc : -EIO;
	if (reply->kind != REDIS_ARRAY || reply->n != 2)
		return c->rc;
	struct redis_reply outcome = redis_reply_at(reply, 0), old = redis_reply_at(reply, 1);
	if (outcome.kind != REDIS_INTEGER || (old.kind != REDIS_BYTES && old.kind != REDIS_NIL))
		return c->rc;
	int rc = old.kind == REDIS_BYTES ? directory_value_decode(old.bytes, old.len, &c->before) : 0;
	c->rc = rc ? rc : outcome.integer == DIRECTORY_OUTCOME_STALE ? -ESTALE : 0;
	return rc;
}
