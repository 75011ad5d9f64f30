/*
 * matrices — gathers the parts of each hidden matrix at one rank, and scatters the result.
 *
 * A matrix is split over the tensor-parallel ranks into boxes (plan/spec/model/model.h), and a
 * rank's box is split over the shards of its unit into runs (zero.h). The matrices of a class
 * (dense, experts) are numbered in catalogue order. With S shards and T tensor-parallel ranks,
 * matrix k belongs to shard k mod S of tensor-parallel rank (k / S) mod T. Parts travel in two
 * hops: over the shards into the boxes of shard k mod S, and from there over the tensor-parallel
 * group to the owner. S × T consecutive matrices form a round, in which no two matrices have the
 * same owner, so that all owners compute at once. Replicas that are copies of each other (zero.h)
 * compute the same.
 *
 * Only files of agent/engine/optim include this.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_MATRICES_H
#define MUSTER_AGENT_ENGINE_OPTIM_MATRICES_H

#include "agent/engine/optim/rules.h"

struct optim_matrices;

/* Collective over the tensor-parallel group. Allocates optimizer_matrix_bytes in the backend. */
int optim_matrices_open(struct optim *o, struct optim_matrices **out, struct err *e);
/* Accepts NULL. */
void optim_matrices_close(struct optim *o, struct optim_matrices *m);

struct optim_matrix {
	const struct param *param;
	const struct param_piece *piece; /* the part that this rank owns; NULL: none */
};

/* The work on each matrix. */
struct optim_matrix_work {
	/* Writes this rank's input for the piece into out[piece->count]. */
	void (*take)(void *arg, const struct param_piece *piece, float *out);
	/* Replaces x [rows, columns] of shape[0] × shape[1]; y is as large, a and b are [side,
	 * side], where side is the smaller of both. */
	void (*replace)(void *arg, const struct param *p, float *x, float *y, float *a, float *b);
	/* Receives the result for the piece: in[piece->count]. */
	void (*apply)(void *arg, const struct param_piece *piece, const float *in);
	void *arg;
};

/* Collective over the shards and the tensor-parallel group. */
int optim_matrices_run(struct optim_matrices *m, const struct optim_matrix_work *w, struct err *e);

#endif
