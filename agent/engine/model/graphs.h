/*
 * graphs — records the passes of a micro-batch as CUDA graphs and replays them. The device then
 * receives a whole pass at once instead of one operation after the other.
 *
 * There is one graph per pass, chunk and slot, because it reads and writes the slot's tensors.
 * Values that differ between micro-batches are in the slot, and are set before the pass
 * (inputs.c). Whether documents are masked is fixed in a graph; if that changes, the pass is
 * recorded again. Fixed are also whether each gradient is set or added to, and under zero 2 and 3
 * the state in which the pass finds the store's buffers (param_store_state). A pass therefore has
 * GRAPH_VARIANTS graphs: a step's first micro-batch sets, and the others add. If there are more
 * states, or a state is rare, as after an evaluation, passes in it run without a graph. A replay
 * gives the same bits as running the pass.
 *
 * A pass is recorded only if all of its work is on the device. Collectives of tp, messages of cp,
 * exchanges of ep, gathers of parameters under zero 3, and reductions of gradients are recorded too
 * if the device's library runs them (parallel_graph_fits). Gradients are reduced during each pass
 * under zero 2 and 3, and otherwise during the step's last backward pass, which has graphs of its
 * own then. So has a pass that waits for parameters that are still being gathered: its graph waits
 * for each gather where the pass does, and casts the layer's weights there with precision.fp8. These
 * passes run operation by operation: all with offload, with groups whose data goes through the host,
 * and with experts whose counts of rows the host needs (model_route_counts_stay; under ep it does
 * not with a capacity); evaluations under zero 3, whose gathers are not in the order of a step, and
 * its first step, which learns that order. So does the first run of each pass, in which the backend
 * selects its algorithms, also when these change after the first step (base/choices.h).
 *
 * One graph for a whole step would save 2 × micro-batches × chunks launches of about 5 µs, for which
 * the device does not wait, because the host is a step ahead. The inputs of the micro-batches and the
 * messages of the pipeline would have to be fixed in it.
 *
 * All ranks of a group record the same passes and replay them in the same order, because they
 * execute the same schedule and share the job's documents and the choices. Whatever makes one rank
 * alone run a pass differently must switch off graphs for all (agent_drill_armed); a failure to
 * record ends the job.
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
