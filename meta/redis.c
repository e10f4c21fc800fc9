/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis: a connection on the synchronous API of hiredis (0.14 and 1.x), of which it takes connecting and reading
 * replies. Commands are written here, since hiredis before 1.1 raises SIGPIPE and waits without a deadline.
 *
 * States: not connected; connected with n_owed replies to come. Any error of the connection ends it.
 *
 * Invariants: what is in out[sent..used) has been queued and not been written; n_owed counts what was queued. The
 * socket is read after poll said that it can be, so nothing blocks longer than its deadline.
 *
 * Locks: none.
 *
 * How it fails: the texts of the server begin with a word for the kind of error, which text_errno makes an errno
 * of (https://redis.io/docs/latest/develop/reference/protocol-spec/, simple errors).
 */
#include "redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/monotonic.h"

#define SHA_BYTES 41
#define READ_GUARD_S 1 /* for a read that poll promised would not wait */
#define OUT_KEEP_BYTES (1u << 20)

struct redis {
	redisContext *context; /* NULL: not connected */
	redisReply *reply;
	int stop_fd;
	size_t n_owed;
	char *out;
	size_t used, sent, size;
	char shas[REDIS_SCRIPTS_MAX][SHA_BYTES]; /* "": not loaded by this connection */
	char text[192];
};

/* ---- errors ---- */

static int text_errno(const char *text)
{
	static const struct {
		const char *start;
		int rc;
	} rows[] = {
		{"OOM ", -ENOSPC},
		{"MISCONF ", -ENOSPC},
		{"NOAUTH ", -EACCES},
		{"WRONGPASS ", -EACCES},
		{"NOPERM ", -EACCES},
		{"ERR invalid password", -EACCES},
		{"ERR Client sent AUTH", -EACCES},
		{"ERR AUTH ", -EACCES},
		{"DENIED ", -EACCES},
		{"LOADING ", -ENETDOWN},
		{"BUSY ", -ENETDOWN},
		{"READONLY ", -ENETDOWN},
		{"MASTERDOWN ", -ENETDOWN},
		{"CLUSTERDOWN ", -ENETDOWN},
		{"NOREPLICAS ", -ENETDOWN},
		{"ERR max number of clients", -ENETDOWN},
		{"NOSCRIPT ", -ENOEXEC},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strncmp(text, rows[i].start, strlen(rows[i].start)))
			return rows[i].rc;
	return -EIO;
}

static int context_errno(const redisContext *c, int error)
{
	switch (c->err) {
	case REDIS_ERR_IO:
		if (error == EAGAIN || error == ETIMEDOUT)
			return -ETIMEDOUT;
		return error == ENOMEM ? -ENOMEM : -ENETDOWN;
	case REDIS_ERR_PROTOCOL:
		return -EIO;
	case REDIS_ERR_OOM:
		return -ENOMEM;
	default:
		return -ENETDOWN;
	}
}

static int redis_fail(struct redis *r, int rc, const char *text)
{
	snprintf(r->text, sizeof(r->text), "%s", text);
	redis_disconnect(r);
	return rc;
}

static int redis_fail_errno(struct redis *r, int rc, const char *what, int error)
{
	char text[128];

	snprintf(text, sizeof(text), "%s: %s", what, strerror(error));
	return redis_fail(r, rc, text);
}

static int context_fail(struct redis *r)
{
	int error = errno;

	return redis_fail(r, context_errno(r->context, error), r->context->errstr);
}

const char *redis_text(const struct redis *r)
{
	return r->text;
}

/* ---- waiting ---- */

/* Until the socket is ready for one of events. */
static int redis_wait(struct redis *r, short events, int64_t deadline_ns)
{
	struct pollfd fds[2] = {{.fd = r->context->fd, .events = events}, {.fd = r->stop_fd, .events = POLLIN}};

	for (;;) {
		int64_t left = deadline_ns - clock_now_ns();
		if (left <= 0)
			return redis_fail(r, -ETIMEDOUT, "no answer in time");
		struct timespec ts = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
		int n = ppoll(fds, r->stop_fd < 0 ? 1 : 2, &ts, NULL);
		if (n < 0 && errno != EINTR)
			return redis_fail_errno(r, -EIO, "poll", errno);
		if (n > 0 && r->stop_fd >= 0 && fds[1].revents)
			return redis_fail(r, -ECANCELED, "stopped");
		if (n > 0 && fds[0].revents)
			return 0;
	}
}

/* ---- connecting ---- */

struct redis *redis_create(int stop_fd)
{
	struct redis *r = calloc(1, sizeof(*r));

	if (r)
		r->stop_fd = stop_fd;
	return r;
}

void redis_destroy(struct redis *r)
{
	if (!r)
		return;
	redis_disconnect(r);
	free(r->out);
	free(r);
}

void redis_set_stop_fd(struct redis *r, int stop_fd)
{
	r->stop_fd = stop_fd;
}

static void reply_drop(struct redis *r)
{
	if (r->reply)
		freeReplyObject(r->reply);
	r->reply = NULL;
}

void redis_disconnect(struct redis *r)
{
	reply_drop(r);
	if (r->context)
		redisFree(r->context);
	r->context = NULL;
	r->n_owed = r->used = r->sent = 0;
	memset(r->shas, 0, sizeof(r->shas));
}

bool redis_is_connected(const struct redis *r)
{
	return r->context;
}

bool redis_is_idle(const struct redis *r)
{
	if (!r->context || r->n_owed)
		return false;
	/* Nothing is to be said unasked but that it ends. */
	struct pollfd fd = {.fd = r->context->fd, .events = POLLIN | POLLRDHUP};
	return !poll(&fd, 1, 0);
}

static int redis_login(struct redis *r, const struct redis_address *a, int64_t deadline_ns)
{
	struct redis_reply reply;
	char db[16];
	size_t n = 0;
	int rc = 0;

	snprintf(db, sizeof(db), "%u", a->db);
	if (*a->user)
		rc = redis_append(r, 3, (const char *[]){"AUTH", a->user, a->password}, NULL), n++;
	else if (*a->password)
		rc = redis_append(r, 2, (const char *[]){"AUTH", a->password}, NULL), n++;
	if (!rc && a->db)
		rc = redis_append(r, 2, (const char *[]){"SELECT", db}, NULL), n++;
	for (size_t i = 0; !rc && i < n; i++) {
		rc = redis_next(r, deadline_ns, &reply);
		if (!rc && reply.kind == REDIS_FAILURE)
			rc = redis_fail(r, reply.rc, (const char *)reply.bytes);
	}
	return rc;
}

int redis_connect(struct redis *r, const struct redis_address *a, const char *host, int64_t deadline_ns)
{
	int64_t left = deadline_ns - clock_now_ns();

	redis_disconnect(r);
	if (left <= 0)
		return redis_fail(r, -ETIMEDOUT, "no time left to connect");
	struct timeval tv = {.tv_sec = left / NS_PER_S, .tv_usec = left % NS_PER_S / 1000};
	if (!tv.tv_sec && !tv.tv_usec)
		tv.tv_usec = 1;
	r->context = redisConnectWithTimeout(host ? host : a->host, a->port, tv);
	if (!r->context)
		return redis_fail(r, -ENOMEM, "no memory to connect");
	if (r->context->err)
		return context_fail(r);
	if (redisSetTimeout(r->context, (struct timeval){.tv_sec = READ_GUARD_S}) != REDIS_OK)
		return context_fail(r);
	return redis_login(r, a, deadline_ns);
}

int redis_peer_host(const struct redis *r, char *host, size_t host_bytes)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	if (!r->context || getpeername(r->context->fd, (struct sockaddr *)&peer, &len))
		return -ENETDOWN;
	return getnameinfo((struct sockaddr *)&peer, len, host, (socklen_t)host_bytes, NULL, 0, NI_NUMERICHOST) ?
		       -ENETDOWN :
		       0;
}

/* ---- commands ---- */

static int out_reserve(struct redis *r, size_t more)
{
	size_t size = r->size ? r->size : 4096;

	if (r->sent == r->used)
		r->sent = r->used = 0;
	while (size < r->used + more)
		size *= 2;
	if (size == r->size)
		return 0;
	char *out = realloc(r->out, size);
	if (!out)
		return redis_fail(r, -ENOMEM, "no memory for a command");
	r->out = out;
	r->size = size;
	return 0;
}

static size_t decimal_put(char *out, char mark, size_t v)
{
	char digits[24];
	size_t n = 0, at = 0;

	do
		digits[n++] = (char)('0' + v % 10);
	while (v /= 10);
	out[at++] = mark;
	while (n)
		out[at++] = digits[--n];
	out[at++] = '\r';
	out[at++] = '\n';
	return at;
}

int redis_append(struct redis *r, size_t argc, const char *const *argv, const size_t *lens)
{
	size_t bytes = 32;

	if (!r->context)
		return -ENETDOWN;
	for (size_t i = 0; i < argc; i++)
		bytes += 32 + (lens ? lens[i] : strlen(argv[i]));
	int rc = out_reserve(r, bytes);
	if (rc)
		return rc;
	r->used += decimal_put(r->out + r->used, '*', argc);
	for (size_t i = 0; i < argc; i++) {
		size_t len = lens ? lens[i] : strlen(argv[i]);
		r->used += decimal_put(r->out + r->used, '$', len);
		memcpy(r->out + r->used, argv[i], len);
		memcpy(r->out + r->used + len, "\r\n", 2);
		r->used += len + 2;
	}
	r->n_owed++;
	return 0;
}

/* Sends what the socket takes without waiting. */
static int out_send(struct redis *r)
{
	while (r->sent < r->used) {
		ssize_t n = send(r->context->fd, r->out + r->sent, r->used - r->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return redis_fail_errno(r, -ENETDOWN, "send", errno);
		r->sent += (size_t)n;
	}
	if (r->size > OUT_KEEP_BYTES) {
		free(r->out);
		r->out = NULL;
		r->size = r->used = r->sent = 0;
	}
	return 0;
}

static struct redis_reply reply_of(const redisReply *raw)
{
	struct redis_reply reply = {.kind = REDIS_NIL, .inner = raw};

	switch (raw->type) {
	case REDIS_REPLY_STRING:
	case REDIS_REPLY_STATUS:
		reply.kind = REDIS_BYTES;
		break;
	case REDIS_REPLY_ERROR:
		reply.kind = REDIS_FAILURE;
		reply.rc = text_errno(raw->str);
		break;
	case REDIS_REPLY_INTEGER:
		reply.kind = REDIS_INTEGER;
		reply.integer = raw->integer;
		return reply;
	case REDIS_REPLY_ARRAY:
		reply.kind = REDIS_ARRAY;
		reply.n = raw->elements;
		return reply;
	default:
		return reply;
	}
	reply.bytes = (const uint8_t *)raw->str;
	reply.len = (size_t)raw->len;
	return reply;
}

struct redis_reply redis_reply_at(const struct redis_reply *array, size_t i)
{
	return reply_of(((const redisReply *)array->inner)->element[i]);
}

int redis_next(struct redis *r, int64_t deadline_ns, struct redis_reply *reply_out)
{
	void *raw = NULL;
	int rc;

	reply_drop(r);
	if (!r->context)
		return -ENETDOWN;
	if (!r->n_owed)
		return redis_fail(r, -EIO, "waits for a reply that nothing asked for");
	for (;;) {
		rc = out_send(r);
		if (rc)
			return rc;
		if (redisGetReplyFromReader(r->context, &raw) != REDIS_OK)
			return context_fail(r);
		if (raw)
			break;
		rc = redis_wait(r, r->sent < r->used ? POLLIN | POLLOUT : POLLIN, deadline_ns);
		if (rc)
			return rc;
		struct pollfd readable = {.fd = r->context->fd, .events = POLLIN};
		if (poll(&readable, 1, 0) > 0 && redisBufferRead(r->context) != REDIS_OK)
			return context_fail(r);
	}
	r->n_owed--;
	r->reply = raw;
	*reply_out = reply_of(r->reply);
	if (reply_out->kind == REDIS_FAILURE)
		snprintf(r->text, sizeof(r->text), "%s", (const char *)reply_out->bytes);
	return 0;
}

int redis_run(struct redis *r, size_t argc, const char *const *argv, const size_t *lens, int64_t deadline_ns,
	      struct redis_reply *reply_out)
{
	int rc = redis_append(r, argc, argv, lens);

	if (!rc)
		rc = redis_next(r, deadline_ns, reply_out);
	return !rc && reply_out->kind == REDIS_FAILURE ? reply_out->rc : rc;
}

/* ---- scripts ---- */

static int script_load(struct redis *r, const char *const *texts, unsigned script, int64_t deadline_ns)
{
	struct redis_reply reply = {.kind = REDIS_NIL};
	int rc = redis_run(r, 3, (const char *[]){"SCRIPT", "LOAD", texts[script]}, NULL, deadline_ns, &reply);

	if (rc)
		return rc;
	if (reply.kind != REDIS_BYTES || reply.len != SHA_BYTES - 1)
		return redis_fail(r, -EIO, "SCRIPT LOAD answered no digest");
	memcpy(r->shas[script], reply.bytes, SHA_BYTES);
	return 0;
}

/* Those among the calls that are asked for and not known. */
static int scripts_load(struct redis *r, const char *const *texts, const struct redis_call *calls, size_t n,
			int64_t deadline_ns)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++)
		if (!*r->shas[calls[i].script])
			rc = script_load(r, texts, calls[i].script, deadline_ns);
	return rc;
}

static int call_append(struct redis *r, const struct redis_call *call)
{
	const char *argv[4 + REDIS_CALL_ARGS_MAX] = {"EVALSHA", r->shas[call->script], "1", call->key};
	size_t lens[4 + REDIS_CALL_ARGS_MAX] = {strlen("EVALSHA"), SHA_BYTES - 1, 1, call->key_len};

	for (size_t i = 0; i < call->n_args; i++) {
		argv[4 + i] = call->args[i];
		lens[4 + i] = call->lens[i];
	}
	return redis_append(r, 4 + call->n_args, argv, lens);
}

int redis_run_scripts(struct redis *r, const char *const *texts, const struct redis_call *calls, size_t n,
		      int64_t deadline_ns, redis_reply_fn fn, void *arg)
{
	struct redis_reply reply;
	size_t n_forgotten = 0;

	if (!n)
		return 0;
	int rc = scripts_load(r, texts, calls, n, deadline_ns);
	for (size_t i = 0; !rc && i < n; i++)
		rc = call_append(r, &calls[i]);
	size_t *forgotten = rc ? NULL : malloc(n * sizeof(*forgotten));
	if (!rc && !forgotten)
		return redis_fail(r, -ENOMEM, "no memory to run scripts");
	for (size_t i = 0; !rc && i < n; i++) {
		rc = redis_next(r, deadline_ns, &reply);
		if (!rc && reply.kind == REDIS_FAILURE && reply.rc == -ENOEXEC)
			forgotten[n_forgotten++] = i;
		else if (!rc)
			fn(arg, i, &reply);
	}
	if (!rc && n_forgotten)
		memset(r->shas, 0, sizeof(r->shas));
	for (size_t i = 0; !rc && i < n_forgotten; i++) {
		const struct redis_call *call = &calls[forgotten[i]];
		rc = scripts_load(r, texts, call, 1, deadline_ns);
		if (!rc)
			rc = call_append(r, call);
		if (!rc)
			rc = redis_next(r, deadline_ns, &reply);
		if (!rc)
			fn(arg, forgotten[i], &reply);
	}
	free(forgotten);
	return rc;
}
