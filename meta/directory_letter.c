/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_letter: letters between nodes that reach the server but not each other.
 *
 * A slot has a box, P:box:{SLOT}, a stream: its entries are the letters that nobody has dealt with. The thread of
 * who has the slot waits at it in XREAD, so that a letter is there a round trip after it was posted and an empty box
 * costs one command a second. What it has dealt with it acknowledges by a key of the letter's own,
 * P:box:{SLOT}:LETTER, for which the sender looks; then the entry goes.
 *
 * States of a letter: posted; dealt with; acknowledged, or forgotten (its sender's deadline has passed, the server
 * was wiped). A forgotten one may still be dealt with, and any may be twice after a lost connection.
 *
 * Invariants: a letter names the node that it is for, so who gets the slot later throws it away unread; a later
 * incarnation of the same node deals with it. A box has at most LETTERS_MAX of them and is gone BOX_MS after the
 * last; an acknowledgement is gone ACK_MS after it was written.
 *
 * Locks: none. The connection is the thread's.
 *
 * How it fails: the thread tries again, without saying that the server is away: others find that out. A full box or
 * a server without memory takes no letters.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "directory_node.h"
#include "directory_parts.h"
#include "directory_script.h"
#include "directory_wire.h"

#define LETTERS_MAX "64"
#define READ_MAX "16"
#define BOX_MS "30000"
#define ACK_MS "30000"
/* How long an XREAD waits: the empty box's one command. */
#define READ_MS "1000"
#define READ_NS NS_PER_S
#define RETRY_MS 100
/* Between two looks for an acknowledgement. */
#define LOOK_MIN_MS 1
#define LOOK_MAX_MS 80
#define ID_BYTES 8

/* False: it is to end. */
static bool letter_sleep(struct directory *d, int64_t ms)
{
	struct pollfd fd = {.fd = d->stop_fd, .events = POLLIN};

	return poll(&fd, 1, (int)ms) <= 0;
}

/* ---- post ---- */

struct letter {
	uint16_t slot;
	const void *bytes;
	size_t len;
	bool is_posted;
	uint64_t to;
	uint8_t id[ID_BYTES];
	char ack_key[DIRECTORY_KEY_BYTES];
};

struct post_result {
	int rc;
	int64_t integer;
};

static void post_take(void *arg, size_t i, const struct redis_reply *reply)
{
	struct post_result *res = arg;

	res->rc = reply->kind == REDIS_INTEGER ? 0 : -EIO;
	if (reply->kind == REDIS_FAILURE)
		res->rc = reply->rc;
	res->integer = reply->integer;
}

static uint64_t id_number(const uint8_t id[ID_BYTES])
{
	struct wire_reader r = {.p = id, .end = id + ID_BYTES};

	return wire_get_be(&r, ID_BYTES);
}

/* 0; -EAGAIN: the box is full. */
static int letter_put(struct directory *d, struct redis *r, struct letter *l, int64_t deadline_ns)
{
	uint8_t to[ID_BYTES];
	char key[DIRECTORY_KEY_BYTES];
	struct post_result res = {.rc = -EIO};

	wire_put_be64(to, l->to);
	struct redis_call call = {
		.script = DIRECTORY_LETTER,
		.key = key,
		.key_len = directory_box_key(key, d->prefix, l->slot),
		.n_args = 4,
		.args = {(const char *)to, (const char *)l->id, l->bytes, LETTERS_MAX " " BOX_MS},
		.lens = {sizeof(to), sizeof(l->id), l->len, strlen(LETTERS_MAX " " BOX_MS)},
	};
	int rc = redis_run_scripts(r, directory_scripts, &call, 1, deadline_ns, post_take, &res);
	if (rc || res.rc)
		return rc ? rc : res.rc;
	if (!res.integer)
		return -EAGAIN;
	l->is_posted = true;
	return 0;
}

/* -ENOENT: who it is for has the slot no more; -EAGAIN: not yet. */
static int letter_step(struct directory *d, struct redis *r, struct letter *l, int64_t deadline_ns)
{
	struct directory_node n;
	struct redis_reply reply = {.kind = REDIS_NIL};
	int rc = directory_lease_append(d, r, l->slot);

	if (!rc)
		rc = redis_append(r, 2, (const char *[]){"GET", l->ack_key}, NULL);
	if (rc)
		return rc;
	int lease_rc = directory_lease_read(d, r, l->slot, deadline_ns, &n);
	if (!redis_is_connected(r))
		return lease_rc;
	rc = redis_next(r, deadline_ns, &reply);
	if (rc)
		return rc;
	if (reply.kind != REDIS_NIL)
		return reply.kind == REDIS_FAILURE ? reply.rc : 0;
	if (lease_rc)
		return lease_rc;
	if (l->is_posted)
		return n.id == l->to ? -EAGAIN : -ENOENT;
	l->to = n.id;
	rc = letter_put(d, r, l, deadline_ns);
	return rc ? rc : -EAGAIN;
}

static int letter_try(struct directory *d, struct letter *l, int64_t deadline_ns)
{
	int64_t limit_ns = clock_now_ns() + d->io_ns;
	bool is_patient = deadline_ns >= limit_ns;
	struct redis *r;
	uint64_t epoch;

	if (is_patient)
		deadline_ns = limit_ns;
	int rc = directory_pool_take(d, deadline_ns, is_patient, &r, &epoch);
	if (rc)
		return rc;
	rc = letter_step(d, r, l, deadline_ns);
	if (!redis_is_connected(r) && (rc != -ETIMEDOUT || is_patient))
		directory_health_down(d, rc, redis_text(r));
	directory_pool_put(d, r, epoch);
	return rc;
}

int directory_post(struct directory *d, uint16_t slot, const void *bytes, size_t len, int64_t deadline_ns)
{
	struct letter l = {.slot = slot, .bytes = bytes, .len = len};
	int64_t wait_ms = LOOK_MIN_MS;

	if (slot >= DIRECTORY_SLOTS)
		return -ENOENT;
	if (!len || len > DIRECTORY_LETTER_MAX)
		return -EINVAL;
	if (getrandom(l.id, sizeof(l.id), 0) != (ssize_t)sizeof(l.id))
		return -EIO;
	directory_ack_key(l.ack_key, d->prefix, slot, id_number(l.id));
	for (;;) {
		int rc = letter_try(d, &l, deadline_ns);
		if (rc != -EAGAIN)
			return rc;
		int64_t left_ms = (deadline_ns - clock_now_ns()) / NS_PER_MS;
		if (left_ms <= 0)
			return -ETIMEDOUT;
		if (!letter_sleep(d, wait_ms < left_ms ? wait_ms : left_ms))
			return -ECANCELED;
		wait_ms = wait_ms * 2 < LOOK_MAX_MS ? wait_ms * 2 : LOOK_MAX_MS;
	}
}

/* ---- deal with what was posted ---- */

struct box {
	struct directory *d;
	struct redis *redis;
	unsigned slot;
	char key[DIRECTORY_KEY_BYTES];
	size_t n_owed; /* replies to what was appended */
};

/* The fields of an entry, in the order in which the script writes them: "t", to, "i", id, "b", bytes. */
static bool letter_fields(const struct redis_reply *entry, struct redis_reply out[3])
{
	static const size_t lens[3] = {ID_BYTES, ID_BYTES, 0};

	struct redis_reply fields = entry->n == 2 ? redis_reply_at(entry, 1) : (struct redis_reply){.n = 0};
	if (fields.kind != REDIS_ARRAY || fields.n != 6)
		return false;
	for (size_t i = 0; i < 3; i++) {
		out[i] = redis_reply_at(&fields, 2 * i + 1);
		if (out[i].kind != REDIS_BYTES || (lens[i] && out[i].len != lens[i]))
			return false;
	}
	return true;
}

static int letter_handle(struct box *b, const struct redis_reply *entry)
{
	struct directory *d = b->d;
	struct redis_reply f[3];
	char ack[DIRECTORY_KEY_BYTES];
	int rc = 0;

	if (entry->kind != REDIS_ARRAY || !entry->n)
		return -EIO;
	struct redis_reply id = redis_reply_at(entry, 0);
	if (id.kind != REDIS_BYTES)
		return -EIO;
	bool is_sound = letter_fields(entry, f);
	if (!is_sound) {
		directory_damage_log(d, "a letter");
	} else if (id_number(f[0].bytes) == d->conf.self.id) {
		atomic_fetch_add(&d->n_letters, 1);
		d->conf.on_letter(d->conf.arg, f[2].bytes, f[2].len);
		directory_ack_key(ack, d->prefix, b->slot, id_number(f[1].bytes));
		rc = redis_append(b->redis, 5, (const char *[]){"SET", ack, "1", "PX", ACK_MS}, NULL);
		b->n_owed += !rc;
	} else if (directory_slot(d) != (int)b->slot || !directory_lease_holds(d)) {
		return 0; /* it may be for who has the slot now */
	}
	if (!rc) /* else the connection is gone, and the reply with it */
		rc = redis_append(b->redis, 3, (const char *[]){"XDEL", b->key, (const char *)id.bytes}, NULL);
	b->n_owed += !rc;
	return rc;
}

/* What XREAD says: of each of its streams, of which there is one, the key and the entries. */
static int letters_handle(struct box *b, const struct redis_reply *reply)
{
	if (reply->kind == REDIS_NIL)
		return 0;
	if (reply->kind != REDIS_ARRAY || reply->n != 1)
		return -EIO;
	struct redis_reply stream = redis_reply_at(reply, 0);
	if (stream.kind != REDIS_ARRAY || stream.n != 2)
		return -EIO;
	struct redis_reply entries = redis_reply_at(&stream, 1);
	int rc = 0;
	for (size_t i = 0; !rc && entries.kind == REDIS_ARRAY && i < entries.n; i++) {
		struct redis_reply entry = redis_reply_at(&entries, i);
		rc = letter_handle(b, &entry);
	}
	return rc;
}

static int box_empty(struct box *b)
{
	struct directory *d = b->d;
	struct redis_reply reply;
	int rc = 0;

	if (!redis_is_idle(b->redis))
		rc = directory_connect(d, b->redis, clock_now_ns() + d->io_ns);
	if (rc)
		return rc;
	b->slot = (unsigned)directory_slot(d);
	directory_box_key(b->key, d->prefix, b->slot);
	const char *argv[] = {"XREAD", "COUNT", READ_MAX, "BLOCK", READ_MS, "STREAMS", b->key, "0"};
	rc = redis_run(b->redis, sizeof(argv) / sizeof(*argv), argv, NULL,
		       clock_now_ns() + READ_NS + d->io_ns, &reply);
	b->n_owed = 0;
	if (!rc)
		rc = letters_handle(b, &reply);
	int64_t deadline_ns = clock_now_ns() + d->io_ns;
	for (; !rc && b->n_owed; b->n_owed--) {
		rc = redis_next(b->redis, deadline_ns, &reply);
		if (!rc && reply.kind == REDIS_FAILURE)
			rc = reply.rc;
	}
	return rc;
}

static void *letters_main(void *arg)
{
	struct directory *d = arg;
	struct box b = {.d = d, .redis = d->letters.redis};
	int rc = 0, rc_before = 0;

	do {
		if (!directory_can_send(d)) {
			rc = -EAGAIN;
			continue;
		}
		rc = box_empty(&b);
		if (rc && rc != -ECANCELED && rc != rc_before)
			log_warn("directory %s: letters for slot %u: %s", d->where, b.slot, redis_text(b.redis));
		rc_before = rc;
		if (rc)
			redis_disconnect(b.redis);
	} while (letter_sleep(d, rc ? RETRY_MS : 0));
	redis_destroy(b.redis);
	return NULL;
}

int directory_letters_start(struct directory *d)
{
	if (!d->conf.on_letter)
		return 0;
	d->letters.redis = redis_create(d->stop_fd);
	if (!d->letters.redis)
		return -ENOMEM;
	int rc = -pthread_create(&d->letters.thread, NULL, letters_main, d);
	if (rc)
		redis_destroy(d->letters.redis);
	d->letters.is_started = !rc;
	return rc;
}

void directory_letters_stop(struct directory *d)
{
	if (d->letters.is_started)
		pthread_join(d->letters.thread, NULL);
}
