/* rank — the body of an engine. Only files of agent/engine/pipeline include this. */
#ifndef MUSTER_AGENT_ENGINE_PIPELINE_RANK_H
#define MUSTER_AGENT_ENGINE_PIPELINE_RANK_H

#include "agent/engine/model/model.h"
#include "agent/engine/parallel/cp.h"
#include "agent/engine/parallel/ep.h"
#include "agent/engine/parallel/groups.h"
#include "agent/engine/parallel/pp.h"
#include "agent/engine/parallel/param_store.h"
#include "agent/engine/parallel/tp.h"
#include "agent/engine/pipeline/engine.h"
#include "plan/spec/schedule/messages.h"
#include "plan/spec/schedule/schedule.h"
#include "plan/spec/schedule/timeline.h"

#include <stdbool.h>

/* A slot of the model: whether it holds a micro-batch, and the transfers that write or read its
 * buffers. */
struct slot_state {
	bool taken;
	struct comm_request *act_received, *grad_received, *act_sent, *grad_sent;
};

/* The state of one of this rank's chunks during a row. */
struct chunk_state {
	struct slot_state *slot_states; /* [slots] of the model */
	int slots, next_slot;
	int began_at; /* next_slot when the row began */
	int *slot_of; /* [micro-batches]; -1: none yet */
	/* this rank's chunk with the previous and the next stage; -1: another rank has the stage,
	 * or it does not exist */
	int before, after;
	enum pp_side from, to; /* of activations; gradients travel in the opposite direction */
};

struct engine {
	const struct rank_view *view;
	struct backend *backend;
	struct groups groups;
	struct backend_source memory; /* of the groups' library; zeros: there is none */
	struct tp tp;
	struct cp cp;
	struct ep ep;
	struct pp pipe;
	struct catalogue catalogue;
	struct param_store *store;
	struct model *model;
	struct schedule schedule;
	struct schedule forwards;         /* for evaluations */
	struct chunk_state *chunk_states; /* [layout.chunks] */
	/* of this rank's rows of the two tables */
	struct sched_messages messages, forwards_messages;
	int started;              /* messages of the row in progress */
	struct timeline timeline; /* of the last training step */
	struct engine_times times;
	struct engine_losses losses; /* of the last training step */
	/* in the backend's memory: the one here, or the device's */
	struct step_numbers numbers_here, *numbers;
	struct step_numbers *numbers_read; /* a device's copy of them in pinned memory */
	double scale_there;                /* numbers->loss_scale; 0: not set */
	double local_loss; /* this rank's sum of token losses in the last training step */
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Executes this rank's row of training, or of an evaluation, once over its micro-batches.
 * Afterwards the model has the sum of the token losses of this rank (0 before the last stage). */
int pipeline_run_row(struct engine *g, bool backward, const struct engine_batch *batch,
		     struct err *e);

/* --- Slots and messages (slots.c, messages.c) --- */

int pipeline_slots_open(struct engine *g, struct err *e);
void pipeline_slots_close(struct engine *g);
/* Resets the slots for a row. */
void pipeline_slots_begin(struct engine *g);
/* The micro-batch's slot. Takes a free one if it has none yet. -1: no slot is free. */
int pipeline_slot_find(struct engine *g, int chunk, int micro);
struct slot_state *pipeline_slot_state(struct engine *g, int chunk, int micro);
void pipeline_slot_release(struct engine *g, int chunk, int micro);

/* Whether messages come before the row's step `at` that are not started yet; starts them. */
bool pipeline_starts_messages(const struct engine *g, const struct sched_messages *list, int at);
int pipeline_start_messages(struct engine *g, const struct sched_row *row,
			    const struct sched_messages *list, int at, struct err *e);
/* Returns when the message of this RECV_ACT or RECV_GRAD is in the model's buffer. */
int pipeline_receive(struct engine *g, const struct sched_step *step, struct err *e);
/* Waits for all messages in progress, also after a failure. Reports the first error. */
int pipeline_wait_messages(struct engine *g, struct err *e);

#endif
