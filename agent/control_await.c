/* control_await: what the training thread and the checkpoint writer wait for. */
#include "agent/control_inner.h"

#include "base/clock.h"

#include <math.h>

/* An agent that has been silent for silent_s counts as dead, and the next generation may begin. If another
 * rank is lost meanwhile, the generation ends without waiting so long: the shortest way is to kill a step
 * of Slurm that has a node which cannot be reached (6.5 s: SRUN_GRACE_MS and SETTLE_S of
 * launcher/slurm/step.c). A third of the 15 s is below both. Heartbeats come twice in that time even in the
 * largest world (launcher/supervise/heartbeat.h). */
enum { CONTACT_SHARE = 3 };

/* The trainer uses the welcome of the next generation from now on. The lock is held. */
static int take_next(struct control *c, struct err *e)
{
	json_decref(c->welcome_body);
	c->welcome_body = c->next;
	c->next = NULL;
	return msg_welcome_read(c->welcome_body, &c->welcome, e);
}

/* Waits until `what` holds, or the agent must leave. The lock is held. */
static int await_news(struct control *c, bool (*what)(const struct control *c), struct err *e)
{
	while (!c->leaving && !what(c))
		pthread_cond_wait(&c->news, &c->lock);
	return c->leaving ? err_set(e, ERR_ABORTED, "%s", c->reason) : 0;
}

static bool is_regrouping(const struct control *c)
{
	return c->regroups;
}

static bool has_next(const struct control *c)
{
	return c->next != NULL;
}

int agent_control_await_next(struct control *c, const struct msg_welcome **welcome, struct err *e)
{
	pthread_mutex_lock(&c->lock);
	int rc = await_news(c, is_regrouping, e);
	c->idle = !rc;
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return -1;
	agent_control_send(c, MSG_IDLE, msg_idle_json(NULL));
	pthread_mutex_lock(&c->lock);
	rc = await_news(c, has_next, e) || take_next(c, e) ? -1 : 0;
	pthread_mutex_unlock(&c->lock);
	*welcome = &c->welcome;
	return rc;
}

bool agent_control_regroups(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	bool regroups = c->regroups;
	pthread_mutex_unlock(&c->lock);
	return regroups;
}

static bool has_endpoints(const struct control *c)
{
	return c->regroups || json_array_size(c->endpoints) >= (size_t)c->awaited;
}

static void send_endpoints(struct control *c, json_t *values, const int *ranks, int n)
{
	struct msg_endpoints m = { .values = values, .wants = json_array() };
	for (int i = 0; i < n; i++)
		json_array_append_new(m.wants, json_integer(ranks[i]));
	agent_control_send(c, MSG_ENDPOINTS, m.wants ? msg_endpoints_json(&m) : NULL);
	json_decref(m.wants);
}

int agent_control_exchange(struct control *c, json_t *values, const int *ranks, int n,
			   json_t **wanted, struct err *e)
{
	if (values)
		send_endpoints(c, values, ranks, n);
	pthread_mutex_lock(&c->lock);
	c->awaited = n;
	int rc = await_news(c, has_endpoints, e);
	if (!rc && c->regroups)
		rc = err_set(e, ERR_ABORTED, "%s", c->reason);
	*wanted = rc ? NULL : json_copy(c->endpoints);
	pthread_mutex_unlock(&c->lock);
	if (!rc && !*wanted)
		rc = err_set(e, ERR_NOMEM, "no memory for the endpoints of %d ranks", n);
	return rc;
}

/* The lock is held. */
static bool is_over(const struct control *c)
{
	return c->leaving || c->given_up;
}

static int report_end(struct err *e)
{
	return err_set(e, ERR_ABORTED, "this rank is ending");
}

int agent_control_await_recorded(struct control *c, int64_t step, double seconds, struct err *e)
{
	double end = clock_s() + seconds;
	struct timespec until = { .tv_sec = (time_t)end,
				  .tv_nsec = (long)(1e9 * (end - floor(end))) };
	int rc = 0;
	pthread_mutex_lock(&c->lock);
	while (c->recorded < step && !is_over(c) && rc == 0)
		rc = pthread_cond_timedwait(&c->news, &c->lock, &until);
	bool recorded = c->recorded >= step, over = is_over(c);
	pthread_mutex_unlock(&c->lock);
	if (recorded)
		return 0;
	return over ? report_end(e)
		    : err_set(e, ERR_IO,
			      "muster has not recorded the metrics up to step %lld within %g s, so "
			      "the checkpoint of that step is not committed; check that muster "
			      "still runs and that its host is up and has free memory",
			      (long long)step, seconds);
}

int agent_control_await_contact(struct control *c, struct err *e)
{
	atomic_fetch_add(&c->awaits_contact, 1);
	agent_control_wake(c);
	pthread_mutex_lock(&c->lock);
	double most = c->welcome.silent_s / CONTACT_SHARE;
	while (clock_s() - c->contact > most && !is_over(c))
		pthread_cond_wait(&c->news, &c->lock);
	bool over = is_over(c);
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_sub(&c->awaits_contact, 1);
	return over ? report_end(e) : 0;
}

void agent_control_give_up(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	c->given_up = true;
	pthread_cond_broadcast(&c->news);
	pthread_mutex_unlock(&c->lock);
}
