/*
 * live_counts — how many micro-batches of each chunk a pipeline rank keeps alive, and how many of
 * them before their backward passes (schedule_slots). The counts are kept, because a search asks
 * for the same tables again and again.
 *
 * A long run keeps as many alive as a short one (schedule_enough_micros), so a table is counted
 * for a few micro-batches only.
 */
#ifndef MUSTER_PLAN_SEARCH_LIVE_COUNTS_H
#define MUSTER_PLAN_SEARCH_LIVE_COUNTS_H

#include "plan/spec/layout.h"
#include "plan/spec/schedule/schedule.h"

struct live_counts;

/* Of one chunk: struct sched_slots. turns: the most of all chunks of the rank, over the sum of
 * their `live`. */
struct live_chunk {
	int live, whole;
	double turns;
};

struct live_counts *search_live_open(void);
void search_live_close(struct live_counts *l);
/* Returns the counts of each pipeline rank's chunks, [pp][chunks]. They belong to l and stay valid
 * until it is closed. NULL: out of memory. */
const struct live_chunk *search_live_of(struct live_counts *l, enum job_schedule kind,
					const struct layout *layout, int micros);

#endif
