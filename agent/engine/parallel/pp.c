#include "agent/engine/parallel/pp.h"

#include "base/clock.h"

/* The rank at a side, in the group of all pipeline ranks. */
static int neighbor(const struct comm *pipe, enum pp_side side)
{
	int size = comm_size(pipe);
	return (comm_rank(pipe) + (side == PP_NEXT ? 1 : size - 1)) % size;
}

/* A channel is a group of two, or part of the group of all. */
static int start_message(struct pp *p, struct comm *channel, enum pp_side side, bool send, void *x,
			 struct comm_request **req, struct err *e)
{
	struct comm *pipe = p->groups->pipe;
	struct comm_p2p op = { .send = send,
			       .data = x,
			       .count = p->count,
			       .type = p->type,
			       .peer = pipe ? neighbor(pipe, side) : 1 - comm_rank(channel) };
	return comm_batch_send_recv_start(pipe ? pipe : channel, &op, 1, req, e);
}

int pp_send(struct pp *p, enum pp_message kind, enum pp_side to, void *x, struct comm_request **req,
	    struct err *e)
{
	return start_message(p, p->groups->out[kind][to], to, true, x, req, e);
}

int pp_recv_start(struct pp *p, enum pp_message kind, enum pp_side from, void *x,
		  struct comm_request **req, struct err *e)
{
	return start_message(p, p->groups->in[kind][from], from, false, x, req, e);
}

int pp_wait(struct pp *p, struct comm_request **req, struct err *e)
{
	struct comm_request *r = *req;
	if (!r)
		return 0;
	*req = NULL;
	double begin = clock_s();
	int rc = comm_wait(r, e);
	p->seconds += clock_s() - begin;
	return rc;
}
