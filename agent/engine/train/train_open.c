#include "agent/engine/train/trainer.h"

#include "agent/engine/data/blend.h"
#include "agent/engine/train/set_aside.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/run_paths.h"
#include "base/segments.h"
#include "plan/spec/job/node_path.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GATE_MOST_S = 60, METRICS_END = 16 << 20 /* bytes that are read */ };

void trainer_phase(const struct trainer *t, const char *name)
{
	t->hooks->progress(t->hooks->arg, t->at.step, name);
	train_step_trace_phase(t->trace, name);
}

static void on_phase(const char *what, void *arg)
{
	trainer_phase(arg, what);
}

static void on_piece(void *arg)
{
	struct trainer *t = arg;
	t->hooks->moved(t->hooks->arg);
}

/* The position of the checkpoint counts, so that a change of data.skip behind it moves nothing. */
static int begin_samples(struct trainer *t, struct err *e)
{
	const struct samples_place at = { .step = t->at.step,
					  .consumed = t->at.samples,
					  .skipped = t->skipped };
	return train_samples_begin(t->samples, &at, t->layout, e);
}

static int open_data(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	struct samples_options opt = {
		.view = env->view,
		.world = env->world,
		.hooks = t->hooks,
		.run_dir = env->run_dir,
		.generation = env->generation,
		.skips = env->skips,
	};
	return train_samples_open(&opt, &t->samples, e);
}

/* With a parameter server, the server's shards hold the optimizer state. */
static int open_server(struct trainer *t, const char *backend_name, struct err *e)
{
	struct server_options opt = {
		.view = t->env->view,
		.catalogue = pipeline_catalogue(t->engine),
		.world = t->env->world,
		.backend_name = backend_name,
		.worker = pipeline_store(t->engine),
		.backend = pipeline_backend(t->engine),
	};
	if (param_server_open(&opt, &t->server, e))
		return -1;
	t->state = (struct train_state){ .store = param_server_store(t->server),
					 .optim = param_server_optim(t->server),
					 .watch = &t->watch };
	return 0;
}

static int open_model(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	struct engine_options opt = {
		.view = env->view,
		.world = env->world,
		.backend_name = t->job->job.device == DEVICE_CUDA ? "cuda" : "cpu",
		.device = env->device,
		.threads = env->threads,
		.node = env->node,
		.spill_dir = env->run_dir,
		.phase = on_phase,
		.phase_arg = t,
	};
	if (pipeline_open(&opt, &t->engine, e))
		return -1;
	if (t->job->parallel.sync == SYNC_SERVER)
		return open_server(t, opt.backend_name, e);
	const struct optim_options o = {
		.backend = pipeline_backend(t->engine),
		.store = pipeline_store(t->engine),
		.job = t->job,
		.spill_dir = env->run_dir,
		.device_world = pipeline_device_world(t->engine),
		.numbers = pipeline_numbers(t->engine),
	};
	if (optim_open(&o, &t->optim, e))
		return -1;
	t->state = (struct train_state){ .store = pipeline_store(t->engine),
					 .optim = t->optim,
					 .scales = model_scales_of(pipeline_model(t->engine)),
					 .watch = &t->watch };
	return 0;
}

static int set_local(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	t->local = (struct ckpt_local){ .node = env->node,
					.keep = t->job->checkpoint.local_keep,
					.owner = env->run_dir };
	if (!t->job->checkpoint.local[0])
		return 0;
	return job_node_path("checkpoint.local", t->job->checkpoint.local,
			     env->node_name ? env->node_name : "", t->local.dir, e);
}

static int open_checkpoints(struct trainer *t, struct err *e)
{
	const struct layout *l = &t->env->view->layout;
	if (train_resume_dir(t->job, t->env->run_dir, t->ckpt_dir, e) || set_local(t, e))
		return -1;
	t->model = train_state_model(&t->env->view->shape);
	t->layout = json_pack("{s:i, s:i, s:i, s:i}", "tp", l->tp, "cp", l->cp, "pp", l->pp, "dp",
			      l->dp);
	if (!t->model || !t->layout)
		return err_set(e, ERR_NOMEM, "checkpoints: no memory for the model's description");
	if (train_state_whole(&t->env->view->shape, t->job->optimizer.kind, t->state.scales != NULL,
			      &t->whole, &t->n_whole, e))
		return -1;
	t->state.attached = comm_rank(t->env->world) == 0 ? &t->attached : NULL;
	t->uploads = (struct upload_rules){ .every = t->job->checkpoint.remote_every,
					    .last = t->job->job.steps,
					    .keep = t->job->checkpoint.remote_keep,
					    .keep_every = t->job->checkpoint.keep_every };
	struct ckpt_options opt = {
		.attached = t->state.attached,
		.dir = t->ckpt_dir,
		.node = t->env->node_name,
		.owner = t->job->checkpoint.dir[0] ? t->env->run_dir : NULL,
		.keep = t->job->checkpoint.keep,
		.keep_every = t->job->checkpoint.keep_every,
		.uploads = t->job->checkpoint.remote[0] ? &t->uploads : NULL,
		.local = t->local.dir[0] ? &t->local : NULL,
		.generation = t->env->generation,
		.model = t->model,
		.layout = t->layout,
		.expect = t->whole,
		.n_expect = t->n_whole,
		.watch = &t->watch,
		.gate = &t->gate,
	};
	return ckpt_writer_open(t->env->world, &opt, &t->writer, e);
}

/* Warns if the samples differ from those of the checkpoint's run. Paths may differ, because files
 * move. */
static void compare_data(const struct trainer *t, const struct ckpt_data *was)
{
	const struct ckpt_data *is = &t->at.data;
	bool same = was->samples == is->samples && was->validation == is->validation &&
		    data_blend_alike(was->path, is->path);
	if (comm_rank(t->env->world) || !was->samples || same)
		return;
	log_warn("the checkpoint was trained on %lld samples of %s with data.validation = %g, but "
		 "this "
		 "run has %lld of %s with %g: the order of the samples changes, samples may be "
		 "used twice, and those held out now may have been used for training",
		 (long long)was->samples, was->path, was->validation, (long long)is->samples,
		 is->path, is->validation);
}

/* Sets the initial parameters, or those of the checkpoint that the run resumes from. */
static int start_state(struct trainer *t, struct err *e)
{
	const struct job *job = t->job;
	struct ckpt_state at;
	struct err kept = ERR_INIT;
	if (comm_rank(t->env->world) == 0 && train_set_aside(t->ckpt_dir, t->env->skips, &kept))
		log_warn("the run may continue from a checkpoint that a rollback goes back beyond: "
			 "%s",
			 kept.text);
	char copied[RUN_PATH];
	run_path(copied, t->env->run_dir, RUN_COPIED);
	const struct train_tiers tiers = { .dir = t->ckpt_dir,
					   .local = &t->local,
					   .remote = job->checkpoint.remote,
					   .copied = !access(copied, F_OK),
					   .owner = t->env->run_dir,
					   .rollbacks = t->env->skips };
	int rc = train_resume(t->env->world, t->env->resume, &tiers, t->env->memory, t->model,
			      &t->state, &at, &t->from, e);
	if (rc < 0)
		return -1;
	t->saved = t->asked = -1;
	t->loss = NAN;
	t->at = (struct ckpt_state){ .seed = job->job.seed, .total_steps = job->job.steps };
	t->at.data = (struct ckpt_data){ .validation = job->data.validation,
					 .samples = dataset_samples(train_samples_data(t->samples),
								    DATA_TRAIN) };
	snprintf(t->at.data.path, sizeof t->at.data.path, "%s", job->data.path);
	if (rc == 0)
		return train_state_init(&t->state, &t->env->view->shape, job->job.seed, e);
	bool trained = at.step > 0; /* an import is of step 0, untrained */
	if (trained && at.seed != job->job.seed)
		return err_set(
			e, ERR_USAGE,
			"the checkpoint was trained with job.seed = %llu, but the job has %llu, "
			"which would change the order of the data; set job.seed back, or "
			"start a new run under another job.name",
			(unsigned long long)at.seed, (unsigned long long)job->job.seed);
	if (trained && at.total_steps != job->job.steps)
		log_info("the checkpoint's run had %lld steps and this one has %lld: a "
			 "learning-rate schedule over all steps changes",
			 (long long)at.total_steps, (long long)job->job.steps);
	compare_data(t, &at.data);
	t->at.step = at.step;
	t->saved = t->from.tier == TRAIN_MEMORY ? t->from.saved : at.step;
	optim_scaler_resume(&t->stepper.scaler, ckpt_number(&at, "loss_scale", 0),
			    ckpt_count(&at, "loss_scale_good"));
	t->at.samples = at.samples;
	t->skipped = ckpt_count(&at, "skipped");
	return 0;
}

/* Reads the end of the metrics; without the file the window is empty. */
static void read_window(struct trainer *t)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	if (segments_read_end(t->env->run_dir, RUN_METRICS, METRICS_END, &text, &e) ||
	    train_bad_read(&t->stepper.spikes, buf_str(&text), text.len, t->at.step, &e))
		log_warn("spikes are found later than usual: %s", e.text);
	buf_fini(&text);
}

/* World rank 0 reads the window, and all ranks get the same. */
static int resume_window(struct trainer *t, struct err *e)
{
	struct bad_numbers *spikes = &t->stepper.spikes;
	if (!(spikes->z > 0) || t->at.step == 0)
		return 0;
	if (comm_rank(t->env->world) == 0)
		read_window(t);
	return comm_broadcast(t->env->world, spikes, sizeof *spikes, COMM_U8, 0, e);
}

static int begin_steps(struct trainer *t, struct err *e)
{
	t->stepper_hooks = trainer_stepper_hooks(t);
	const struct stepper_parts parts = { .view = t->env->view,
					     .world = t->env->world,
					     .engine = t->engine,
					     .optim = t->optim,
					     .hooks = &t->stepper_hooks };
	return train_stepper_begin(&t->stepper, &parts, e);
}

/* A checkpoint is committed only after the metrics up to it are in the run folder, so that a run
 * that resumes from it lacks no step. Waits at most half of the time that the other ranks wait for
 * this one. */
static int await_series(void *arg, int64_t step, struct err *e)
{
	const struct trainer *t = arg;
	return t->hooks->await_recorded(t->hooks->arg, step,
					fmin(t->job->network.timeout / 2, GATE_MOST_S), e);
}

/* Neither is it committed by a rank that the supervisor may have given up: the generation that follows may
 * train by then. What is left to do then is to write the manifest and to rename the attempt. If that takes so
 * long that the next generation has begun, the checkpoint is late, but whole: the next one of the step
 * replaces it. Copies in memory wait for the same. */
static int may_commit(void *arg, int64_t step, struct err *e)
{
	const struct trainer *t = arg;
	return await_series(arg, step, e) || t->hooks->await_contact(t->hooks->arg, e) ? -1 : 0;
}

int trainer_open(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	const struct coords *at = &env->view->at;
	double since = clock_s();
	train_stepper_init(&t->stepper, t->job);
	t->watch = (struct ckpt_watch){ on_piece, t };
	t->gate = (struct ckpt_gate){ may_commit, t };
	t->reports = at->pp == env->view->layout.pp - 1 && at->tp == 0 && at->cp == 0 &&
		     at->dp == 0;
	if (t->job->job.device == DEVICE_CUDA &&
	    ckpt_local_lead(env->world, env->node * env->view->layout.pp + at->pp, &t->leads, e))
		return -1;
	if (train_step_trace_open(env->view, env->world, env->run_dir, env->generation, t->hooks,
				  &t->trace, e))
		return -1;
	trainer_phase(t, "open data");
	if (open_data(t, e))
		return -1;
	train_phases_lap(env->phases, "data", &since);
	trainer_phase(t, "open model");
	if (open_model(t, e))
		return -1;
	train_phases_lap(env->phases, "model", &since);
	trainer_phase(t, "load state");
	if (open_checkpoints(t, e) || start_state(t, e) || resume_window(t, e) ||
	    train_choices_begin(env->world, env->view, pipeline_backend(t->engine), env->run_dir,
				t->at.step, &t->choices, e) ||
	    (t->server && param_server_start(t->server, t->at.step, e)) || begin_samples(t, e) ||
	    trainer_memory_open(t, e) || begin_steps(t, e))
		return -1;
	if (t->job->checkpoint.every > 0 || t->local.dir[0])
		train_state_prepare_save(t->writer, &t->state);
	train_phases_lap(env->phases, "state", &since);
	return 0;
}

void trainer_close(struct trainer *t)
{
	train_step_trace_close(t->trace);
	train_stepper_fini(&t->stepper);
	ckpt_mirror_close(t->mirror);
	ckpt_writer_close(t->writer);
	param_server_close(t->server);
	optim_close(t->optim);
	train_choices_close(t->choices);
	pipeline_close(t->engine);
	train_samples_close(t->samples);
	json_decref(t->model);
	json_decref(t->layout);
	free(t->whole);
	ckpt_attached_fini(&t->attached);
}
