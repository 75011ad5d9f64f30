/*
 * pipe — activations and gradients between neighbouring pipeline stages.
 *
 * A send starts and returns; its buffer belongs to it until pipe_wait. A receive
 * waits. Messages of one direction arrive in the order of their sends.
 */
#ifndef MUSTER_AGENT_PARALLEL_PIPE_H
#define MUSTER_AGENT_PARALLEL_PIPE_H

#include "agent/parallel/groups.h"

struct pipe {
	const struct groups *groups; /* borrowed */
	enum comm_type type;         /* of activations */
	double seconds;              /* waited; the reader sets it back */
};

int pipe_recv_act(struct pipe *p, void *x, size_t count, struct err *e);
int pipe_recv_grad(struct pipe *p, void *x, size_t count, struct err *e);
int pipe_send_act(struct pipe *p, void *x, size_t count, struct comm_request **req, struct err *e);
int pipe_send_grad(struct pipe *p, void *x, size_t count, struct comm_request **req, struct err *e);
/* Waits until the buffer of *req is free again and sets *req to NULL; NULL is done. */
int pipe_wait(struct pipe *p, struct comm_request **req, struct err *e);

#endif
