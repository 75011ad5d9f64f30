#include "launcher/drill/drill.h"

#include "base/clock.h"
#include "launcher/drill/injections.h"
#include "launcher/drill/judge.h"
#include "launcher/status.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
	TICK_MS = 5,
	STEPS = 60, /* of each run, unless steps are so fast that it would end too soon */
	STEPS_MAX = 3000,
	CHECKPOINTS = 6, /* per run */
	START_SECONDS = 600,
	SPARE_SECONDS = 60
};

/* A run trains for at least so long, so that it does not end before the fault is injected. */
#define TRAIN_SECONDS 2.0

/* --- The loop and the signals ----------------------------------------------------- */

static void on_tick(uv_timer_t *timer)
{
	(void)timer; /* it wakes drill_run_wait() */
}

static void on_signal(uv_signal_t *handle, int number)
{
	((struct drill *)handle->data)->interrupted = number;
}

static int open_loop(struct drill *d, struct err *e)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	if (uv_loop_init(&d->loop))
		return err_set(e, ERR_NOMEM,
			       "cannot create an event loop; ulimit -n prints the limit of open "
			       "files");
	uv_timer_init(&d->loop, &d->tick);
	uv_timer_start(&d->tick, on_tick, TICK_MS, TICK_MS);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct sigaction old;
		if (numbers[i] == SIGHUP && !sigaction(SIGHUP, NULL, &old) &&
		    old.sa_handler == SIG_IGN)
			continue; /* nohup */
		uv_signal_init(&d->loop, &d->signals[i]);
		d->signals[i].data = d;
		uv_signal_start(&d->signals[i], on_signal, numbers[i]);
	}
	return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

static void close_loop(struct drill *d)
{
	uv_walk(&d->loop, close_handle, NULL);
	uv_run(&d->loop, UV_RUN_DEFAULT);
	uv_loop_close(&d->loop);
}

/* --- The words of a run ----------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A short run in a folder of its own. The learning rate's keys must fit its length. */
static void add_words(struct drill_run *r)
{
	const struct job *job = r->d->o->job;
	int64_t steps = r->d->steps, warmup = least(job->optimizer.warmup, steps / 2);
	drill_run_word(r, "job.run_dir=%s", r->d->scratch.path);
	drill_run_word(r, "job.name=%s", r->name);
	drill_run_word(r, "job.steps=%lld", (long long)steps);
	drill_run_word(r, "checkpoint.every=%lld", (long long)(steps / CHECKPOINTS));
	drill_run_word(r, "checkpoint.dir=");
	drill_run_word(r, "checkpoint.resume=auto");
	drill_run_word(r, "health.suspects=ignore"); /* the nodes are not to blame */
	if (job->optimizer.warmup > warmup)
		drill_run_word(r, "optimizer.warmup=%lld", (long long)warmup);
	if (job->optimizer.decay_steps)
		drill_run_word(r, "optimizer.decay_steps=0");
	if (job->optimizer.cooldown > steps - warmup)
		drill_run_word(r, "optimizer.cooldown=%lld", (long long)(steps - warmup));
	if (r->d->slurm)
		drill_run_word(r, "slurm.requeue=no");
	if (r->injection && r->injection->hang)
		drill_run_word(r, "restart.hang_timeout=%.0f", fmax(3, ceil(20 * r->d->step_s)));
}

/* --- The undisturbed run ---------------------------------------------------------- */

/* Quotes the error that the run ended with. */
static int refuse_reference(const struct drill_run *r, struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED,
		       "the undisturbed run ended with exit status %d: %s; its output is in "
		       "%s/drill.out",
		       r->status, *r->story.said ? r->story.said : "no error was recorded",
		       r->path);
}

/* The longest time between two steps, and the time of all of them. */
static double measure_steps(const struct drill_story *s, double *longest)
{
	*longest = 0;
	for (int i = 1; i < s->n_steps; i++)
		*longest = fmax(*longest, s->steps[i].mono - s->steps[i - 1].mono);
	return s->n_steps ? s->steps[s->n_steps - 1].mono - s->steps[0].mono : 0;
}

static int run_reference(struct drill *d, double *trained, struct err *e)
{
	struct drill_run *r;
	double begun = clock_s();
	if (d->o->begins)
		d->o->begins("undisturbed");
	if (drill_run_open(d, NULL, "undisturbed", &r, e))
		return -1;
	add_words(r);
	int rc = drill_run_start(r, e) || drill_run_finish(r, 10 * START_SECONDS, e);
	if (!rc && (r->status != STATUS_DONE || r->story.failed_memory))
		rc = refuse_reference(r, e);
	if (!rc) {
		*trained = measure_steps(&r->story, &d->step_s);
		d->run_s = clock_s() - begun;
		drill_story_fini(&d->reference);
		d->reference = r->story;
		r->story = (struct drill_story){ 0 };
	}
	drill_run_close(r);
	return rc ? -1 : 0;
}

/* If the steps are too fast to inject anything, the run is repeated with more of them. */
static int find_reference(struct drill *d, struct err *e)
{
	double trained = 0;
	d->steps = d->o->steps ? d->o->steps : STEPS;
	if (run_reference(d, &trained, e))
		return -1;
	if (d->o->steps || trained >= TRAIN_SECONDS)
		return 0;
	double more = (double)d->steps * 1.25 * TRAIN_SECONDS / fmax(trained, 1e-3);
	d->steps = (int64_t)fmin(STEPS_MAX, ceil(more / CHECKPOINTS) * CHECKPOINTS);
	drill_scratch_remove(&d->scratch, "undisturbed");
	return run_reference(d, &trained, e);
}

/* --- One fault -------------------------------------------------------------------- */

/* Two checkpoints are committed, and a step came after the second. The next checkpoint is some
 * steps away, so that none is being written. */
static bool is_under_way(const struct drill_run *r)
{
	return r->story.checkpoints >= 2 && r->story.last_step > r->story.ckpt_seen;
}

static double limit_of(const struct drill_run *r)
{
	double waits = r->injection->needs & NEEDS_ALLOW ? r->d->o->job->restart.patience : 0;
	return SPARE_SECONDS + waits + 20 * r->d->run_s;
}

/* About half-way between two checkpoints, and at least two steps before the second one, so that it
 * is not written with a NaN. */
static int64_t step_of_fault(const struct drill *d)
{
	int64_t every = d->steps / CHECKPOINTS;
	return 2 * every + (every - 2) / 2;
}

/* Asks the agent of the last rank. */
static void ask_agent(struct drill_run *r)
{
	if (r->injection->agent_fault)
		snprintf(r->agent_fault, sizeof r->agent_fault, "%s %d %lld %lld",
			 r->injection->agent_fault, r->d->reference.first.world - 1,
			 (long long)step_of_fault(r->d), (long long)r->cgroup_bytes);
}

/* The agent caused the fault when the step before it was finished. The line of that step may be
 * missing: then it was after the last line of the first generation. */
static double time_of_agent_fault(const struct drill_run *r)
{
	const struct drill_story *s = &r->story;
	double at = 0;
	for (int i = 0; i < s->n_steps && s->steps[i].generation == s->steps[0].generation; i++) {
		at = s->steps[i].mono;
		if (s->steps[i].step >= step_of_fault(r->d))
			break;
	}
	/* The supervisor may hear of the loss before rank 0 tells of the step. */
	for (int i = 0; i < s->n_events; i++)
		if (s->events[i].kind == DRILL_LOST)
			return fmin(at, s->events[i].mono);
	return at;
}

static int inject_fault(struct drill_run *r, struct err *e)
{
	const struct injection *in = r->injection;
	if (in->prepare && in->prepare(r, e))
		return -1;
	ask_agent(r);
	if (drill_run_start(r, e))
		return -1;
	if (!in->inject)
		return 0;
	if (drill_run_wait(r, is_under_way, START_SECONDS + 2 * r->d->run_s,
			   "its second checkpoint", e))
		return -1;
	*r->story.said = '\0';
	r->story.warnings = 0;
	return in->inject(r, e);
}

static int run_fault(struct drill_run *r, struct err *e)
{
	struct err wrong = ERR_INIT;
	if (inject_fault(r, e) || drill_run_finish(r, limit_of(r), e))
		return -1;
	int first = r->status;
	if (r->injection->agent_fault)
		r->injected = time_of_agent_fault(r);
	if (r->injection->undo)
		r->injection->undo(r);
	if (r->injection->again && first == r->injection->status) {
		pid_t left[1];
		drill_run_left(r, left, 1); /* the agents of the first one end by themselves */
		if (drill_run_start(r, e) || drill_run_finish(r, limit_of(r), e))
			return -1;
	}
	if (r->story.failed_memory)
		return err_set(e, ERR_NOMEM, "no memory for the run's events");
	if (drill_judge(r, first, &wrong))
		return err_set(e, wrong.code == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_CORRUPT,
			       "%s", wrong.text);
	return 0;
}

static void fill_result(const struct drill_run *r, int rc, const struct err *e,
			struct drill_result *out)
{
	const struct drill_story *s = &r->story;
	out->outcome = !rc ? DRILL_RIGHT : e->code == ERR_UNSUPPORTED ? DRILL_SKIPPED : DRILL_WRONG;
	if (rc)
		snprintf(out->why, sizeof out->why, "%s", e->text);
	snprintf(out->fault, sizeof out->fault, "%s", s->fault);
	snprintf(out->how, sizeof out->how, "%s", s->how);
	snprintf(out->said, sizeof out->said, "%s", s->said);
	if (r->injected > 0)
		out->phases = drill_phases_of(s->events, s->n_events, r->injected);
	out->redone = drill_story_redone(s);
	out->status = r->status;
}

static int drill_one(struct drill *d, const struct injection *in, struct drill_result *out,
		     struct err *e)
{
	struct drill_run *r;
	struct err why = ERR_INIT;
	char reason[256];
	out->injection = in;
	out->status = -1;
	out->phases = drill_phases_of(NULL, 0, 0);
	if (!drill_injection_possible(in, d, reason, sizeof reason)) {
		out->outcome = DRILL_SKIPPED;
		snprintf(out->why, sizeof out->why, "%s", reason);
		return 0;
	}
	if (d->o->begins)
		d->o->begins(in->name);
	if (drill_run_open(d, in, in->name, &r, e))
		return -1;
	add_words(r);
	int rc = run_fault(r, &why);
	fill_result(r, rc, &why, out);
	drill_run_close(r);
	if (d->interrupted)
		return err_set(e, ERR_ABORTED, "%s", why.text);
	if (!d->o->keep && out->outcome != DRILL_WRONG)
		drill_scratch_remove(&d->scratch, in->name);
	return 0;
}

/* --- All of them ------------------------------------------------------------------ */

static bool is_chosen(const struct drill_options *o, const struct injection *in)
{
	return !o->faults || drill_list_has(o->faults, in->name);
}

/* Every name of the list must exist. */
static int check_names(const char *names, struct err *e)
{
	if (names && !names[strspn(names, ",")])
		return err_set(e, ERR_USAGE,
			       "--fault has no name; muster drill --help lists the faults");
	for (const char *at = names; at && *at; at += strcspn(at, ","), at += *at == ',') {
		char name[64];
		const struct injection *in = drill_injections;
		snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
		while (in->name && strcmp(in->name, name))
			in++;
		if (!in->name)
			return err_set(e, ERR_USAGE,
				       "there is no fault \"%s\"; muster drill --help lists them",
				       name);
	}
	return 0;
}

static int run_all(struct drill *d, struct drill_results *out, struct err *e)
{
	if (find_reference(d, e))
		return -1;
	out->steps = d->steps;
	for (const struct injection *in = drill_injections; in->name; in++) {
		if (!is_chosen(d->o, in))
			continue;
		struct drill_result *more = realloc(out->rows,
						    (size_t)(out->n + 1) * sizeof *out->rows);
		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for the results");
		out->rows = more;
		out->rows[out->n] = (struct drill_result){ 0 };
		if (drill_one(d, in, &out->rows[out->n], e))
			return -1;
		out->n++;
	}
	return 0;
}

/* Ctrl-C leaves nothing; a failed undisturbed run leaves its output. */
static void clean_up(struct drill *d, const struct drill_results *out)
{
	if (d->interrupted)
		for (const struct injection *in = drill_injections; in->name; in++)
			drill_scratch_remove(&d->scratch, in->name);
	if (d->interrupted || (out->n && !d->o->keep))
		drill_scratch_remove(&d->scratch, "undisturbed");
}

/* Agents that are made to crash would leave them in the current folder. */
static void forbid_core_files(void)
{
	struct rlimit limit;
	if (!getrlimit(RLIMIT_CORE, &limit)) {
		limit.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &limit);
	}
}

int drill_run(const struct drill_options *o, struct drill_results *out, struct err *e)
{
	*out = (struct drill_results){ 0 };
	struct drill *d = calloc(1, sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for a drill");
	d->o = o;
	d->slurm = getenv("SLURM_JOB_ID") && o->job->launch.launcher != LAUNCHER_LOCAL;
	if (check_names(o->faults, e) || drill_scratch_open(o->job, &d->scratch, e)) {
		free(d);
		return -1;
	}
	drill_remove_old_cgroups();
	forbid_core_files();
	int rc = open_loop(d, e);
	if (!rc) {
		rc = run_all(d, out, e);
		clean_up(d, out);
		close_loop(d); /* until now signals do not end this process */
	}
	drill_story_fini(&d->reference);
	if (drill_scratch_close(&d->scratch))
		snprintf(out->folder, sizeof out->folder, "%.*s", (int)sizeof out->folder - 1,
			 d->scratch.path);
	free(d);
	return rc;
}

void drill_results_fini(struct drill_results *r)
{
	free(r->rows);
	*r = (struct drill_results){ 0 };
}

bool drill_results_right(const struct drill_results *r)
{
	int right = 0;
	for (int i = 0; i < r->n; i++) {
		if (r->rows[i].outcome == DRILL_WRONG)
			return false;
		right += r->rows[i].outcome == DRILL_RIGHT;
	}
	return right > 0;
}
