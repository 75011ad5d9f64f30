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

enum pass_graph_kind {
	GRAPH_FORWARD,
	GRAPH_EVALUATION,
	GRAPH_BACKWARD,
	GRAPH_BACKWARD_INPUT,
	GRAPH_BACKWARD_WEIGHT,
	GRAPH_KINDS
};

int model_graphs_open(struct model *m, struct err *e);
void model_graphs_close(struct model *m);

/* Carries the pass out, by `run` or by its tape. */
int model_graphs_run(struct pass *p, enum pass_graph_kind kind,
		     int (*run)(struct pass *p, struct err *e), struct err *e);

/* units.c: the store is asked for this while a pass runs; a replay asks it for the same. */
enum store_call { STORE_CALL_HOLD, STORE_CALL_RELEASE, STORE_CALL_GRADS, STORE_CALL_REDUCE };
void model_graphs_note_call(struct model *m, enum store_call call, int unit, bool ends);

#endif
