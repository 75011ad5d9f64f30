#include "agent/times.h"

#include "base/messages.h"

#include <math.h>

/* Seconds to the first message, and from one to the next: the longer of 5 s and 10 ms per rank of the
 * world. */
static const double first_s = 0.5, times_s = 5, times_rank_s = 0.01;

void agent_times_init(struct times *t, int world, double now)
{
	pthread_mutex_init(&t->lock, NULL);
	t->most = fmax(times_s, world * times_rank_s);
	t->every = first_s;
	t->sent = now;
}

void agent_times_fini(struct times *t)
{
	pthread_mutex_destroy(&t->lock);
}

void agent_times_begin(struct times *t, double now)
{
	pthread_mutex_lock(&t->lock);
	t->ready = true;
	t->news = t->owed = false;
	t->every = first_s;
	t->sent = now;
	pthread_mutex_unlock(&t->lock);
}

void agent_times_end(struct times *t)
{
	pthread_mutex_lock(&t->lock);
	t->ready = false;
	pthread_mutex_unlock(&t->lock);
}

void agent_times_set(struct times *t, const struct train_times *sums)
{
	pthread_mutex_lock(&t->lock);
	t->sums = *sums;
	t->news = true;
	pthread_mutex_unlock(&t->lock);
}

json_t *agent_times_json(const struct train_times *sums)
{
	json_t *us = time_reported_json(sums->us);
	json_t *m = us ? msg_times_json(&(struct msg_times){
				 .step = sums->step, .peak_bytes = sums->peak_bytes, .us = us })
		       : NULL;
	json_decref(us);
	return m;
}

/* Whether there is news and the last message is at least `least` seconds old. The lock is held. */
static bool take(struct times *t, double now, double least)
{
	if (!t->ready || !t->news || now - t->sent < least)
		return false;
	t->news = false;
	t->sent = now;
	return true;
}

json_t *agent_times_next(struct times *t, double now, double least)
{
	pthread_mutex_lock(&t->lock);
	bool news = take(t, now, least) || (t->ready && t->owed && least <= 0);
	struct train_times sums = t->sums;
	t->owed &= !news;
	pthread_mutex_unlock(&t->lock);
	return news ? agent_times_json(&sums) : NULL;
}

bool agent_times_due(struct times *t, double now, struct train_times *sums)
{
	pthread_mutex_lock(&t->lock);
	bool due = take(t, now, t->every);
	if (due) {
		t->every = fmin(2 * t->every, t->most);
		t->owed = true;
		*sums = t->sums;
	}
	pthread_mutex_unlock(&t->lock);
	return due;
}

bool agent_times_owed(struct times *t, struct train_times *sums)
{
	pthread_mutex_lock(&t->lock);
	bool owed = t->ready && t->owed;
	*sums = t->sums;
	pthread_mutex_unlock(&t->lock);
	return owed;
}

void agent_times_settle(struct times *t)
{
	pthread_mutex_lock(&t->lock);
	t->owed = false;
	pthread_mutex_unlock(&t->lock);
}
