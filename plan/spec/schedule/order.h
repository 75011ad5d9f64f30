/*
 * schedule_order — how a schedule's generator lists the passes of a rank.
 *
 * For the files of plan/spec/schedule that define a schedule. A generator calls the functions below
 * in the order in which the rank runs its passes; they put the messages around each pass and count
 * the activations that are alive. A generator reads the rank's own position alone, so a row is made
 * without the others; schedule_check proves that the rows fit together.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_ORDER_H
#define MUSTER_PLAN_SPEC_SCHEDULE_ORDER_H

#include "plan/spec/schedule/schedule.h"

/* The rank whose passes are listed. */
struct order_of {
	const struct layout *layout;
	int micros, rank;
};

/* The list: it is only counted, or also kept if `steps` has room. */
struct order {
	struct order_of of;
	struct sched_step *steps; /* NULL: count only */
	int n;
	bool forwards_only;
	int live[LAYOUT_CHUNKS_MAX], live_total; /* slots that are taken now */
	int whole[LAYOUT_CHUNKS_MAX];            /* those without a backward pass */
	struct sched_slots slots;
};

/* One pass, with the receive before it and the send after it where the neighbouring stage is on
 * another rank. */
void schedule_put_forward(struct order *o, int chunk, int micro);
void schedule_put_backward(struct order *o, int chunk, int micro);
void schedule_put_backward_input(struct order *o, int chunk, int micro);
void schedule_put_backward_weight(struct order *o, int chunk, int micro);

/* Lists the passes and messages of a rank into `o`, whose other members are 0. */
void schedule_list_passes(enum job_schedule kind, struct order *o);
void schedule_list_forwards(struct order *o);
/* An enough_micros for schedules whose ranks keep the same number alive from the fourth round of
 * micro-batches on. */
int schedule_four_rounds(int pp, int micros);
/* The forward passes in the order of the interleaved schedule. */
void schedule_list_looped_forwards(struct order *o);

#endif
