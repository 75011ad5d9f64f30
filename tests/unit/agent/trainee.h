/* trainee — one rank of a job on a tiny model: engine, optimizer, and the batches of tiny.h. */
#ifndef MUSTER_TESTS_UNIT_AGENT_TRAINEE_H
#define MUSTER_TESTS_UNIT_AGENT_TRAINEE_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/server/server.h"
#include "agent/engine/train/state.h"
#include "tests/unit/agent/tiny.h"

#include <stdint.h>

struct trainee {
	const struct tiny *model;
	struct job job;
	struct layout layout;
	struct coords at;
	struct comm *world;
	struct engine *engine;
	struct optim *optim;
	struct param_server *server; /* NULL: all-reduce, and then optim is not */
	struct state_view view;      /* what a checkpoint holds of it */
	bool failed;                 /* a step has */
	int from;                    /* steps that its checkpoint had behind it; 0: none */
	/* sequences of this dp rank in a step; its first one in the global batch */
	int64_t each, first;
	int32_t *inputs, *targets, *starts; /* starts NULL: documents are mixed */
};

/* Words of a job (section.key=value …) for tiny model t, `more` behind them: a NULL-terminated
 * list, or NULL. ERR_USAGE where the job's keys contradict each other. */
int trainee_job(const struct tiny *t, const char *const *more, struct job *out, struct err *e);

/* Collective, and so is closing one that has not failed. The parameters begin as the model's,
 * shaken (tiny_shake). */
int trainee_open(const struct tiny *t, const struct job *job, struct comm *world,
		 const char *backend_name, int threads, struct trainee *out, struct err *e);
/* The same, its state begun by `start`: from `dir`, setting at->step to the steps that it has
 * behind it. */
typedef int trainee_start(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e);
int trainee_open_as(const struct tiny *t, const struct job *job, struct comm *world,
		    const char *backend_name, int threads, trainee_start *start, const char *dir,
		    struct trainee *out, struct err *e);
/* As trainee_open, but it goes on from the newest checkpoint in the folder `dir` (NULL: from the
 * beginning). */
int trainee_resume(const struct tiny *t, const struct job *job, struct comm *world,
		   const char *backend_name, int threads, const char *dir, struct trainee *out,
		   struct err *e);
/* Collective, after `step` steps: a checkpoint in `dir`, committed. */
int trainee_save(struct trainee *t, const char *dir, int step, struct err *e);
void trainee_close(struct trainee *t);
/* The device of this process's trainees, on backends that have devices. */
extern int trainee_device;

/* The step's batch: four in turn, so that they are learned. */
void trainee_read(struct trainee *t, int step);
/* Forward, backward and update. */
int trainee_step(struct trainee *t, int step, double *loss, double *norm, struct err *e);
/* The loss of step `step`'s batch alone. */
int trainee_eval(struct trainee *t, int step, double *loss, struct err *e);

/* The catalogue of the whole model in one rank; to be freed. */
int trainee_whole(const struct model_shape *s, struct catalogue *out, struct err *e);
/* Writes the masters (or gradients) that this rank counts into `flat`, laid out by `whole`. */
int trainee_gather(const struct trainee *t, const struct catalogue *whole, bool grads, float *flat,
		   struct err *e);

#endif
