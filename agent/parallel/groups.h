/*
 * groups — the communicators of one rank, split from the world.
 *
 * tp: the ranks that share a layer's matrices. dp: those that hold the same
 * parameters for other samples. model: tp × pp, one whole copy of the model,
 * over which norms are summed. embed: first and last stage with equal tp and
 * dp, when they both hold the tied table. A group of one rank is NULL: whoever
 * uses it does nothing then.
 *
 * A boundary between two pipeline stages has one group of two for activations
 * and one for gradients. Each carries messages one way only, so a send under
 * way never stands in front of a receive.
 */
#ifndef MUSTER_AGENT_PARALLEL_GROUPS_H
#define MUSTER_AGENT_PARALLEL_GROUPS_H

#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/layout.h"

#include <stdbool.h>

struct groups {
	struct comm *world; /* borrowed */
	struct comm *tp, *dp, *model, *embed;
	struct comm *act_in, *grad_out; /* with the stage before */
	struct comm *act_out, *grad_in; /* with the stage after */
};

/* Collective over world, whose ranks are in the layout's order. */
int groups_open(struct comm *world, const struct layout *l, struct coords at, bool tied,
		struct groups *out, struct err *e);
void groups_close(struct groups *g);

#endif
