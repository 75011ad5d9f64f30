/*
 * tapes — passes of a micro-batch that are recorded once and replayed (CUDA graphs): a device then
 * gets a pass at once instead of operation by operation.
 *
 * A pass is recorded for each chunk and slot, whose tensors it reads and writes. What is another in
 * each micro-batch lies in the slot and is put before (places.c); what is part of the recorded
 * calls, the gradients' scale and whether documents are masked, has the pass recorded anew when it
 * changes. Replaying gives the same bits as carrying the pass out.
 *
 * Only what keeps to the device is recorded: no transfer between ranks may be in the pass (tp, cp,
 * a mixture of experts, gradients that leave during the last backward pass, parameters that come
 * during the first forward pass), nor one to the host's memory (offload). Others are carried out as
 * ever, and so is each pass when it comes for the first time, which lets the backend choose its
 * ways.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_GRAPHS_H
#define MUSTER_AGENT_ENGINE_MODEL_GRAPHS_H

#include "agent/engine/model/stage.h"

enum tape_kind {
	TAPE_FORWARD,
	TAPE_EVALUATION,
	TAPE_BACKWARD,
	TAPE_INPUT,
	TAPE_WEIGHT,
	TAPE_KINDS
};

int model_tapes_open(struct model *m, struct err *e);
void model_tapes_close(struct model *m);

/* Carries the pass out, by `run` or by its tape. */
int model_tapes_run(struct pass *p, enum tape_kind kind, int (*run)(struct pass *p, struct err *e),
		    struct err *e);

/* units.c: the store is asked for this while a pass runs; a replay asks it for the same. */
enum tape_call { TAPE_HOLD, TAPE_DROP, TAPE_GRADS, TAPE_DONE };
void model_tapes_note(struct model *m, enum tape_call call, int unit, bool ends);

#endif
