/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sampler.h"

#include "base/cleanup.h"
#include "cli/mount.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>

enum sampler_state {
	IDLE,
	READING,
	DONE,
	STOPPING
};

struct sampler {
	const char *mount;
	int event_fd;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t asked;
	enum sampler_state state; /* lock */
	json_t *status;		  /* lock; of a reading that is DONE */
	int error;		  /* lock; the same */
};

static void finish(struct sampler *s, json_t *status, int error)
{
	s->status = status;
	s->error = error;
	s->state = DONE;
	uint64_t one = 1;
	/* Cannot fail: the count is taken back before the next reading begins. */
	ssize_t n = write(s->event_fd, &one, sizeof(one));
	(void)n;
}

static void *run(void *arg)
{
	struct sampler *s = arg;

	guard_lock(&s->lock);
	while (s->state != STOPPING) {
		if (s->state != READING) {
			pthread_cond_wait(&s->asked, &s->lock);
			continue;
		}
		json_t *status = NULL;
		pthread_mutex_unlock(&s->lock);
		int error = mount_try_status(s->mount, &status);
		pthread_mutex_lock(&s->lock);
		finish(s, status, error);
	}
	return NULL;
}

int sampler_start(const char *mount, struct sampler **out)
{
	struct sampler *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->mount = mount;
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0) {
		int error = errno;
		free(s);
		return -error;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->asked, NULL);
	int error = pthread_create(&s->thread, NULL, run, s);
	if (error) {
		close(s->event_fd);
		free(s);
		return -error;
	}
	*out = s;
	return 0;
}

bool sampler_stop(struct sampler *s)
{
	pthread_mutex_lock(&s->lock);
	bool is_reading = s->state == READING;
	if (!is_reading)
		s->state = STOPPING;
	pthread_cond_signal(&s->asked);
	pthread_mutex_unlock(&s->lock);
	if (is_reading)
		return false;
	pthread_join(s->thread, NULL);
	json_decref(s->status);
	close(s->event_fd);
	pthread_cond_destroy(&s->asked);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return true;
}

bool sampler_ask(struct sampler *s)
{
	guard_lock(&s->lock);
	if (s->state != IDLE)
		return false;
	s->state = READING;
	pthread_cond_signal(&s->asked);
	return true;
}

int sampler_fd(const struct sampler *s)
{
	return s->event_fd;
}

int sampler_take(struct sampler *s, json_t **status_out)
{
	uint64_t count;

	guard_lock(&s->lock);
	if (s->state != DONE)
		return -EAGAIN;
	if (read(s->event_fd, &count, sizeof(count)) < 0)
		return -errno;
	s->state = IDLE;
	if (!s->error)
		*status_out = s->status;
	s->status = NULL;
	return s->error;
}
