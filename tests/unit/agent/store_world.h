/*
 * store_world — ranks that train a model of nothing but sums, for the tests of the store.
 *
 * Every element of the model has an initial value and, for each micro-batch and replica, a
 * gradient: whole numbers that depend on the parameter's name and the element's global place, small
 * enough that every sum and every stored type holds them exactly. So what a step must leave is
 * known without a second implementation, whatever the order of the sums.
 */
#ifndef MUSTER_TESTS_UNIT_AGENT_STORE_WORLD_H
#define MUSTER_TESTS_UNIT_AGENT_STORE_WORLD_H

#include "agent/engine/parallel/param_store.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/zero.h"
#include "tests/unit/agent/world.h"

/* Ranks are tp × ep × shards × copies × pp, tp fastest. Of an expert there are shards × copies
 * replicas, of everything else ep times as many, in ep × shards shards. Without ZeRO all are
 * copies. */
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
	size_t backend_own; /* bytes that the backend took for itself */
	struct param_store *store;
	/* [elements] of the flat order: where masters begin, the whole gradient of a step */
	float *starts, *totals;
	float *gradients; /* [micros][elements] what this rank adds */
};

int cut_world(const struct cut *c);
/* Collective: shape, groups, backend, store. */
int bench_open(const struct cut *cut, struct comm *world, struct bench *b, struct err *e);
void bench_close(struct bench *b);

/* Masters are the beginning, published. */
int bench_start_all(struct bench *b, struct err *e);
/* Forward and backward passes of all micro-batches; before each use parameters must be `after`
 * steps from the beginning. Then param_store_finish. */
int bench_pass(struct bench *b, int after, struct err *e);
/* Masters -= gradients; published. */
int bench_update(struct bench *b, int step, struct err *e);
/* Every piece's gradient is the total. */
int bench_check(const struct bench *b, struct err *e);

#endif
