/* trainer — the body of a training run, for this folder: train.c has the loop, train_open.c its
 * beginning, train_save.c its checkpoints. */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TRAINER_H
#define MUSTER_AGENT_ENGINE_TRAIN_TRAINER_H

#include "agent/engine/ckpt/carry.h"
#include "agent/engine/optim/optim.h"
#include "agent/engine/optim/scaler.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/samples.h"
#include "agent/engine/server/server.h"
#include "agent/engine/train/state.h"
#include "agent/engine/train/train.h"

struct trainer {
	const struct train_env *env;
	const struct job *job;
	const struct train_hooks *hooks;
	struct model_shape shape;
	struct samples *samples;
	struct engine *engine;
	struct optim *optim; /* the rank's own; NULL with a parameter server */
	struct scaler scaler;
	struct param_server *server; /* NULL: all-reduce */
	bool stops;                  /* the server's workers agreed to */
	struct ckpt_writer *writer;
	struct state_view view;
	struct ckpt_watch watch;
	struct ckpt_gate gate;
	json_t *model, *layout; /* for the checkpoints, as is `whole` */
	struct ckpt_tensor *whole;
	int n_whole;
	/* on world rank 0: what came with the model, and goes into each checkpoint */
	struct carry carry;
	char ckpt_dir[JOB_PATH];
	struct ckpt_state at; /* where the run stands */
	double loss;          /* of the last step; NaN before it */
	int64_t saved;        /* step of the last checkpoint, -1: none */
	bool reports;         /* this rank tells the supervisor of each step */
	struct phases spent;  /* in training */
	/* since the last step: between it and the next, without evaluations; of that, for a
	 * checkpoint */
	double gap_s, stall_s;
};

/* train_open.c. Data, model, state: what the run goes on from. Closing takes what a failed
 * opening has left. */
int trainer_open(struct trainer *t, struct err *e);
void trainer_close(struct trainer *t);

/* train_save.c. A checkpoint of where the run stands, written while training goes on. */
int trainer_save(struct trainer *t, struct err *e);
/* Tells the supervisor of checkpoints that have become durable. */
void trainer_report_commits(struct trainer *t);
/* Waits for the commit of what was saved last; `last`: nothing trains on behind it (train.h). */
int trainer_commit(struct trainer *t, bool last, struct err *e);

#endif
