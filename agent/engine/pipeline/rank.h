/* rank — the body of an engine, for the files of agent/pipeline. */
#ifndef MUSTER_AGENT_ENGINE_PIPELINE_RANK_H
#define MUSTER_AGENT_ENGINE_PIPELINE_RANK_H

#include "agent/engine/model/model.h"
#include "agent/engine/parallel/cp.h"
#include "agent/engine/parallel/ep.h"
#include "agent/engine/parallel/groups.h"
#include "agent/engine/parallel/pipe.h"
#include "agent/engine/parallel/param_store.h"
#include "agent/engine/parallel/tp.h"
#include "agent/engine/pipeline/engine.h"
#include "plan/spec/schedule/schedule.h"
#include "plan/spec/schedule/timeline.h"

#include <stdbool.h>

/* A slot of the model: whether a micro-batch lives there, and the messages that still read its
 * buffers. */
struct slot_state {
	bool taken;
	struct comm_request *act_sent, *grad_sent;
};

/* One of this rank's chunks on its way through a row. */
struct chunk_state {
	struct slot_state *slot_states; /* [slots], those of the model */
	int slots, next_slot;
	int *slot_of; /* [micros]; -1: none yet */
	/* the rank's own chunk with the stage before and after; -1: another rank has it, or
	 * there is none */
	int before, after;
	/* where activations come from and go to; gradients the other way */
	enum pipe_side from, to;
};

/* Receives of one channel, in the order of the row: the next one is started as soon as its
 * buffer is free. */
struct inbox {
	/* the row's step that is to be received next; its end: none */
	int next;
	bool started;
	struct comm_request *request;
};

struct engine {
	const struct job *job;
	struct model_shape shape;
	struct layout layout;
	struct coords at;
	struct stage *stages; /* all of the model's */
	struct stage chunks[LAYOUT_CHUNKS_MOST];
	struct backend *backend;
	struct groups groups;
	struct tp tp;
	struct cp cp;
	struct ep ep;
	struct pipe pipe;
	struct catalogue catalogue;
	struct param_store *store;
	struct model *model;
	int64_t micro_tokens;  /* of a micro-batch */
	int64_t global_tokens; /* of an optimizer step */
	int micros;
	struct schedule schedule;
	struct schedule forwards; /* an evaluation's */
	struct chunk_state *chunk_states;     /* [layout.chunks] */
	struct inbox inboxes[PIPE_KINDS][PIPE_SIDES];
	struct timeline timeline; /* of the last training step */
	struct engine_times times;
	struct engine_losses losses; /* of the last training step */
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Walks a row once over this rank's micro-batches; the model has the sum of the token losses
 * seen here (0 before the last stage). */
int pipeline_run_row(struct engine *g, const struct sched_row *row,
		      const struct engine_batch *batch, bool backward, struct err *e);
/* Waits for every message under way; the first error stays. */
int pipeline_wait_messages(struct engine *g, struct err *e);

/* --- What a row is walked with (tracks.c, receive.c) --- */

/* Slots and inboxes as at the begin of a row. */
int pipeline_slots_open(struct engine *g, struct err *e);
void pipeline_slots_close(struct engine *g);
void pipeline_slots_begin(struct engine *g, const struct sched_row *row);
/* The micro-batch's slot; a free one when it has none yet. -1: there is none. */
int pipeline_slot_find(struct engine *g, int chunk, int micro);
struct slot_state *pipeline_slot_state(struct engine *g, int chunk, int micro);
void pipeline_slot_release(struct engine *g, int chunk, int micro);

/* Until the message of this RECV_ACT or RECV_GRAD is in the model's buffer. */
int pipeline_receive(struct engine *g, const struct sched_row *row, const struct sched_step *step,
		     struct err *e);
/* Starts what can be received ahead of need. */
int pipeline_receive_ahead(struct engine *g, const struct sched_row *row, struct err *e);

#endif
