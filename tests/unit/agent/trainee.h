/* trainee — one rank of a job on a tiny model, with engine, optimizer and the batches
 * of tiny.h. */
#ifndef MUSTER_TESTS_UNIT_AGENT_TRAINEE_H
#define MUSTER_TESTS_UNIT_AGENT_TRAINEE_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/server/server.h"
#include "agent/engine/train/state.h"
#include "agent/engine/train/stepper.h"
#include "tests/unit/agent/tiny.h"

#include <stdint.h>

struct trainee {
	const struct tiny *model;
	struct job job;
	struct rank_view view; /* of this rank; its job is `job` */
	struct comm *world;
	struct engine *engine;
	struct optim *optim;
	struct param_server *server; /* NULL: gradients are all-reduced; otherwise optim is NULL */
	struct train_state state;    /* what a checkpoint holds of the trainee */
	struct stepper stepper;      /* a test may set its hooks after opening */
	struct stepper_hooks hooks;
	struct comm *sums; /* of a late trainee whose engine has no device_world; else NULL */
	bool failed;       /* a step has failed */
	int from;          /* steps completed before its checkpoint; 0: no checkpoint */
	/* sequences of this dp rank per step; its first one in the global batch */
	int64_t each, first;
	int32_t *inputs, *targets, *starts; /* starts NULL: no document boundaries */
};

/* Builds the job of tiny model t from words (section.key=value …). `more` is a NULL-terminated
 * list of further words, or NULL. Returns ERR_USAGE if the job's keys contradict each other. */
int trainee_job(const struct tiny *t, const char *const *more, struct job *out, struct err *e);

/* Opens a trainee. The parameters start as the model's initial values plus noise (tiny_shake).
 * Opening is collective. Closing is also collective, except for a trainee that has failed. */
int trainee_open(const struct tiny *t, const struct job *job, struct comm *world,
		 const char *backend_name, int threads, struct trainee *out, struct err *e);
/* Opens a trainee as trainee_open does, but `start` initializes its state from `dir`. `start` sets
 * at->step to the number of completed steps. */
typedef int trainee_start(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e);
int trainee_open_as(const struct tiny *t, const struct job *job, struct comm *world,
		    const char *backend_name, int threads, trainee_start *start, const char *dir,
		    struct trainee *out, struct err *e);
/* Opens a trainee as trainee_open does, but continues from the latest checkpoint in the folder
 * `dir` (NULL: from the beginning). */
int trainee_resume(const struct tiny *t, const struct job *job, struct comm *world,
		   const char *backend_name, int threads, const char *dir, struct trainee *out,
		   struct err *e);
/* Collective. Loads the latest checkpoint in `dir` into the open trainee and sets *at to its
 * state. */
int trainee_load(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e);
/* Collective. Commits a checkpoint in `dir` after `step` steps. */
int trainee_save(struct trainee *t, const char *dir, int step, struct err *e);
void trainee_close(struct trainee *t);
/* The device that this process's trainees use, on backends that have devices. */
extern int trainee_device;
/* How trainees that are opened read a step's numbers (agent/engine/train/stepper.h): at once, unless
 * a test sets another way. Late works on every backend and with any number of ranks. */
extern enum train_reading trainee_reading;

/* Reads the batch of the step. There are 4 batches, used in turn, so that the model learns them. */
void trainee_read(struct trainee *t, int step);
/* Performs a step, as the trainer does. Loss and norm are those of the step, or, if numbers are read
 * late, those of the step before (NaN: there is none); then trainee_settle gives the last one's. */
int trainee_step(struct trainee *t, int step, double *loss, double *norm, struct err *e);
int trainee_settle(struct trainee *t, double *loss, double *norm, struct err *e);
/* Computes only the loss of step `step`'s batch. */
int trainee_eval(struct trainee *t, int step, double *loss, struct err *e);

/* Builds the catalogue of the whole model in one rank. The caller frees it. */
int trainee_whole(const struct model_shape *s, struct catalogue *out, struct err *e);
/* Writes the masters (or gradients) that this rank counts into `flat`, in the layout of `whole`. */
int trainee_gather(const struct trainee *t, const struct catalogue *whole, bool grads, float *flat,
		   struct err *e);

#endif
