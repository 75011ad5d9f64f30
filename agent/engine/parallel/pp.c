#include "agent/engine/parallel/pp.h"

#include "base/clock.h"

/* A channel is a group of two. */
static int peer_of(const struct comm *c)
{
	return 1 - comm_rank(c);
}

static int start_message(struct pp *p, struct comm *c, bool send, void *x,
			 struct comm_request **req, struct err *e)
{
	struct comm_p2p op = {
		.send = send, .data = x, .count = p->count, .type = p->type, .peer = peer_of(c)
	};
	return comm_batch_send_recv_start(c, &op, 1, req, e);
}

int pp_send(struct pp *p, enum pp_message kind, enum pp_side to, void *x, struct comm_request **req,
	    struct err *e)
{
	return start_message(p, p->groups->out[kind][to], true, x, req, e);
}

int pp_recv_start(struct pp *p, enum pp_message kind, enum pp_side from, void *x,
		  struct comm_request **req, struct err *e)
{
	return start_message(p, p->groups->in[kind][from], false, x, req, e);
}

int pp_recv(struct pp *p, enum pp_message kind, enum pp_side from, void *x, struct err *e)
{
	struct comm *c = p->groups->in[kind][from];
	double begin = clock_s();
	int rc = comm_recv(c, x, p->count, p->type, peer_of(c), e);
	p->seconds += clock_s() - begin;
	return rc;
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
