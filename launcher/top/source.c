#include "launcher/top/source.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/segments.h"
#include "base/thread.h"
#include "launcher/console/collect.h"
#include "launcher/console/line.h"
#include "launcher/rundir/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* SOURCE_RANKS: what an answer has at most (CONSOLE_RANKS of launcher/supervise/console.h). */
enum { SOURCE_BLOCKS = 4, SOURCE_RANKS = 256, PLAN_MAX = 256 << 20, WORLD_MOST = 1 << 20 };
static const double period_s = 1, slurm_period_s = 5, answer_s = 2, farewell_s = 0.3;

struct top_source {
	char run[RUN_PATH];
	pthread_t thread;
	int fd; /* an eventfd */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* with the lock */
	struct top_facts *newest;
	int log_rank;
	bool stop, hurry, done; /* done: the thread touches nothing any more */
	/* of the thread */
	struct top_facts *facts;
	struct console_line *line;
	int64_t plan_generation; /* whose plan the facts have; -1: of none */
	int next_rank;           /* the first one of the next block */
};

/* --- the supervisor -------------------------------------------------------------------------- */

static void hang_up(struct top_source *s)
{
	console_line_close(s->line);
	s->line = NULL;
}

static bool ask(struct top_source *s, const struct msg_console_ask *ask, json_t **body,
		struct msg_console_answer *a)
{
	struct err e = ERR_INIT;
	if (!console_line_ask(s->line, ask, answer_s, body, a, &e) && a->ok)
		return true;
	json_decref(*body);
	*body = NULL;
	hang_up(s);
	return false;
}

static void take_state(struct top_source *s, json_t *object)
{
	struct look *l = &s->facts->look;
	struct rundir_state state;
	if (rundir_state_check(object, &state, NULL)) {
		hang_up(s);
		return;
	}
	json_t *old = l->object;
	*l = (struct look){ .id = rundir_state_find(state.state),
			    .live = true,
			    .object = json_incref(object),
			    .state = state };
	snprintf(l->run, sizeof l->run, "%s", s->run);
	*s->facts->trouble = 0;
	json_decref(old);
}

/* Whether the supervisor has answered. */
static bool ask_state(struct top_source *s)
{
	json_t *body;
	struct msg_console_answer a;
	if (!s->line && console_line_open(s->run, answer_s, &s->line, NULL))
		return false;
	if (!ask(s, &(struct msg_console_ask){ .what = "state" }, &body, &a))
		return false;
	if (a.has_state)
		take_state(s, a.state);
	json_decref(body);
	return s->line && a.has_state;
}

static void ask_ranks(struct top_source *s)
{
	struct top_facts *f = s->facts;
	int blocks = (f->world + SOURCE_RANKS - 1) / SOURCE_RANKS;
	for (int i = 0; i < SOURCE_BLOCKS && i < blocks && s->line; i++) {
		json_t *body;
		struct msg_console_answer a;
		int first = s->next_rank < f->world ? s->next_rank : 0;
		if (!ask(s,
			 &(struct msg_console_ask){ .what = "ranks",
						    .has_first = true,
						    .first = first,
						    .has_count = true,
						    .count = SOURCE_RANKS },
			 &body, &a))
			return;
		if (a.has_ranks)
			top_facts_take_ranks(f, first, a.ranks);
		s->next_rank = first + SOURCE_RANKS;
		json_decref(body);
	}
}

/* --- files ------------------------------------------------------------------------------------ */

/* The last state that is known stays on the screen when nothing else can be found out. */
static void look_at_files(struct top_source *s)
{
	struct top_facts *f = s->facts;
	struct look *l = calloc(1, sizeof *l);
	struct err e = ERR_INIT;
	if (!l)
		return;
	if (console_look(s->run, LOOK_QUICK, l, &e)) {
		snprintf(f->trouble, sizeof f->trouble, "%.780s", e.text);
		f->look.live = false;
		console_look_fini(l);
	} else {
		console_look_fini(&f->look);
		f->look = *l;
		*f->trouble = 0;
	}
	free(l);
}

static void read_plan(struct top_source *s)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	struct top_facts *f = s->facts;
	int64_t generation = f->look.state.generation;
	if (s->plan_generation == generation || generation <= 0 || generation > UINT32_MAX)
		return;
	run_path_plan(path, s->run, (uint32_t)generation);
	json_t *plan = file_slurp_own(path, PLAN_MAX, &text, NULL)
			       ? NULL
			       : json_loadb(buf_str(&text), text.len, 0, NULL);
	if (plan) {
		top_facts_take_plan(f, plan);
		s->plan_generation = generation;
	}
	json_decref(plan);
	buf_fini(&text);
}

/* New lines of metrics.jsonl, or the last TOP_SAMPLES if none is known. */
static void read_metrics(struct top_source *s)
{
	struct top_facts *f = s->facts;
	const struct rundir_state *state = &f->look.state;
	struct buf text = BUF_INIT;
	int64_t last = f->n_samples ? f->samples[f->n_samples - 1].step : -1;
	int64_t news = state->has_step && last >= 0 ? state->step - last : TOP_SAMPLES;
	if (!news)
		return;
	if (news < 0 || news > TOP_SAMPLES)
		news = TOP_SAMPLES; /* it went back to a checkpoint, or its steps are short */
	if (!rundir_tail(s->run, RUN_METRICS, (int)news + 1, &text, NULL))
		top_facts_take_metrics(f, buf_str(&text), text.len);
	buf_fini(&text);
}

/* The end of a log and its parts, from its first whole line on. */
static char *read_end(const char *folder, const char *name, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	segments_path(path, folder, name, 0);
	int fd = file_open(path, O_RDONLY, FILE_OWN, e); /* it says what is missing */
	if (fd < 0)
		return NULL;
	close(fd);
	int rc = segments_read_end(folder, name, TOP_LOG, &text, e);
	const char *all = buf_str(&text);
	const char *line = text.len == TOP_LOG ? strchr(all, '\n') : NULL;
	char *end = rc ? NULL : strdup(line ? line + 1 : all);
	buf_fini(&text);
	return end;
}

/* The log may be on its node: the screen wants it here. */
static int collect(const struct top_source *s, int rank)
{
	char ranks[16];
	snprintf(ranks, sizeof ranks, "%d", rank);
	return console_collect_logs(s->run, ranks, NULL, answer_s, NULL, NULL);
}

static void read_log(struct top_source *s, int rank)
{
	struct top_facts *f = s->facts;
	char path[RUN_PATH];
	struct err e = ERR_INIT;
	free(f->log);
	f->log = NULL;
	f->log_rank = rank;
	*f->log_trouble = 0;
	if (rank < 0 || rank >= f->world)
		return;
	const char *node = f->ranks[rank].node;
	if (!*node || strchr(node, '/')) {
		snprintf(f->log_trouble, sizeof f->log_trouble, "its node is not known");
		return;
	}
	run_path_rank_log(path, s->run, node, rank);
	char *name = strrchr(path, '/');
	*name++ = '\0';
	f->log = read_end(path, name, &e);
	if (!f->log && s->line && e.code == ERR_NOTFOUND && !collect(s, rank)) {
		e = (struct err)ERR_INIT;
		f->log = read_end(path, name, &e);
	}
	if (!f->log)
		snprintf(f->log_trouble, sizeof f->log_trouble, "%.490s", e.text);
}

/* --- the thread ---------------------------------------------------------------------------------- */

/* Hands a copy of the facts over. */
static void publish(struct top_source *s)
{
	struct top_facts *copy = top_facts_copy(s->facts);
	uint64_t one = 1;
	if (!copy)
		return;
	pthread_mutex_lock(&s->lock);
	top_facts_free(s->newest);
	s->newest = copy;
	pthread_mutex_unlock(&s->lock);
	while (write(s->fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

static int wanted_log(struct top_source *s)
{
	pthread_mutex_lock(&s->lock);
	int rank = s->log_rank;
	pthread_mutex_unlock(&s->lock);
	return rank;
}

static void gather(struct top_source *s)
{
	struct top_facts *f = s->facts;
	bool live = ask_state(s);
	if (!live)
		look_at_files(s);
	int world = f->look.object ? f->look.state.world : 0;
	if (world >= 0 && world <= WORLD_MOST && !top_facts_set_world(f, world, NULL)) {
		read_plan(s);
		if (live)
			ask_ranks(s);
	}
	read_metrics(s);
}

/* Waits for the next round, or until the screen wants something. Returns false at the end. hurry: only a
 * log is wanted. */
static bool await(struct top_source *s, double until, bool *hurry)
{
	struct timespec t = { (time_t)until, (long)((until - (double)(time_t)until) * 1e9) };
	pthread_mutex_lock(&s->lock);
	while (!s->stop && !s->hurry)
		if (pthread_cond_timedwait(&s->wake, &s->lock, &t) == ETIMEDOUT)
			break;
	bool stop = s->stop;
	*hurry = s->hurry;
	s->hurry = false;
	pthread_mutex_unlock(&s->lock);
	return !stop;
}

static void *work(void *arg)
{
	struct top_source *s = arg;
	double next = clock_s();
	bool hurry = false;
	do {
		if (!hurry) {
			gather(s);
			bool slurm = !s->facts->look.live && s->facts->look.has_job;
			double period = slurm ? slurm_period_s : period_s;
			next = next + period > clock_s() ? next + period : clock_s() + period;
		}
		int rank = wanted_log(s);
		if (rank >= 0 || s->facts->log_rank >= 0)
			read_log(s, rank);
		publish(s);
	} while (await(s, next, &hurry));
	pthread_mutex_lock(&s->lock);
	s->done = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start(struct top_source *s, struct err *e)
{
	pthread_condattr_t attr;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &attr);
	pthread_condattr_destroy(&attr);
	int rc = thread_start(&s->thread, "watch", work, s);
	if (!rc)
		return 0;
	errno = rc;
	return err_errno(e, ERR_NOMEM, "a thread that watches the run");
}

static void discard(struct top_source *s)
{
	hang_up(s);
	if (s->fd >= 0)
		close(s->fd);
	top_facts_free(s->facts);
	top_facts_free(s->newest);
	free(s);
}

int top_source_open(const char *run, struct top_source **out, struct err *e)
{
	struct top_source *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory to watch the run");
	snprintf(s->run, sizeof s->run, "%s", run);
	s->log_rank = -1;
	s->plan_generation = -1;
	s->facts = top_facts_new();
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = s->facts ? 0 : err_set(e, ERR_NOMEM, "no memory to watch the run");
	if (!rc && s->fd < 0)
		rc = err_errno(e, ERR_NOMEM, "an eventfd");
	if (!rc) {
		snprintf(s->facts->look.run, sizeof s->facts->look.run, "%s", run);
		rc = start(s, e);
	}
	if (rc)
		discard(s);
	else
		*out = s;
	return rc;
}

int top_source_fd(const struct top_source *s)
{
	return s->fd;
}

struct top_facts *top_source_take(struct top_source *s)
{
	uint64_t n;
	while (read(s->fd, &n, sizeof n) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&s->lock);
	struct top_facts *f = s->newest;
	s->newest = NULL;
	pthread_mutex_unlock(&s->lock);
	return f;
}

void top_source_want_log(struct top_source *s, int rank)
{
	pthread_mutex_lock(&s->lock);
	if (s->log_rank != rank) {
		s->log_rank = rank;
		s->hurry = true;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
}

void top_source_close(struct top_source *s)
{
	struct timespec until;
	if (!s)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(farewell_s * 1e9);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->wake);
	while (!s->done)
		if (pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT)
			break;
	bool done = s->done;
	pthread_mutex_unlock(&s->lock);
	if (!done)
		return;
	pthread_join(s->thread, NULL);
	discard(s);
}
