#include "agent/engine/train/trainer.h"

#include "agent/engine/train/plant.h"
#include "agent/engine/train/replicas.h"
#include "agent/engine/train/step_report.h"
#include "agent/engine/train/timelines.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* the ranks' common decision between two steps */
enum { GO_ON, STOP_HERE, STOP_WITH_CHECKPOINT };

static int64_t peak_bytes(const struct trainer *t)
{
	return pipeline_peak_bytes(t->engine) +
	       (t->server ? param_server_peak_bytes(t->server) : 0);
}

/* The parts of the step that the engine has measured on this rank. */
static void add_parts(struct trainer *t, struct step_report *r)
{
	struct engine_times parts;
	pipeline_times(t->engine, &parts);
	r->compute_s = parts.compute;
	r->recompute_s = parts.recompute;
	r->tp_s = parts.tp;
	r->cp_s = parts.cp;
	r->ep_s = parts.ep;
	r->pp_s = parts.pp;
	r->dp_s += parts.dp;
	train_step_report_close(r);
}

/* Seconds of the step in which the rank waited for no other one. The update is not part of them:
 * all ranks meet in the norm of the gradients. */
static double own_seconds(const struct step_report *r)
{
	return r->data_s + r->compute_s + r->recompute_s;
}

static void report_step(struct trainer *t, struct step_report *r)
{
	struct engine_losses losses;
	pipeline_losses(t->engine, &losses);
	r->routed = losses.known;
	r->cross_entropy = losses.cross_entropy;
	r->balance_loss = losses.balance;
	r->z_loss = losses.z;
	r->tokens = t->job->batch.global * t->env->view->shape.seq;
	r->peak_bytes = peak_bytes(t);
	t->hooks->step(t->hooks->arg, r);
}

/* Reports a step whose numbers are known and good, or that was skipped. */
static void finish_step(struct trainer *t, struct step_report *r)
{
	t->loss = r->loss;
	t->hooks->worked(t->hooks->arg, own_seconds(r));
	if (t->reports)
		report_step(t, r);
}

static int64_t now_us(void)
{
	return clock_ns() / 1000;
}

/* Accounts for the step that has ended. */
static void note_times_of_step(struct trainer *t, const struct step_report *r)
{
	struct step_report spent = *r;
	spent.compute_s += t->late.waited; /* for the step before */
	train_times_step(&t->times, &spent, now_us());
	t->times.peak_bytes = peak_bytes(t);
	t->hooks->times(t->hooks->arg, &t->times, false);
}

/* Accounts for what was done since the last step: seconds in evaluations and held up by a checkpoint.
 * began: a checkpoint has begun. */
static void note_times_between(struct trainer *t, double evaluation, double checkpoint, bool began)
{
	train_times_between(&t->times, evaluation, checkpoint, now_us());
	t->hooks->times(t->hooks->arg, &t->times, began);
}

/* The parameter servers run the optimizer. */
static int exchange(void *arg, struct step_result *r, struct err *e)
{
	struct trainer *t = arg;
	bool checkpoint;
	struct server_step io = { .step = t->at.step,
				  .loss = r->loss,
				  .wants_stop = t->hooks->stopping(t->hooks->arg, &checkpoint),
				  .wants_save = t->hooks->save_asked(t->hooks->arg) >
						t->saved_for };
	trainer_phase(t, "parameter server");
	if (param_server_step(t->server, &io, e))
		return -1;
	r->loss = io.loss;
	r->norm = io.norm;
	t->stops = io.stops;
	t->saves = io.saves;
	return 0;
}

/* Returns the seconds that this rank has waited for other replicas so far. Waits outside of the
 * engine's step are included. */
static double replicas_waited(const struct trainer *t)
{
	return param_store_wait_seconds(pipeline_store(t->engine)) +
	       (t->server ? param_server_wait_seconds(t->server) : 0);
}

/* Sets the first element of each of this rank's gradients to NaN. */
static void poison_gradients(struct trainer *t)
{
	const struct param_store *store = pipeline_store(t->engine);
	struct backend *k = param_store_backend(store);
	const float nan = NAN;
	int n;
	const struct param_piece *pieces = param_store_pieces(store, &n);
	for (int i = 0; i < n; i++)
		if (pieces[i].count)
			backend_put(k, pieces[i].grad, &nan, sizeof nan);
}

/* Asks the drills what to spoil in this step. */
static int begin_drills(struct trainer *t, struct err *e)
{
	t->poison = false;
	if (t->hooks->drill && t->hooks->drill(t->hooks->drill_arg, t->at.step, &t->poison, e))
		return err_prefix(e, "step %lld", (long long)t->at.step + 1);
	train_plant_before(t);
	return 0;
}

static int passes_queued(void *arg, struct err *e)
{
	struct trainer *t = arg;
	(void)e;
	train_plant_after(t);
	if (t->poison)
		poison_gradients(t);
	return 0;
}

static void begin_phase(void *arg, const char *name)
{
	trainer_phase(arg, name);
}

/* Enters the numbers of a step into its report. */
static void set_numbers(const struct trainer *t, const struct step_result *n, struct step_report *r)
{
	r->loss = n->loss;
	r->grad_norm = n->norm;
	r->loss_scale = t->stepper.scaler.scales ? n->loss_scale : 0;
	r->skipped = n->skipped;
}

/* The step before is known. The wait for its numbers belongs to it. */
static void report_late(void *arg, const struct step_result *n)
{
	struct trainer *t = arg;
	struct step_report *r = &t->late.report;
	set_numbers(t, n, r);
	r->compute_s += n->waited;
	r->step_s += n->waited;
	if (n->passed) {
		t->late.waited = n->waited;
	} else {
		const struct step_report wait = { .step = r->step, .compute_s = n->waited };
		train_times_step(&t->times, &wait, now_us());
	}
	finish_step(t, r);
}

struct stepper_hooks trainer_stepper_hooks(struct trainer *t)
{
	return (struct stepper_hooks){
		.arg = t,
		.phase = begin_phase,
		.queued = passes_queued,
		.known = report_late,
		.bad = trainer_bad_step,
		.exchange = t->server ? exchange : NULL,
	};
}

/* The step's numbers are known now, or during the next step. */
static void end_step(struct trainer *t, struct step_report *r)
{
	if (!t->stepper.late) {
		set_numbers(t, &t->stepper.last, r);
		finish_step(t, r);
		return;
	}
	t->late.report = *r;
	t->late.step = t->at.step - 1;
	t->late.samples = t->at.samples - t->job->batch.global;
	t->late.plant = t->plant;
}

static int train_step(struct trainer *t, struct err *e)
{
	int64_t step = t->at.step;
	double begin = clock_s(), since = begin;
	struct step_report r = { .lr = optim_lr(t->job, step) };
	struct engine_batch batch;
	train_step_trace_begin(t->trace, step);
	trainer_phase(t, "data");
	if (train_samples_next(t->samples, &batch, e))
		return -1;
	r.data_s = train_phases_lap(&t->spent, "data", &since);
	t->late.waited = 0;
	if (begin_drills(t, e) || train_stepper_passes(&t->stepper, &batch, step, e))
		return -1;
	train_phases_lap(&t->spent, "step", &since);
	train_step_trace_passes(t->trace, pipeline_timeline(t->engine));
	double waited = replicas_waited(t);
	if (train_stepper_update(&t->stepper, e))
		return -1;
	r.dp_s = replicas_waited(t) - waited;
	r.optimizer_s = train_phases_lap(&t->spent, "optimizer", &since) - r.dp_s;
	r.checkpoint_s = t->stall_s;
	r.step_s = t->gap_s + since - begin - t->late.waited;
	t->gap_s = t->stall_s = 0;
	t->at.step++;
	t->at.samples += t->job->batch.global;
	train_samples_done(t->samples);
	r.step = t->at.step;
	r.samples = t->at.samples;
	add_parts(t, &r);
	note_times_of_step(t, &r);
	end_step(t, &r);
	return 0;
}

struct evaluation {
	struct trainer *t;
	double sum;
};

static int evaluate_batch(const struct engine_batch *batch, void *arg, struct err *e)
{
	struct evaluation *v = arg;
	double loss;
	if (pipeline_eval(v->t->engine, batch, &loss, e))
		return -1;
	v->sum += loss;
	return 0;
}

static int run_evaluation(struct trainer *t, struct err *e)
{
	double since = clock_s();
	int64_t n = t->job->data.eval_batches;
	struct evaluation v = { .t = t };
	trainer_phase(t, "evaluation");
	if (train_samples_evaluate(t->samples, n, evaluate_batch, &v, e))
		return err_prefix(e, "evaluation after step %lld", (long long)t->at.step);
	if (!isfinite(v.sum))
		return err_set(e, ERR_NUMERIC,
			       "evaluation after step %lld: the loss is %g: lower optimizer.lr, or "
			       "lengthen "
			       "optimizer.warmup",
			       (long long)t->at.step, v.sum / (double)n);
	if (t->reports)
		t->hooks->eval(t->hooks->arg, t->at.step, v.sum / (double)n);
	train_phases_lap(&t->spent, "evaluation", &since);
	return 0;
}

static bool eval_due(const struct trainer *t)
{
	int64_t every = t->job->data.eval_every;
	return every > 0 && t->job->data.eval_batches > 0 &&
	       dataset_samples(train_samples_data(t->samples), DATA_VALIDATION) > 0 &&
	       (t->at.step % every == 0 || t->at.step == t->job->job.steps);
}

/* All ranks agree on these after each step. */
struct agreement {
	int what; /* whether another step follows */
	int save; /* the number of a checkpoint that somebody has asked for; 0: none is to be begun */
	bool copy;                   /* all are ready for a copy in memory */
	struct step_trace_ask trace; /* steps to record; number 0: none */
};

/* In one word, so that the greatest is the last request, whole. */
static int64_t trace_word(const struct trainer *t)
{
	int steps = 0, number = t->hooks->trace_asked(t->hooks->arg, &steps);
	return (int64_t)number << 32 | steps;
}

static struct step_trace_ask trace_of_word(int64_t word)
{
	return (struct step_trace_ask){ .number = (int)(word >> 32), .steps = word & UINT32_MAX };
}

/* The strongest request to stop, and the last one for a checkpoint, that any rank has received win. With
 * a parameter server, the workers meet only after the steps that it names. */
static int agree(struct trainer *t, struct agreement *out, struct err *e)
{
	bool checkpoint, meets = !t->server || t->stops || t->saves;
	int64_t requested = GO_ON;
	*out = (struct agreement){ .what = GO_ON };
	if (!meets)
		return 0;
	if ((!t->server || t->stops) && t->hooks->stopping(t->hooks->arg, &checkpoint))
		requested = checkpoint ? STOP_WITH_CHECKPOINT : STOP_HERE;
	train_step_trace_phase(t->trace, "agree to go on");
	int64_t words[] = { requested, !trainer_memory_ready(t),
			    t->hooks->save_asked(t->hooks->arg), trace_word(t) };
	if (comm_all_reduce(t->env->world, words, words, 4, COMM_I64, COMM_MAX, e))
		return err_prefix(e, "after step %lld", (long long)t->at.step);
	out->what = (int)words[0];
	out->copy = !t->server && !words[1] && words[0] == GO_ON;
	if (words[0] != GO_ON || t->at.step >= t->job->job.steps)
		return 0; /* the last checkpoint follows */
	if (words[2] > t->saved_for)
		out->save = (int)words[2];
	if (trace_of_word(words[3]).number > t->traced_for)
		out->trace = trace_of_word(words[3]);
	return 0;
}

static bool save_due(const struct trainer *t)
{
	return trainer_save_due(t) != 0;
}

/* A checkpoint is begun only if the replicas agree. */
static bool compare_due(const struct trainer *t)
{
	int64_t every = t->job->health.compare_every;
	return every >= 0 && (save_due(t) || (every > 0 && t->at.step % every == 0));
}

/* The last checkpoint, unless there is one of this step. */
static int save_last(struct trainer *t, struct err *e)
{
	if (t->saved == t->at.step)
		return 0;
	if (t->job->health.compare_every >= 0 && train_replicas_compare(t, true, e))
		return -1;
	return trainer_save(t, CKPT_TO_DIR, e);
}

/* The checkpoint that somebody has asked for. */
static int save_asked(struct trainer *t, int number, struct err *e)
{
	bool compares = t->job->health.compare_every >= 0 && t->saved != t->at.step;
	if (t->server && param_server_pause(t->server, e))
		return -1;
	if ((compares && train_replicas_compare(t, true, e)) || trainer_save_asked(t, number, e))
		return -1;
	return t->server ? param_server_resume(t->server, e) : 0;
}

/* The steps that somebody wants recorded. */
static int trace_asked(struct trainer *t, const struct step_trace_ask *ask, struct err *e)
{
	t->traced_for = ask->number;
	return train_step_trace_ask(t->trace, ask, e);
}

/* Does all work that is due between two steps. Sets *what: whether another step follows. */
static int between_steps(struct trainer *t, int *what, struct err *e)
{
	struct agreement common;
	bool meets = t->server && (eval_due(t) || save_due(t) || trainer_memory_due(t));
	bool saves = save_due(t);
	double begin, since;
	if ((eval_due(t) || compare_due(t) || saves || trainer_memory_due(t)) &&
	    train_stepper_settle(&t->stepper, e))
		return -1;
	begin = clock_s();
	if (meets && param_server_pause(t->server, e))
		return -1;
	since = clock_s();
	if (eval_due(t) && run_evaluation(t, e))
		return -1;
	double evaluated = clock_s() - since;
	since = clock_s();
	if (compare_due(t) && train_replicas_compare(t, saves, e))
		return -1;
	if (saves && trainer_save(t, trainer_save_due(t), e))
		return -1;
	if (trainer_memory_due(t) && trainer_memory_take(t, e))
		return -1;
	t->stall_s = clock_s() - since;
	if (meets && param_server_resume(t->server, e))
		return -1;
	trainer_report_commits(t);
	int rc = agree(t, &common, e);
	*what = common.what;
	if (!rc && common.trace.number)
		rc = trace_asked(t, &common.trace, e);
	since = clock_s();
	if (!rc && (common.save || common.copy)) {
		rc = train_stepper_settle(&t->stepper, e);
		begin += clock_s() - since; /* it counts for the step */
		since = clock_s();
	}
	if (!rc && common.save)
		rc = save_asked(t, common.save, e);
	if (!rc && common.copy)
		rc = trainer_memory_take(t, e);
	t->stall_s += clock_s() - since;
	t->gap_s = clock_s() - begin - evaluated;
	note_times_between(t, evaluated, t->stall_s, saves || common.save);
	return rc;
}

/* The other ranks of the stage on this node nearly always have the same notices. */
static void log_notices(struct trainer *t)
{
	const char *text;
	while ((text = backend_notice(pipeline_backend(t->engine)))) {
		if (t->leads)
			log_info("%s", text);
		else
			log_debug("%s", text);
	}
}

static int train_loop(struct trainer *t, struct err *e)
{
	int what = GO_ON;
	while (what == GO_ON && t->at.step < t->job->job.steps) {
		bool copying = trainer_memory_busy(t);
		double since = clock_s();
		if (train_step(t, e) || train_choices_agree(&t->choices, e))
			return -1;
		log_notices(t);
		trainer_memory_note(t, clock_s() - since, copying);
		if (between_steps(t, &what, e))
			return -1;
	}
	if (train_stepper_settle(&t->stepper, e) || (t->server && param_server_leave(t->server, e)))
		return -1;
	double last = clock_s();
	if (what != STOP_HERE && save_last(t, e))
		return -1;
	double since = clock_s();
	if (trainer_commit(t, what != STOP_HERE, e))
		return -1;
	train_phases_lap(&t->spent, "commit", &since);
	note_times_between(t, 0, since - last, true);
	trainer_report_commits(t);
	return 0;
}

/* Only the first replica's pipeline is saved. Nothing depends on it, so a failure is only
 * logged. */
static void save_timeline(const struct trainer *t)
{
	const struct train_env *env = t->env;
	const struct coords *at = &env->view->at;
	const struct timeline *l = pipeline_timeline(t->engine);
	struct err e = ERR_INIT;
	if (l->n && !at->tp && !at->cp && !at->dp &&
	    train_timelines_save(l, env->run_dir, env->generation, comm_rank(env->world), &e))
		log_warn("%s", e.text);
}

int train_run(const struct train_env *env, struct err *e)
{
	const struct train_hooks *h = env->hooks;
	struct trainer *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(e, ERR_NOMEM, "no memory for the state of training");
	t->env = env;
	t->job = env->view->job;
	t->hooks = h;
	int rc = trainer_open(t, e);
	if (!rc) {
		h->ready(h->arg, t->at.step, t->at.samples, t->from.path, env->phases);
		train_times_begin(&t->times, t->at.step, now_us());
		rc = trainer_memory_renew(t, e) || train_loop(t, e) ? -1 : 0;
	}
	if (!rc) {
		save_timeline(t);
		train_step_trace_close(t->trace); /* its report must come before the next one */
		t->trace = NULL;
		h->finished(h->arg, t->at.step, peak_bytes(t), &t->spent);
	}
	if (rc)
		h->give_up(h->arg);
	trainer_close(t);
	free(t);
	return rc;
}
