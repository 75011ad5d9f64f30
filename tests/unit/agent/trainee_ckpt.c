/* Checkpoints of a trainee. */
#include "agent/engine/train/resume.h"
#include "tests/unit/agent/trainee.h"

#include <stdlib.h>

int trainee_load(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e)
{
	json_t *model = train_state_model(pipeline_shape(t->engine));
	struct train_origin from;
	int rc = train_resume(t->world, "auto", &(struct train_tiers){ .dir = dir }, NULL, model,
			      &t->state, at, &from, e);
	json_decref(model);
	if (rc == 0)
		return err_set(e, ERR_NOTFOUND, "%s: there is no checkpoint to go on from", dir);
	return rc < 0 ? -1 : 0;
}

int trainee_resume(const struct tiny *model, const struct job *job, struct comm *world,
		   const char *backend_name, int threads, const char *dir, struct trainee *t,
		   struct err *e)
{
	if (!dir)
		return trainee_open(model, job, world, backend_name, threads, t, e);
	return trainee_open_as(model, job, world, backend_name, threads, trainee_load, dir, t, e);
}

static int write_checkpoint(struct trainee *t, const char *dir, const struct ckpt_state *at,
			    struct err *e)
{
	struct ckpt_tensor *whole;
	struct ckpt_writer *w = NULL;
	int n;
	if (train_state_whole(pipeline_shape(t->engine), t->job.optimizer.kind,
			      t->state.scales != NULL, &whole, &n, e))
		return -1;
	json_t *model = train_state_model(pipeline_shape(t->engine)), *layout = json_object();
	const struct ckpt_options opt = { .dir = dir,
					  .generation = 1,
					  .model = model,
					  .layout = layout,
					  .expect = whole,
					  .n_expect = n };
	int rc = ckpt_writer_open(t->world, &opt, &w, e) ||
				 train_state_save(w, CKPT_TO_DIR, at, &t->state, e) ||
				 ckpt_wait(w, e)
			 ? -1
			 : 0;
	ckpt_writer_close(w);
	json_decref(model);
	json_decref(layout);
	free(whole);
	return rc;
}

int trainee_save(struct trainee *t, const char *dir, int step, struct err *e)
{
	const struct ckpt_state at = {
		.step = step,
		.samples = step * t->job.batch.global,
		.seed = t->job.job.seed,
		.total_steps = t->job.job.steps,
	};
	t->failed = (t->server && param_server_pause(t->server, e)) ||
		    write_checkpoint(t, dir, &at, e) ||
		    (t->server && param_server_resume(t->server, e));
	return t->failed ? -1 : 0;
}
