/*
 * pp — activations and gradients between neighboring pipeline ranks.
 *
 * pp_send and pp_recv_start do not wait for the other rank, except that a device's library connects
 * the two at their first message. The buffer belongs to the transfer until pp_wait. The messages of
 * a channel (groups.h) arrive in the order of their sends. All ranks must start them in a common
 * order (plan/spec/schedule/messages.h).
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_PP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_PP_H

#include "agent/engine/parallel/groups.h"

struct pp {
	const struct groups *groups; /* borrowed */
	enum comm_type type;         /* of activations */
	size_t count;                /* elements of a message */
	double seconds;              /* waited here; the reader resets it */
};

int pp_send(struct pp *p, enum pp_message kind, enum pp_side to, void *x, struct comm_request **req,
	    struct err *e);
int pp_recv_start(struct pp *p, enum pp_message kind, enum pp_side from, void *x,
		  struct comm_request **req, struct err *e);
/* Waits until the buffer of *req is free again, and sets *req to NULL. Accepts *req NULL. */
int pp_wait(struct pp *p, struct comm_request **req, struct err *e);

#endif
