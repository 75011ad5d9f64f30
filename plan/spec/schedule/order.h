/* schedule_order — in which order a rank's passes come, for the files that make tables of them. */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_ORDER_H
#define MUSTER_PLAN_SPEC_SCHEDULE_ORDER_H

#include "plan/spec/schedule/schedule.h"

/* Whose passes are listed. */
struct order_of {
	const struct layout *layout;
	int micros, rank;
};

/* Where passes go: counted, or kept where `steps` has room for them, with the messages around
 * them. */
struct order {
	struct order_of of;
	struct sched_step *steps; /* NULL: counted only */
	int n;
	bool forwards_only;
	int live[LAYOUT_CHUNKS_MOST], all;
	struct sched_slots slots;
};

bool schedule_known(enum job_schedule kind);
/* Lists the passes (and their messages) of a rank into `o`, whose other members are 0. */
void schedule_order_list(enum job_schedule kind, struct order *o);
void schedule_order_list_forwards(struct order *o);

#endif
