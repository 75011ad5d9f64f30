/*
 * memory — a rank's bytes by part, from sizes that are the same for many ranks.
 *
 * plan_memory_rank (plan.h) says what the parts are; here they are in two steps, so that a search
 * can ask for millions of layouts: what a micro-batch and a unit of parameters measure on one tp
 * rank, and then sums over a rank's stages. For plan/ only.
 */
#ifndef MUSTER_PLAN_MEMORY_H
#define MUSTER_PLAN_MEMORY_H

#include "plan/spec/model/activations.h"
#include "plan/spec/model/zero.h"
#include "plan/plan.h"

/* Of the passes, on one tp rank. Read of the job: batch.micro, parallel.sp, precision, recompute,
 * offload.activations, dropout; of the layout tp and cp. Bytes. */
struct memory_sizes {
	/* in a slot: of a layer that recomputes nothing, and of one that does */
	double layer[2];
	double first[2];        /* less where it is its chunk's first */
	double slot, slot_last; /* a slot's own tensors; and those of the last stage's */
	double work;            /* the home of what recomputing layers write again */
	/* with tables of positions; and more of the rank that has the last stage */
	double scratch, scratch_last;
	/* of a mixture: what a layer keeps of a micro-batch, and scratch */
	double kept, kept_scratch;
	bool kept_again; /* recomputing layers share one home for it */
	bool offload;    /* layers wait in host memory, STAGED of them are here */
	double immense;  /* not 0: beyond all machines, and a floor of it */
	int every;       /* layers between those that recompute; 0: none does */
};
/* split: backward passes come in two halves (schedule_splits). */
void plan_memory_sizes_of(const struct job *job, const struct model_shape *m,
			  const struct layout *l, int tp_rank, bool split,
			  struct memory_sizes *out);

/* One micro-batch of a chunk in a slot. */
double plan_memory_slot(const struct memory_sizes *s, const struct stage *stage);
/* Of it, what waits in host memory. */
double plan_memory_offloaded(const struct memory_sizes *s, const struct stage *stage);
/* What the slots of a rank with these chunks share. */
double plan_memory_shared(const struct memory_sizes *s, const struct stage *chunks, int n);

/* Sets r->params, grads, optimizer and buffers from units: counts of each kind that the rank
 * has. */
void plan_memory_state(const struct job *job, const struct model_shape *m,
		       const struct share *share, const int64_t elements[UNIT_KINDS],
		       const int counts[UNIT_KINDS], const struct zero_cut cuts[ZERO_CLASSES],
		       struct plan_rank *r);
/* What the optimizer's state takes of a GPU's memory on its way, with offload.optimizer. */
double plan_memory_staged(const struct job *job);
/* Of tokens, and what the backend itself takes with so many threads. */
double plan_memory_rest(const struct job *job, int micros, int threads);

#endif
