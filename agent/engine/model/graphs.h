/*
 * graphs — records the passes of a micro-batch as CUDA graphs and replays them. The device then
 * receives a whole pass at once instead of one operation after the other.
 *
 * There is one graph per pass, chunk and slot, because it reads and writes the slot's tensors.
 * Values that differ between micro-batches are in the slot, and are set before the pass (inputs.c).
 * The gradients' scale and whether documents are masked are fixed in a graph; if they change, the
 * pass is recorded again. Whether each gradient is set or added to is fixed too. A pass therefore
 * has GRAPH_VARIANTS graphs: a step's first micro-batch sets, and the others add. A replay gives the
 * same bits as running the pass.
 *
 * A pass is recorded only if all of its work is on the device. It must not exchange data with other
 * ranks (tp, cp, a mixture of experts, gradients that are reduced during the last backward pass,
 * parameters that are gathered during the first forward pass) or with host memory (offload). All
 * other passes run operation by operation. So does the first run of each pass, in which the backend
 * selects its algorithms, also when these change after the first step (base/choices.h).
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

/* Runs the pass: calls `run`, or replays its graph. */
int model_graphs_run(struct pass *p, enum pass_graph_kind kind,
		     int (*run)(struct pass *p, struct err *e), struct err *e);

/* Calls of the parameter store during a pass (units.c). A replay repeats them. */
enum store_call {
	STORE_CALL_HOLD,
	STORE_CALL_RELEASE,
	STORE_CALL_GRADS,
	STORE_CALL_CONTRIBUTE,
	STORE_CALL_REDUCE
};
void model_graphs_note_call(struct model *m, enum store_call call, int unit, bool ends);
void model_graphs_note_grads(struct model *m, int unit, struct grad_range r, bool add);

#endif
