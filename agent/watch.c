#include "agent/watch.h"

#include "agent/health/health.h"
#include "agent/health/others.h"
#include "agent/links.h"
#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_S   1.0
#define OTHERS_S   1.0 /* over which the CPU time of other processes is compared */
#define PATIENCE_S 1.0

/* A message is sent again if a share has changed by this much, or a clock by this part of it. */
#define SHARE_STEP 0.2
#define CLOCK_STEP 0.1

struct agent_watch {
	struct watch_options o;
	char gpu[64], disk[4096];
	pthread_t thread;
	pthread_mutex_t lock; /* closing */
	pthread_cond_t news;
	bool closing;
	/* of the last message */
	struct health_finding sent[HEALTH_FINDINGS];
	int n_sent;
	double clock, gpu_clock;
};

/* True: the watch is closing. */
static bool wait_until(struct agent_watch *w, double until)
{
	struct timespec at = { .tv_sec = (time_t)until,
			       .tv_nsec = (long)(1e9 * (until - floor(until))) };
	int rc = 0;
	pthread_mutex_lock(&w->lock);
	while (!w->closing && rc == 0)
		rc = pthread_cond_timedwait(&w->news, &w->lock, &at);
	bool closing = w->closing;
	pthread_mutex_unlock(&w->lock);
	return closing;
}

static bool has_changed(const struct agent_watch *w, const struct health_finding *f, int n,
			double clock, double gpu_clock)
{
	if (n != w->n_sent || fabs(clock - w->clock) > CLOCK_STEP * w->clock ||
	    fabs(gpu_clock - w->gpu_clock) > CLOCK_STEP * w->gpu_clock)
		return true;
	for (int i = 0; i < n; i++)
		if (f[i].alarm || strcmp(f[i].kind, w->sent[i].kind) ||
		    strcmp(f[i].object, w->sent[i].object) ||
		    fabs(f[i].share - w->sent[i].share) > SHARE_STEP)
			return true;
	return false;
}

static bool has_alarm(const struct health_finding *f, int n)
{
	int i = 0;
	while (i < n && !f[i].alarm)
		i++;
	return i < n;
}

static json_t *findings_json(const struct health_finding *f, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list,
				      msg_finding_json(&(struct msg_finding){ .kind = f[i].kind,
									      .share = f[i].share,
									      .alarm = f[i].alarm,
									      .node = f[i].node,
									      .object = f[i].object,
									      .text = f[i].text }));
	return list;
}

static void send_health(struct agent_watch *w, const struct health *h,
			const struct health_finding *f, int n)
{
	double clock = health_clock(h), gpu_clock = health_gpu_clock(h);
	if (!has_changed(w, f, n, clock, gpu_clock))
		return;
	json_t *findings = findings_json(f, n);
	if (!findings)
		return;
	memcpy(w->sent, f, (size_t)n * sizeof *f);
	w->n_sent = n;
	w->clock = clock;
	w->gpu_clock = gpu_clock;
	json_t *body =
		msg_health_json(&(struct msg_health){ .step = agent_control_step(w->o.control),
						      .clock = clock,
						      .gpu_clock = gpu_clock,
						      .findings = findings });
	json_decref(findings);
	/* A device with a defect may take this process with it. */
	if (has_alarm(f, n))
		agent_control_report_at_once(w->o.control, MSG_HEALTH, body);
	else
		agent_control_report_later(w->o.control, MSG_HEALTH, body);
}

static void send_links(struct agent_watch *w, struct links *l)
{
	enum { MOST = 1024 };
	struct comm_link *sums = malloc(MOST * sizeof *sums);
	json_t *list = sums && l ? agent_links_judge(l, clock_s(), sums,
						     comm_links(w->o.world, sums, MOST))
				 : NULL;
	if (list)
		agent_control_report_later(w->o.control, MSG_LINKS,
					   msg_links_json(&(struct msg_links){ .links = list }));
	json_decref(list);
	free(sums);
}

/* Finds out who has the cores that this rank waits for. True: the watch is closing. */
static bool look_at_others(struct agent_watch *w, struct health *h, struct health_finding *f, int n)
{
	char text[160] = "";
	struct health_user u;
	double begun = clock_s();
	struct health_others *o = health_others_begin(NULL, (int)getpid());
	bool closing = wait_until(w, begun + OTHERS_S);
	double now = clock_s();
	if (health_others_end(o, health_cpus(h), now - begun, &u))
		snprintf(text, sizeof text, "process %s, pid %d, uses %.0f %% of core %d", u.name,
			 u.pid, 100 * fmin(u.share, 1), u.cpu);
	health_note_others(h, now, text, f, n);
	return closing;
}

/* True: the watch is closing. */
static bool end_window(struct agent_watch *w, struct health *h)
{
	struct health_finding f[HEALTH_FINDINGS];
	double now = clock_s();
	/* The thread may have been left behind in a driver, and the control be closed since
	 * then. */
	if (wait_until(w, 0))
		return true;
	health_set_thread(h, agent_control_trainer(w->o.control));
	int n = health_judge(h, now, f);
	if (health_suspects_others(h, now) && look_at_others(w, h, f, n))
		return true;
	if (wait_until(w, 0))
		return true;
	send_health(w, h, f, n);
	return false;
}

static void *watch_main(void *arg)
{
	struct agent_watch *w = arg;
	const struct health_options o = { .node = w->o.node, .gpu = w->gpu, .disk = w->disk };
	double now = clock_s(), end = now + w->o.window_s;
	pthread_setname_np(pthread_self(), "muster-watch");
	struct health *h = health_open(&o, now);
	struct links *l = w->o.world ? agent_links_open(now) : NULL;
	while (h && !wait_until(w, fmin(clock_s() + SAMPLE_S, end))) {
		health_sample(h);
		if (clock_s() < end)
			continue;
		if (end_window(w, h))
			break;
		if (l)
			send_links(w, l);
		end = clock_s() + w->o.window_s;
	}
	agent_links_close(l);
	health_close(h);
	return NULL;
}

static int start_thread(struct agent_watch *w, struct err *e)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->news, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return pthread_create(&w->thread, NULL, watch_main, w)
		       ? err_set(e, ERR_NOMEM,
				 "the node is not watched: no thread; raise `ulimit -u`")
		       : 0;
}

static void watch_free(struct agent_watch *w)
{
	pthread_cond_destroy(&w->news);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int agent_watch_open(const struct watch_options *o, struct agent_watch **out, struct err *e)
{
	struct agent_watch *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "the node is not watched: no memory");
	w->o = *o;
	snprintf(w->gpu, sizeof w->gpu, "%s", o->gpu);
	snprintf(w->disk, sizeof w->disk, "%s", o->disk);
	w->o.gpu = w->o.disk = NULL;
	w->n_sent = -1; /* the first message says that nothing is wrong, and the clocks */
	if (start_thread(w, e)) {
		watch_free(w);
		return -1;
	}
	*out = w;
	return 0;
}

void agent_watch_close(struct agent_watch *w)
{
	struct timespec until;
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->closing = true;
	pthread_cond_broadcast(&w->news);
	pthread_mutex_unlock(&w->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)PATIENCE_S;
	if (!pthread_timedjoin_np(w->thread, NULL, &until))
		watch_free(w);
}
