/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/peer_node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "peer_node: %s: %m\n", what);
	abort();
}

static void sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	if (ms)
		nanosleep(&ts, NULL);
}

/* ---- handlers ---- */

static void note_names(struct peer_node *n, const char *dir, const char *name, const struct peer_id *from)
{
	pthread_mutex_lock(&n->lock);
	snprintf(n->last_dir, sizeof(n->last_dir), "%s", dir);
	snprintf(n->last_name, sizeof(n->last_name), "%s", name);
	n->last_from = *from;
	pthread_mutex_unlock(&n->lock);
}

static void give_key(struct peer_node *n, struct peer_grant *out)
{
	pthread_mutex_lock(&n->lock);
	if (n->mr)
		out->key_len = peer_key_of(n->e, n->mr, out->key);
	pthread_mutex_unlock(&n->lock);
}

static int on_grant(void *arg, const struct peer_grant_ask *ask, struct peer_grant *out, int64_t deadline_ns)
{
	struct peer_node *n = arg;
	int rc = n->grant_rc;

	n->n_running++;
	note_names(n, ask->dir, ask->name, &ask->from);
	sleep_ms(n->grant_ms);
	if (!rc && !strcmp(ask->name, "absent"))
		rc = -ENOENT;
	if (!rc && ask->version && ask->version != n->version)
		rc = -ESTALE;
	if (!rc) {
		*out = (struct peer_grant){ .version = n->version, .size = n->size, .ttl_ms = n->ttl_ms };
		if (ask->wants_key)
			give_key(n, out);
		n->n_grants++;
		out->grant = (uint64_t)++n->n_granted;
		if (n->gives_crc && n->n_crc) {
			out->n_crc = n->n_crc;
			out->crc = malloc(n->n_crc * sizeof(*out->crc));
			must(out->crc, "memory");
			memcpy(out->crc, n->crc, n->n_crc * sizeof(*out->crc));
		}
	}
	n->n_running--;
	return rc;
}

static void on_done(void *arg)
{
	struct peer_node *n = arg;

	n->n_done++;
}

struct copy {
	struct peer_node *n;
	int fd;
};

static void on_copy_done(void *arg)
{
	struct copy *c = arg;

	on_done(c->n);
	close(c->fd);
	free(c);
}

/* The piece with one byte changed, in a file of its own. */
static void corrupt(struct peer_node *n, uint64_t off, uint64_t bad, struct peer_piece *out)
{
	struct copy *c = malloc(sizeof(*c));
	uint8_t wrong = (uint8_t)~n->bytes[bad];

	must(c, "memory");
	c->n = n;
	c->fd = memfd_create("corrupt", MFD_CLOEXEC);
	must(pwrite(c->fd, n->bytes + off, out->len, 0) == (ssize_t)out->len, "copy");
	must(pwrite(c->fd, &wrong, 1, (off_t)(bad - off)) == 1, "corrupt");
	out->crc = crc32c(0, n->bytes + off, out->len);
	out->has_crc = true;
	out->fd = c->fd;
	out->off = 0;
	out->done = on_copy_done;
	out->arg = c;
}

static int on_read(void *arg, const struct peer_id *from, uint64_t grant, uint64_t off, uint32_t len,
		   struct peer_piece *out, int64_t deadline_ns)
{
	struct peer_node *n = arg;
	uint32_t most = PEER_CHUNK_BYTES - off % PEER_CHUNK_BYTES;
	uint64_t stall_off = n->stall_off;
	uint32_t at_most = n->piece_bytes;
	int64_t bad = n->corrupt_off;
	int rc = n->read_rc;

	n->n_running++;
	n->n_reads++;
	sleep_ms(n->read_ms);
	if (stall_off && off >= stall_off)
		sleep_ms(n->stall_ms);
	if (at_most && at_most < most)
		most = at_most;
	if (len > most)
		len = most;
	if (!rc && (off >= n->size || len > n->size - off))
		rc = -EINVAL;
	if (!rc) {
		n->n_pieces++;
		*out = (struct peer_piece){ .fd = n->fd, .off = off, .len = len, .done = on_done, .arg = n };
		if (n->pieces_have_crc) {
			out->crc = crc32c(0, n->bytes + off, len);
			out->has_crc = true;
		}
		if (n->knows_crc && off % PEER_CHUNK_BYTES == 0 &&
		    (len == PEER_CHUNK_BYTES || off + len == n->size)) {
			out->crc = n->crc[off / PEER_CHUNK_BYTES];
			out->has_crc = true;
		}
		if (bad >= 0 && (uint64_t)bad >= off && (uint64_t)bad < off + len)
			corrupt(n, off, (uint64_t)bad, out);
	}
	n->n_running--;
	return rc;
}

static void on_release(void *arg, const struct peer_id *from, uint64_t grant)
{
	struct peer_node *n = arg;

	n->n_releases++;
	n->n_grants--;
}

static void on_gone(void *arg, const struct peer_id *from)
{
	struct peer_node *n = arg;

	n->n_grants = 0;
	n->n_gone++;
}

static int on_invalidate(void *arg, const struct peer_id *from, const struct peer_invalidation *v, size_t count,
			 int64_t deadline_ns)
{
	struct peer_node *n = arg;

	n->n_running++;
	sleep_ms(n->invalidate_ms);
	n->n_invalidations++;
	n->n_names += (int)count;
	note_names(n, v[count - 1].dir, v[count - 1].name, from);
	n->n_running--;
	return n->invalidate_rc;
}

static uint32_t on_load(void *arg)
{
	return 250;
}

/* ---- begin and end ---- */

static void make_object(struct peer_node *n, uint64_t size)
{
	n->fd = memfd_create("object", MFD_CLOEXEC);
	must(n->fd >= 0 && !ftruncate(n->fd, (off_t)size), "memfd");
	n->size = size;
	n->version = 7;
	n->n_crc = (uint32_t)((size + PEER_CHUNK_BYTES - 1) / PEER_CHUNK_BYTES);
	n->crc = calloc(n->n_crc + 1, sizeof(*n->crc));
	must(n->crc, "memory");
	if (!size)
		return;
	n->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, n->fd, 0);
	must(n->bytes != MAP_FAILED, "mmap");
	for (uint64_t k = 0; k < size / 8; k++)
		((uint64_t *)n->bytes)[k] = (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
	for (uint32_t k = 0; k < n->n_crc; k++) {
		uint64_t off = (uint64_t)k * PEER_CHUNK_BYTES, left = size - off;
		n->crc[k] = crc32c(0, n->bytes + off, left < PEER_CHUNK_BYTES ? left : PEER_CHUNK_BYTES);
	}
}

/* A host of this machine that is not a loopback address wants a key: tests without one stay where they are. */
static const char *default_listen(const struct peer_node_conf *conf, char text[TRANSPORT_ADDRESS_BYTES])
{
	const char *host = conf->key ? getenv("MCFS_TEST_HOST") : NULL;

	snprintf(text, TRANSPORT_ADDRESS_BYTES, "%s:0", host ? host : "127.0.0.1");
	return text;
}

int peer_node_open(struct peer_node *n, const struct peer_node_conf *conf)
{
	char listen[TRANSPORT_ADDRESS_BYTES];

	memset(n, 0, sizeof(*n));
	pthread_mutex_init(&n->lock, NULL);
	n->corrupt_off = -1;
	n->gives_crc = true;
	n->ttl_ms = conf->ttl_ms ? conf->ttl_ms : 10000;
	n->id = (struct peer_id){ conf->node ? conf->node : 1, conf->incarnation ? conf->incarnation : 1 };
	make_object(n, conf->size);
	const struct peer_conf c = {
		.transport = conf->transport,
		.self = n->id,
		.cluster = conf->cluster ? conf->cluster : "test",
		.listen = conf->listen ? conf->listen : default_listen(conf, listen),
		.key = conf->key,
		.n_lanes = conf->n_lanes,
		.ping_ms = conf->ping_ms,
		.max_connections = conf->max_connections,
		.handlers = { .grant = on_grant,
			      .read = on_read,
			      .release = on_release,
			      .gone = on_gone,
			      .invalidate = on_invalidate,
			      .load = on_load,
			      .arg = n },
	};
	int rc = peer_endpoint_create(&c, &n->e);
	if (rc)
		peer_node_close(n);
	else if (conf->gives_keys)
		peer_node_register(n);
	return rc;
}

void peer_node_register(struct peer_node *n)
{
	struct transport_mr *mr;

	if (!peer_endpoint_pulls(n->e) || n->mr)
		return;
	must(!peer_register(n->e, n->bytes, n->size, &mr), "register");
	pthread_mutex_lock(&n->lock);
	n->mr = mr;
	pthread_mutex_unlock(&n->lock);
}

void peer_node_deregister(struct peer_node *n)
{
	pthread_mutex_lock(&n->lock);
	struct transport_mr *mr = n->mr;
	n->mr = NULL;
	pthread_mutex_unlock(&n->lock);
	if (mr)
		peer_deregister(n->e, mr);
}

void peer_node_close(struct peer_node *n)
{
	if (n->e) {
		peer_endpoint_stop(n->e);
		peer_node_deregister(n);
	}
	peer_endpoint_destroy(n->e);
	n->e = NULL;
	if (n->bytes)
		munmap(n->bytes, n->size);
	n->bytes = NULL;
	close(n->fd);
	free(n->crc);
	pthread_mutex_destroy(&n->lock);
}

struct peer *peer_node_meet(struct peer_node *n, const struct peer_node *other)
{
	return peer_get(n->e, &other->id, "other", peer_endpoint_address(other->e));
}
