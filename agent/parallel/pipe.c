#include "agent/parallel/pipe.h"

#include "base/clock.h"

/* In a boundary's groups rank 0 is the stage before, rank 1 the one after (groups.c splits with the stage as key). */
enum { BEFORE, AFTER };

static int receive(struct pipe *p, struct comm *c, void *x, size_t count, int from, struct err *e)
{
	double start = clock_s();
	int rc = comm_recv(c, x, count, p->type, from, e);
	p->seconds += clock_s() - start;
	return rc;
}

static int send_start(const struct pipe *p, struct comm *c, void *x, size_t count, int to, struct comm_request **req, struct err *e)
{
	struct comm_p2p op = { .send = true, .data = x, .count = count, .type = p->type, .peer = to };
	return comm_group_start(c, &op, 1, req, e);
}

int pipe_recv_act(struct pipe *p, void *x, size_t count, struct err *e)
{
	return receive(p, p->groups->act_in, x, count, BEFORE, e);
}

int pipe_recv_grad(struct pipe *p, void *x, size_t count, struct err *e)
{
	return receive(p, p->groups->grad_in, x, count, AFTER, e);
}

int pipe_send_act(struct pipe *p, void *x, size_t count, struct comm_request **req, struct err *e)
{
	return send_start(p, p->groups->act_out, x, count, AFTER, req, e);
}

int pipe_send_grad(struct pipe *p, void *x, size_t count, struct comm_request **req, struct err *e)
{
	return send_start(p, p->groups->grad_out, x, count, BEFORE, req, e);
}

int pipe_wait(struct pipe *p, struct comm_request **req, struct err *e)
{
	struct comm_request *r = *req;
	if (!r)
		return 0;
	*req = NULL;
	double start = clock_s();
	int rc = comm_wait(r, e);
	p->seconds += clock_s() - start;
	return rc;
}
