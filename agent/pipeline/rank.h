/* rank — the body of an engine, for the files of agent/pipeline. */
#ifndef MUSTER_AGENT_PIPELINE_RANK_H
#define MUSTER_AGENT_PIPELINE_RANK_H

#include "agent/model/model.h"
#include "agent/parallel/cp.h"
#include "agent/parallel/ep.h"
#include "agent/parallel/groups.h"
#include "agent/parallel/pipe.h"
#include "agent/parallel/store.h"
#include "agent/parallel/tp.h"
#include "agent/pipeline/engine.h"
#include "plan/schedule.h"

#include <stdbool.h>

/* A slot of the model: whether a micro-batch lives there, and the messages that still read its buffers. */
struct berth {
	bool taken;
	struct comm_request *act_sent, *grad_sent;
};

struct engine {
	const struct job *job;
	struct model_shape shape;
	struct layout layout;
	struct coords at;
	struct stage *stages;       /* all of the model's */
	struct stage stage;
	struct kern *kern;
	struct groups groups;
	struct tp tp;
	struct cp cp;
	struct ep ep;
	struct pipe pipe;
	struct catalogue catalogue;
	struct store *store;
	struct model *model;
	int64_t micro_tokens;       /* of a micro-batch */
	int64_t global_tokens;      /* of an optimizer step */
	int micros, slots;
	struct schedule schedule;
	struct schedule forwards;   /* an evaluation's */
	struct berth *berths;       /* [slots] */
	int *slot_of;               /* [micros]; -1: none yet */
	int next_slot;
	struct engine_times times;
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Walks a row once over this rank's micro-batches; *loss is the sum of the token losses seen here (0 before the last stage). */
int walk_row(struct engine *g, const struct sched_row *row, const struct engine_batch *batch, bool backward, double *loss, struct err *e);
/* Waits for every message under way; the first error stays. */
int walk_settle(struct engine *g, struct err *e);

#endif
