/*
 * store_world — ranks that train a model which consists only of sums, for the tests of the store.
 *
 * Every element of the model has an initial value and, for each micro-batch and replica, a
 * gradient. These are whole numbers that depend on the parameter's name and the element's global
 * place. They are so small that every sum and every stored type holds them exactly. The result of a
 * step is therefore known without a second implementation, in whatever order the sums are computed.
 */
#ifndef MUSTER_TESTS_UNIT_AGENT_STORE_WORLD_H
#define MUSTER_TESTS_UNIT_AGENT_STORE_WORLD_H

#include "agent/engine/parallel/param_store.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/zero.h"
#include "tests/unit/agent/world.h"

/* The number of ranks is tp × ep × shards × copies × pp; tp varies fastest. An expert has shards ×
 * copies replicas. All other parameters have ep times as many, in ep × shards shards. Without
 * ZeRO, all replicas are copies. */
struct cut {
	const char *name;
	enum job_family family;
	int kv_heads, tp;
	bool sp;
	int ep, shards, copies, pp;
	int zero;
	const char *backend_name;
	bool overlap, stochastic;
	int micros;
};

struct bench {
	const struct cut *cut;
	struct comm *world;
	int tp, replica, pp;
	struct model_shape shape;
	struct stage stages[4];
	struct share share;
	struct catalogue catalogue;
	struct zero_cut cuts[ZERO_CLASSES];
	struct param_store_groups groups;
	struct backend *backend;
	size_t backend_own; /* bytes that the backend allocated for itself */
	struct param_store *store;
	/* [elements] in the flat order: the initial masters, and the whole gradient of a step */
	float *starts, *totals;
	float *gradients; /* [micros][elements] what this rank adds */
};

int cut_world(const struct cut *c);
/* Collective. Opens the shape, the groups, the backend and the store. */
int bench_open(const struct cut *cut, struct comm *world, struct bench *b, struct err *e);
void bench_close(struct bench *b);

/* Sets the masters to their initial values and publishes them. */
int bench_start_all(struct bench *b, struct err *e);
/* Runs forward and backward passes of all micro-batches, then param_store_finish. Before each use,
 * the parameters must be those after `after` steps. */
int bench_pass(struct bench *b, int after, struct err *e);
/* Subtracts the gradients from the masters and publishes the result. */
int bench_update(struct bench *b, int step, struct err *e);
/* Checks that every piece's gradient is the total. */
int bench_check(const struct bench *b, struct err *e);

#endif
