#include "agent/train.h"

#include "agent/data/blend.h"
#include "agent/metrics/report.h"
#include "agent/metrics/timelines.h"
#include "agent/optim/optim.h"
#include "agent/optim/scaler.h"
#include "agent/pipeline/engine.h"
#include "agent/samples.h"
#include "agent/server/server.h"
#include "agent/state.h"
#include "base/clock.h"
#include "base/log.h"
#include "plan/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct trainer {
	const struct train_env *env;
	const struct job *job;
	struct model_shape shape;
	struct samples *samples;
	struct engine *engine;
	struct optim *optim;    /* the rank's own; NULL with a parameter server */
	struct scaler scaler;
	struct server *server;  /* NULL: all-reduce */
	bool stops;             /* the server's workers agreed to */
	struct ckpt_writer *writer;
	struct state_view view;
	struct ckpt_watch watch;
	json_t *model, *layout; /* for the checkpoints, as is `whole` */
	struct ckpt_tensor *whole;
	int n_whole;
	char ckpt_dir[JOB_PATH];
	struct ckpt_state at;   /* where the run stands */
	int64_t saved;          /* step of the last checkpoint, -1: none */
	bool reports;           /* this rank tells the supervisor of each step */
	struct phases spent;    /* in training */
};

/* What the supervisor is told to do next, as all ranks agreed. */
enum { GO_ON, STOP_HERE, STOP_WITH_CHECKPOINT };

/* How long the last checkpoint is tried again on a full disk, and the longest pause between two tries. */
enum { ROOM_S = 60, PAUSE_MOST_S = 5 };

static void on_phase(const char *what, void *arg)
{
	struct trainer *t = arg;
	control_progress(t->env->control, t->at.step, what);
}

static void on_piece(void *arg)
{
	struct trainer *t = arg;
	control_moved(t->env->control);
}

static int open_data(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	struct batch_share mine;
	if (batch_share_of(t->job, &env->layout, env->at.dp, &mine, e))
		return -1;
	struct samples_options opt = {
		.job = t->job, .world = env->world, .control = env->control, .run_dir = env->run_dir, .generation = env->generation,
		.replica = env->at.dp, .offset = mine.first, .share = mine.micros * t->job->batch.micro,
	};
	return samples_open(&opt, &t->samples, e);
}

/* The state is the shards'. */
static int open_server(struct trainer *t, const char *backend, struct err *e)
{
	struct batch_share mine;
	if (batch_share_of(t->job, &t->env->layout, t->env->at.dp, &mine, e))
		return -1;
	struct server_options opt = {
		.job = t->job, .catalogue = engine_catalogue(t->engine), .world = t->env->world, .backend = backend,
		.worker = engine_store(t->engine), .kern = engine_kern(t->engine),
		.share = (double)(mine.micros * t->job->batch.micro) / (double)t->job->batch.global,
	};
	if (server_open(&opt, &t->server, e))
		return -1;
	t->view = (struct state_view){ .store = server_store(t->server), .optim = server_optim(t->server), .watch = &t->watch };
	return 0;
}

static int open_model(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	struct engine_options opt = {
		.job = t->job, .layout = env->layout, .at = env->at, .world = env->world,
		.backend = "cpu", .threads = env->threads, .node = env->node, .spill_dir = env->run_dir, .phase = on_phase, .phase_arg = t,
	};
	if (engine_open(&opt, &t->engine, e))
		return -1;
	if (t->job->parallel.sync == SYNC_SERVER)
		return open_server(t, opt.backend, e);
	const struct optim_options o = {
		.kern = engine_kern(t->engine), .store = engine_store(t->engine), .job = t->job, .spill_dir = env->run_dir,
	};
	if (optim_open(&o, &t->optim, e))
		return -1;
	t->view = (struct state_view){ .store = engine_store(t->engine), .optim = t->optim, .watch = &t->watch };
	return 0;
}

static int open_checkpoints(struct trainer *t, struct err *e)
{
	const struct layout *l = &t->env->layout;
	if (state_dir(t->job, t->env->run_dir, t->ckpt_dir, e))
		return -1;
	t->model = state_model(&t->shape);
	t->layout = json_pack("{s:i, s:i, s:i, s:i}", "tp", l->tp, "cp", l->cp, "pp", l->pp, "dp", l->dp);
	if (!t->model || !t->layout)
		return err_set(e, ERR_NOMEM, "checkpoints: no memory for the model's description");
	if (state_whole(&t->shape, t->job->optimizer.kind, &t->whole, &t->n_whole, e))
		return -1;
	struct ckpt_options opt = {
		.dir = t->ckpt_dir, .owner = t->job->checkpoint.dir[0] ? t->env->run_dir : NULL, .keep = t->job->checkpoint.keep, .generation = t->env->generation,
		.model = t->model, .layout = t->layout, .expect = t->whole, .n_expect = t->n_whole, .watch = &t->watch,
	};
	return ckpt_writer_open(t->env->world, &opt, &t->writer, e);
}

/* Whether the run goes on with the samples that the checkpoint's run had before it. Paths may differ: files move. */
static void compare_data(const struct trainer *t, const struct ckpt_data *was)
{
	const struct ckpt_data *is = &t->at.data;
	bool same = was->samples == is->samples && was->validation == is->validation && blend_alike(was->path, is->path);
	if (comm_rank(t->env->world) || !was->samples || same)
		return;
	log_warn("the checkpoint was trained on %lld samples of %s with data.validation = %g, this run has %lld of %s with %g: "
		 "other samples come than would have, seen ones may come again, and what is held out now may have been trained on",
		 (long long)was->samples, was->path, was->validation, (long long)is->samples, is->path, is->validation);
}

/* The parameters of the job's beginning, or those of the checkpoint to go on from. */
static int start_state(struct trainer *t, struct err *e)
{
	const struct job *job = t->job;
	struct ckpt_state at;
	int rc = state_resume(t->env->world, t->env->resume, t->ckpt_dir, t->model, &t->view, &at, e);
	if (rc < 0)
		return -1;
	t->saved = -1;
	t->at = (struct ckpt_state){ .seed = job->job.seed, .total_steps = job->job.steps };
	t->at.data = (struct ckpt_data){ .validation = job->data.validation, .samples = dataset_samples(samples_data(t->samples), DATA_TRAIN) };
	snprintf(t->at.data.path, sizeof t->at.data.path, "%s", job->data.path);
	if (rc == 0)
		return state_init(&t->view, &t->shape, job->job.seed, e);
	bool trained = at.step > 0; /* an imported checkpoint has no data behind it */
	if (trained && at.seed != job->job.seed)
		return err_set(e, ERR_USAGE, "the checkpoint was trained with job.seed = %llu, the job says %llu: the data would "
			       "come in another order; set job.seed back, or start anew under another job.name",
			       (unsigned long long)at.seed, (unsigned long long)job->job.seed);
	if (trained && at.total_steps != job->job.steps)
		log_info("the checkpoint's run was of %lld steps, this one is of %lld: a schedule over all steps changes",
			 (long long)at.total_steps, (long long)job->job.steps);
	compare_data(t, &at.data);
	t->at.step = t->saved = at.step;
	scaler_resume(&t->scaler, ckpt_number(&at, "loss_scale", 0), (int64_t)ckpt_number(&at, "loss_scale_good", 0));
	t->at.samples = at.samples;
	return 0;
}

static int trainer_open(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	double since = clock_s();
	model_shape(t->job, &t->shape);
	scaler_init(&t->scaler, t->job);
	t->watch = (struct ckpt_watch){ on_piece, t };
	t->reports = env->at.pp == env->layout.pp - 1 && env->at.tp == 0 && env->at.dp == 0;
	control_progress(env->control, 0, "open data");
	if (open_data(t, e))
		return -1;
	phases_lap(env->phases, "data", &since);
	control_progress(env->control, 0, "open model");
	if (open_model(t, e))
		return -1;
	phases_lap(env->phases, "model", &since);
	control_progress(env->control, 0, "load state");
	if (open_checkpoints(t, e) || start_state(t, e) || (t->server && server_start(t->server, t->at.step, e)) ||
	    samples_begin(t->samples, t->at.step, t->at.samples, t->layout, e))
		return -1;
	phases_lap(env->phases, "state", &since);
	return 0;
}

static void trainer_close(struct trainer *t)
{
	ckpt_writer_close(t->writer);
	server_close(t->server);
	optim_close(t->optim);
	engine_close(t->engine);
	samples_close(t->samples);
	json_decref(t->model);
	json_decref(t->layout);
	free(t->whole);
}

/* Whether to update: 1, or 0 when fp16 gradients have overflowed. The norm is the same on every rank, so all agree. */
static int judge(struct trainer *t, const struct step_report *r, struct err *e)
{
	double scale = t->scaler.scale;
	int rc = scaler_judge(&t->scaler, isfinite(r->loss) && isfinite(r->grad_norm), e);
	if (rc < 0)
		return err_prefix(e, "step %lld: loss %g, gradient norm %g", (long long)t->at.step + 1, r->loss, r->grad_norm);
	if (rc == 0)
		log_line(comm_rank(t->env->world) ? LOG_DEBUG : LOG_INFO, "step %lld: gradients overflow at a loss scale of %g; nothing is updated, the next is %g",
			 (long long)t->at.step + 1, scale, t->scaler.scale);
	return rc;
}

static int64_t peak_bytes(const struct trainer *t)
{
	return engine_peak_bytes(t->engine) + (t->server ? server_peak_bytes(t->server) : 0);
}

static void report(struct trainer *t, struct step_report *r)
{
	struct engine_times parts;
	engine_times(t->engine, &parts);
	r->compute_s = parts.compute;
	r->tp_s = parts.tp;
	r->pp_s = parts.pp;
	r->dp_s = parts.dp_exposed + (t->server ? server_waited(t->server) : 0);
	r->step = t->at.step;
	r->samples = t->at.samples;
	r->tokens = t->job->batch.global * t->shape.seq;
	r->peak_bytes = peak_bytes(t);
	control_send(t->env->control, MSG_METRICS, report_step(r));
}

static int update(struct trainer *t, struct step_report *r, double loss_scale, double *since, struct err *e)
{
	struct control *control = t->env->control;
	int64_t step = t->at.step;
	control_progress(control, step, "gradient norm");
	if (optim_norm(t->optim, t->env->world, loss_scale, &r->grad_norm, e))
		return err_prefix(e, "step %lld: gradient norm", (long long)step + 1);
	phases_lap(&t->spent, "step", since);
	int good = judge(t, r, e);
	if (good <= 0)
		return good;
	control_progress(control, step, "optimizer");
	optim_step(t->optim, r->grad_norm, loss_scale, step);
	if (store_publish(engine_store(t->engine), step + 1, e))
		return err_prefix(e, "step %lld: parameters", (long long)step + 1);
	return 0;
}

/* The optimizer is the servers'. */
static int update_server(struct trainer *t, struct step_report *r, struct err *e)
{
	bool checkpoint;
	struct server_step io = { .step = t->at.step, .loss = r->loss, .wants_stop = control_stopping(t->env->control, &checkpoint) };
	control_progress(t->env->control, t->at.step, "parameter server");
	if (server_step(t->server, &io, e))
		return err_prefix(e, "step %lld", (long long)t->at.step + 1);
	r->loss = io.loss;
	r->grad_norm = io.norm;
	t->stops = io.stops;
	return judge(t, r, e) < 0 ? -1 : 0; /* in fp32 there is nothing to scale */
}

static int train_step(struct trainer *t, struct err *e)
{
	struct control *control = t->env->control;
	int64_t step = t->at.step;
	double begin = clock_s(), since = begin;
	struct step_report r = { .lr = optim_lr(t->job, step) };
	control_progress(control, step, "data");
	struct engine_batch batch;
	if (samples_next(t->samples, &batch, e))
		return -1;
	batch.loss_scale = t->scaler.scale;
	r.data_s = phases_lap(&t->spent, "data", &since);
	if (engine_step(t->engine, &batch, &r.loss, e))
		return err_prefix(e, "step %lld", (long long)step + 1);
	if (t->server ? update_server(t, &r, e) : update(t, &r, batch.loss_scale, &since, e))
		return -1;
	r.optimizer_s = phases_lap(&t->spent, "optimizer", &since);
	r.step_s = since - begin;
	t->at.step++;
	t->at.samples += t->job->batch.global;
	samples_done(t->samples);
	if (t->reports)
		report(t, &r);
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
	if (engine_eval(v->t->engine, batch, &loss, e))
		return -1;
	v->sum += loss;
	return 0;
}

static int evaluate(struct trainer *t, struct err *e)
{
	double since = clock_s();
	int64_t n = t->job->data.eval_batches;
	struct evaluation v = { .t = t };
	control_progress(t->env->control, t->at.step, "evaluation");
	if (samples_evaluate(t->samples, n, evaluate_batch, &v, e))
		return err_prefix(e, "evaluation after step %lld", (long long)t->at.step);
	if (!isfinite(v.sum))
		return err_set(e, ERR_NUMERIC, "evaluation after step %lld: the loss is %g: lower optimizer.lr, or lengthen "
			       "optimizer.warmup", (long long)t->at.step, v.sum / (double)n);
	if (t->reports)
		control_send(t->env->control, MSG_EVAL, report_eval(t->at.step, v.sum / (double)n));
	phases_lap(&t->spent, "evaluation", &since);
	return 0;
}

static bool eval_due(const struct trainer *t)
{
	int64_t every = t->job->data.eval_every;
	return every > 0 && t->job->data.eval_batches > 0 && dataset_samples(samples_data(t->samples), DATA_VALIDATION) > 0 &&
	       (t->at.step % every == 0 || t->at.step == t->job->job.steps);
}

static int start_save(struct trainer *t, struct err *e)
{
	if (t->scaler.dynamic && (ckpt_number_set(&t->at, "loss_scale", t->scaler.scale, e) ||
				  ckpt_number_set(&t->at, "loss_scale_good", (double)t->scaler.good, e)))
		return -1;
	return state_save(t->writer, &t->at, &t->view, e);
}

/* No further collective can succeed. */
static bool world_is_lost(enum err_code code)
{
	return code == ERR_ABORTED || code == ERR_PEER || code == ERR_NET || code == ERR_TIMEOUT;
}

/* A disk that was full when the checkpoint before this one was written does not end the run. */
static int save(struct trainer *t, struct err *e)
{
	double since = clock_s();
	control_progress(t->env->control, t->at.step, "checkpoint");
	if (samples_durable(t->samples, e))
		return -1;
	int rc = start_save(t, e);
	if (rc && !world_is_lost(e->code)) {
		log_line(comm_rank(t->env->world) ? LOG_INFO : LOG_WARN, "%s; training goes on", e->text);
		rc = start_save(t, e);
	}
	if (rc)
		return -1;
	t->saved = t->at.step;
	phases_lap(&t->spent, "checkpoint", &since);
	return 0;
}

/* Tells the supervisor of checkpoints that have become durable. */
static void report_commits(struct trainer *t)
{
	struct ckpt_report c;
	while (ckpt_committed(t->writer, &c)) {
		control_send(t->env->control, MSG_CKPT,
			     json_pack("{s:I, s:s, s:I, s:f, s:f}", "step", (json_int_t)c.step, "path", c.path,
				       "bytes", (json_int_t)c.bytes, "seconds", c.seconds, "stall_s", c.stall_s));
		if (c.note[0])
			log_warn("%s", c.note);
	}
}

/* Waits for the commit of what was saved last. */
static int await_commit(struct trainer *t, struct err *e)
{
	control_progress(t->env->control, t->at.step, "commit");
	return ckpt_wait(t->writer, e);
}

/* Between two tries of the last checkpoint; *more: whether another one follows. The ranks agree on that: their clocks differ. */
static int await_room(struct trainer *t, double pause, double left, bool *more, struct err *e)
{
	bool checkpoint = true;
	for (double until = clock_s() + pause; clock_s() < until;) {
		usleep(100000);
		control_moved(t->env->control);
	}
	int32_t tired = left < pause || (control_stopping(t->env->control, &checkpoint) && !checkpoint);
	if (comm_all_reduce(t->env->world, &tired, &tired, 1, COMM_I32, COMM_MAX, e))
		return err_prefix(e, "waiting for room for a checkpoint");
	*more = !tired;
	return 0;
}

/* Nothing trains on behind the last checkpoint, so a disk that is full gets a while to be given room before all that it would
 * hold is lost. Each rank sees the same failure (ckpt.h); one that does not has lost the world. */
static int commit_last(struct trainer *t, struct err *e)
{
	double begun = clock_s(), pause = 1;
	int rc = await_commit(t, e);
	if (rc && e->code == ERR_IO)
		log_line(comm_rank(t->env->world) ? LOG_INFO : LOG_WARN, "%s; it is tried again for %d s: free space on %s", e->text,
			 ROOM_S, t->ckpt_dir);
	for (bool more = true; rc && e->code == ERR_IO; pause = fmin(2 * pause, PAUSE_MOST_S)) {
		struct err why = ERR_INIT;
		if (await_room(t, pause, begun + ROOM_S - clock_s(), &more, &why)) {
			*e = why;
			return -1;
		}
		if (!more)
			return -1;
		rc = start_save(t, e) || await_commit(t, e) ? -1 : 0;
	}
	return rc;
}

/* All ranks stop at the same step: the strongest wish that any of them has heard of. */
static int agree(struct trainer *t, int *what, struct err *e)
{
	bool checkpoint;
	int32_t wish = GO_ON;
	*what = GO_ON;
	if (t->server && !t->stops)
		return 0;
	if (control_stopping(t->env->control, &checkpoint))
		wish = checkpoint ? STOP_WITH_CHECKPOINT : STOP_HERE;
	if (comm_all_reduce(t->env->world, &wish, &wish, 1, COMM_I32, COMM_MAX, e))
		return err_prefix(e, "after step %lld", (long long)t->at.step);
	*what = wish;
	return 0;
}

static bool save_due(const struct trainer *t)
{
	int64_t every = t->job->checkpoint.every;
	return every > 0 && t->at.step % every == 0;
}

/* What is due between two steps; *what: whether another one follows. */
static int between_steps(struct trainer *t, int *what, struct err *e)
{
	bool meets = t->server && (eval_due(t) || save_due(t));
	if (meets && server_meet(t->server, e))
		return -1;
	if (eval_due(t) && evaluate(t, e))
		return -1;
	if (save_due(t) && save(t, e))
		return -1;
	if (meets && server_part(t->server, e))
		return -1;
	report_commits(t);
	return agree(t, what, e);
}

static int train_loop(struct trainer *t, struct err *e)
{
	int what = GO_ON;
	while (what == GO_ON && t->at.step < t->job->job.steps)
		if (train_step(t, e) || between_steps(t, &what, e))
			return -1;
	if (t->server && server_leave(t->server, e))
		return -1;
	if (what != STOP_HERE && t->saved != t->at.step && save(t, e))
		return -1;
	double since = clock_s();
	if (what == STOP_HERE ? await_commit(t, e) : commit_last(t, e))
		return -1;
	phases_lap(&t->spent, "commit", &since);
	report_commits(t);
	return 0;
}

/* The first replica's pipeline stands for all. Nothing depends on it, so a failure is only told. */
static void save_timeline(const struct trainer *t)
{
	const struct train_env *env = t->env;
	const struct timeline *l = engine_timeline(t->engine);
	struct err e = ERR_INIT;
	if (l->n && !env->at.tp && !env->at.cp && !env->at.dp &&
	    timelines_save(l, env->run_dir, env->generation, comm_rank(env->world), &e))
		log_warn("%s", e.text);
}

int train_run(const struct train_env *env, struct err *e)
{
	struct trainer t = { .env = env, .job = env->job };
	int rc = trainer_open(&t, e);
	if (!rc) {
		control_send(env->control, MSG_READY,
			     json_pack("{s:I, s:I, s:o}", "step", (json_int_t)t.at.step, "samples",
				       (json_int_t)t.at.samples, "phases", phases_json(env->phases)));
		rc = train_loop(&t, e);
	}
	if (!rc) {
		save_timeline(&t);
		control_send(env->control, MSG_FINISHED,
			     json_pack("{s:I, s:I, s:o}", "step", (json_int_t)t.at.step, "peak_bytes",
				       (json_int_t)peak_bytes(&t), "phases", phases_json(&t.spent)));
	}
	trainer_close(&t);
	return rc;
}
