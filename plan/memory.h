/*
 * memory — a rank's bytes by part, from sizes that many ranks share.
 *
 * plan_memory_rank (plan.h) defines the parts. Here they are computed in two steps, so that a
 * search can evaluate millions of layouts: first the sizes of a micro-batch and of a unit of
 * parameters on one tp rank, then the sums over a rank's stages. For plan/ only. plan.engine may
 * name another program than muster: memory_programs.h has its sizes.
 */
#ifndef MUSTER_PLAN_MEMORY_H
#define MUSTER_PLAN_MEMORY_H

#include "plan/spec/model/activations.h"
#include "plan/spec/model/zero.h"
#include "plan/plan.h"

/* Bytes of the passes on one tp rank. They depend on batch.micro, parallel.sp, precision,
 * recompute, offload.activations and dropout of the job, and on tp and cp of the layout. */
struct memory_sizes {
	/* in a slot: of a layer that does not recompute, and of one that does */
	double layer[2];
	double first[2];        /* how much less the first layer of a chunk has */
	double slot, slot_last; /* the slot's own tensors; those of the last stage */
	double slot_alone;      /* what a chunk has less that is the whole model */
	/* the work home: of a rank without recomputing layers, and of one that has some */
	double work[2];
	double copies; /* 8-bit copies of a layer's weights */
	/* includes tables of positions; what the rank with the last stage has in addition */
	double scratch, scratch_last;
	/* mixture of experts: what a layer keeps of a micro-batch, and scratch */
	double kept, kept_scratch;
	bool kept_again; /* recomputing layers share one copy of it */
	/* what a layer of each kind has less between the halves of a split backward pass */
	double freed[2];
	/* tensors are allocated when they are needed: work and scratch_last are never alive
	 * together, and chunks take turns to have the most slots */
	bool on_demand;
	bool offload;   /* layers are in host memory, STAGED of them on the device */
	double immense; /* not 0: a lower bound that exceeds all machines */
	int every;      /* layers between those that recompute; 0: none does */
};
/* split: whether backward passes come in two halves (schedule_splits). */
void plan_memory_sizes_of(const struct job *job, const struct model_shape *m,
			  const struct layout *l, int tp_rank, bool split,
			  struct memory_sizes *out);

/* The bytes of one micro-batch of a chunk in a slot. */
double plan_memory_slot(const struct memory_sizes *s, const struct stage *stage);
/* The bytes of a chunk's slots: `live` micro-batches, of which `whole` still wait for the first
 * half of their backward pass. turns: the most slots of all chunks of the rank, over the sum of
 * their `live` (struct sched_slots). */
double plan_memory_slots(const struct memory_sizes *s, const struct stage *stage, int live,
			 int whole, double turns);
/* The bytes of plan_memory_slot that are in host memory. */
double plan_memory_offloaded(const struct memory_sizes *s, const struct stage *stage);
/* The bytes that the slots of a rank with these chunks share. */
double plan_memory_shared(const struct memory_sizes *s, const struct stage *chunks, int n);

/* A job's chunk of logits (batch.logits) that takes half the memory; 0: there is none, or it would
 * save nothing. A plan takes the first of them with which all ranks fit. */
int64_t plan_memory_logits_less(const struct job *job);

/* Sets r->params, grads, optimizer (wherever it is) and buffers. counts: how many units of each
 * kind the rank has. */
void plan_memory_state(const struct job *job, const struct model_shape *m, const struct layout *l,
		       const struct share *share, const int64_t elements[UNIT_KINDS],
		       const int counts[UNIT_KINDS], const struct zero_cut cuts[ZERO_CLASSES],
		       struct plan_rank *r);
/* Moves what is in the node's memory to r->host, and sets r->total. on_cpu: the device has no memory
 * of its own, so only what is offloaded moves. */
void plan_memory_sum(const struct job *job, bool on_cpu, struct plan_rank *r);
/* With offload.optimizer, the bytes of GPU memory through which the optimizer state is staged. */
double plan_memory_staged(const struct job *job);
/* How many times a rank keeps in the host's memory what it saves: the snapshot of a checkpoint, and the
 * copies that checkpoint.memory_every = N takes, two of its own part and two of another rank's, which are
 * counted as large. Copies that are only taken where there is room (memory_every = -1) do not count. */
double plan_memory_images(const struct job *job);
/* The bytes of the tokens, and those that the backend needs with so many threads. */
double plan_memory_rest(const struct job *job, int micros, int threads);

#endif
