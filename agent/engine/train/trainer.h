/* trainer — the state of a training run, for the files of this folder: train.c has the loop,
 * train_open.c its start, train_save.c its checkpoints. A step itself is the stepper's. */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TRAINER_H
#define MUSTER_AGENT_ENGINE_TRAIN_TRAINER_H

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/places/local.h"
#include "agent/engine/ckpt/memory/mirror.h"
#include "agent/engine/ckpt/places/upload.h"
#include "agent/engine/train/agree_choices.h"
#include "agent/engine/train/copy_pace.h"
#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/samples.h"
#include "agent/engine/server/server.h"
#include "agent/engine/train/resume.h"
#include "agent/engine/train/step_trace.h"
#include "agent/engine/train/stepper.h"
#include "agent/engine/train/train.h"

/* With a stepper that reads late: the step whose numbers are not known. */
struct late {
	struct step_report report;
	int64_t step, samples; /* where the run was before it */
	enum train_plant plant;
	double waited; /* seconds of the wait for it during the next step */
};

struct trainer {
	const struct train_env *env;
	const struct job *job; /* of env->view */
	const struct train_hooks *hooks;
	struct samples *samples;
	struct engine *engine;
	struct train_choices *choices; /* until the first step is done; NULL: nothing is chosen */
	struct optim *optim;           /* this rank's; NULL with a parameter server */
	struct stepper stepper;
	struct stepper_hooks stepper_hooks;
	struct param_server *server; /* NULL: all-reduce */
	bool stops, saves;           /* the server's workers have agreed to stop, or to save */
	int saved_for; /* the number of the last checkpoint that was asked for, and is begun */
	int64_t asked; /* its step, on world rank 0, until it is committed; -1: none */
	struct ckpt_writer *writer;
	struct train_state state;
	struct ckpt_watch watch;
	struct ckpt_gate gate, copy_gate;
	json_t *model, *layout; /* for the checkpoints, as is `whole` */
	struct ckpt_tensor *whole;
	int n_whole;
	/* on world rank 0: the model's files, which go into each checkpoint */
	struct attached attached;
	char ckpt_dir[JOB_PATH];
	struct ckpt_local local; /* dir "": the job has no local tier */
	struct upload_rules uploads;
	bool local_skipped;         /* a save to it was left out; it was reported */
	struct ckpt_mirror *mirror; /* NULL: there are no copies in memory */
	int64_t copied;             /* the step of the last one, or where the run continued */
	int64_t continued;          /* where the run continued */
	struct copy_pace pace;
	int64_t copy_every; /* with memory_every = -1: steps from one to the next, as reported */
	int pace_skips;     /* so many steps are not measured yet */
	struct train_origin from; /* where the state came from */
	struct ckpt_state at;     /* the current position of the run */
	int64_t skipped;          /* samples that the run had skipped where it continues */
	double loss;              /* of the last step; NaN before it */
	int64_t saved;            /* step of the last checkpoint, -1: none */
	enum train_plant plant;   /* of the current step */
	bool poison;              /* its gradients become NaN */
	bool reports;             /* this rank reports each step to the supervisor */
	bool leads;               /* the first rank of its stage on its node */
	struct phases spent;      /* seconds of each phase of training */
	struct step_trace *trace; /* NULL: not open */
	int traced_for;           /* the number of the last request to record steps */
	/* seconds between the last step and the next, without evaluations, and the part of them
	 * that a checkpoint took */
	double gap_s, stall_s;
	struct train_times times;
	struct late late;
};

/* train.c. What the stepper calls of this trainer. */
struct stepper_hooks trainer_stepper_hooks(struct trainer *t);

/* train_open.c. Opens data and model and loads the state that the run starts from.
 * trainer_close may follow a failed trainer_open. */
int trainer_open(struct trainer *t, struct err *e);
void trainer_close(struct trainer *t);

/* The rank begins this phase, a literal, of the current step. */
void trainer_phase(const struct trainer *t, const char *name);

/* bad_step.c. One of these hooks: diagnoses the step and reports it. arg: the trainer. */
void trainer_bad_step(void *arg, const struct step_result *r, const struct bad_number *bad,
		      struct err *e);

/* train_save.c. The tiers in which a checkpoint is due after the current step (enum
 * ckpt_where). */
unsigned trainer_save_due(const struct trainer *t);
/* Starts a checkpoint of the current state in these tiers; it is written while training continues.
 * One that is due in the local tier alone is left out while one is being written to the
 * folder that all share, because training would have to wait for it. */
int trainer_save(struct trainer *t, unsigned where, struct err *e);
/* Sets the numbers of t->at that a checkpoint of the current state holds. */
int trainer_set_numbers(struct trainer *t, struct err *e);
/* Collective, between two steps. Somebody has asked for a checkpoint, with this number: starts it,
 * unless there is one of this step. */
int trainer_save_asked(struct trainer *t, int number, struct err *e);
/* Reports checkpoints that became durable to the supervisor, and one that somebody has asked for and
 * that has failed. */
void trainer_report_commits(struct trainer *t);
/* Waits for the commit of the last save; `last`: no step follows it (train.h). */
int trainer_commit(struct trainer *t, bool last, struct err *e);

/* train_memory.c: copies in memory, if the job wants them. Collective, when the state is loaded. */
int trainer_memory_open(struct trainer *t, struct err *e);
/* Collective. A state that came from memory is copied again, because new ranks hold nothing of it. */
int trainer_memory_renew(struct trainer *t, struct err *e);
bool trainer_memory_busy(const struct trainer *t);
/* A step took so long; copying: a copy was in progress when it began. */
void trainer_memory_note(struct trainer *t, double seconds, bool copying);
/* checkpoint.memory_every = N: whether a copy is due after the current step, on all ranks. */
bool trainer_memory_due(const struct trainer *t);
/* memory_every = -1: whether this rank is ready for a copy after the current step. */
bool trainer_memory_ready(const struct trainer *t);
/* Collective. Copies the state; the copy is completed while training continues. */
int trainer_memory_take(struct trainer *t, struct err *e);

#endif
