/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_health: whether the server answers.
 *
 * States: away (also before the first answer) and up. Any thread finds it away; the lease's thread alone, which
 * then probes it, finds it up again. While it is away, callers get the reason at once instead of waiting.
 *
 * Up, it may take no changes all the same, for want of memory: refusal says so until a beat finds that it does.
 *
 * Lock: health.lock guards error, text, refusal and host; is_up may be read without.
 *
 * How it fails: it does not. Each change of state is one line in the log.
 */
#include "directory_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

#define DAMAGE_LOG_NS (10 * NS_PER_S)

void directory_health_init(struct directory *d)
{
	struct directory_health *h = &d->health;

	pthread_mutex_init(&h->lock, NULL);
	h->error = ENETDOWN;
	snprintf(h->text, sizeof(h->text), "%s has not answered yet", d->where);
}

void directory_health_fini(struct directory *d)
{
	pthread_mutex_destroy(&d->health.lock);
}

void directory_health_up(struct directory *d, const struct redis *r)
{
	struct directory_health *h = &d->health;
	char host[sizeof(h->host)];

	if (redis_peer_host(r, host, sizeof(host)))
		*host = '\0';
	pthread_mutex_lock(&h->lock);
	bool was_up = atomic_load(&h->is_up);
	if (*host)
		memcpy(h->host, host, sizeof(host));
	h->error = 0;
	*h->text = '\0';
	atomic_store(&h->is_up, true);
	pthread_mutex_unlock(&h->lock);
	if (was_up)
		return;
	log_info("directory %s: it answers", d->where);
	directory_queue_wake(d);
}

static bool means_away(int rc)
{
	return rc == -ENETDOWN || rc == -ETIMEDOUT || rc == -EACCES;
}

void directory_health_down(struct directory *d, int rc, const char *text)
{
	struct directory_health *h = &d->health;
	char words[sizeof(h->text)];

	if (!means_away(rc))
		return;
	snprintf(words, sizeof(words), "%s: %.190s", d->where, text);
	pthread_mutex_lock(&h->lock);
	bool was_up = atomic_load(&h->is_up);
	/* A first failure and a new kind of failure are news. */
	bool is_news = h->error != -rc || strcmp(h->text, words);
	h->error = -rc;
	memcpy(h->text, words, sizeof(words));
	atomic_store(&h->is_up, false);
	pthread_mutex_unlock(&h->lock);
	if (is_news)
		log_warn("directory %s: %s%s", d->where, rc == -EACCES ? "refuses us: " : "is away: ", text);
	if (!was_up)
		return;
	directory_pool_drop(d);
	directory_lease_probe(d);
}

void directory_health_refuses(struct directory *d, const char *text)
{
	const char *place = strstr(text, ". script: "); /* in which of our scripts helps nobody */
	size_t len = place ? (size_t)(place - text) : strlen(text);
	guard_lock(&d->health.lock);

	snprintf(d->health.refusal, sizeof(d->health.refusal), "%.*s", (int)len, text);
}

int directory_health_check(struct directory *d)
{
	if (atomic_load_explicit(&d->health.is_up, memory_order_relaxed))
		return 0;
	guard_lock(&d->health.lock);
	return d->health.error == EACCES ? -EACCES : -ENETDOWN;
}

void directory_damage_log(struct directory *d, const char *what)
{
	int64_t now = clock_now_ns(), logged = atomic_load(&d->damage_logged_ns);

	if ((!logged || now - logged >= DAMAGE_LOG_NS) &&
	    atomic_compare_exchange_strong(&d->damage_logged_ns, &logged, now))
		log_error("directory %s: what it says of %s makes no sense", d->where, what);
}
