/*
 * step_trace — what a rank does in the steps that [trace] steps selects, for `muster trace --steps`.
 *
 * The phases of the training thread follow each other without a gap: each lasts until the next one
 * begins. A pass (forward, backward, …) has its chunk and micro-batch. The operations of all groups of
 * ranks come from libcomm's tape (comm_tape_start). On a device the times of both are those at which
 * the host waits, not those of its streams.
 *
 * When the last of the steps has ended, or training ends before, the rank writes
 * RUN/trace/gen-<generation>/steps-<rank>.json, one object, times in microseconds since 1970:
 *
 *     {"muster_steps": 1, "rank": 3, "place": "tp 1, pp 0, dp 0", "first": 40, "last": 44, "lost": 0,
 *      "phases": [[name, step, begin, end, chunk, micro], …],
 *      "comm": as comm_dump() writes it}
 *
 * chunk and micro are -1 where there are none. A step is counted from 1, as in metrics.jsonl. "lost":
 * phases for which there was no room.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STEP_TRACE_H
#define MUSTER_AGENT_ENGINE_TRAIN_STEP_TRACE_H

#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"
#include "plan/spec/schedule/timeline.h"

#include <stdint.h>

struct step_trace;

/* Borrows all three. *out is NULL if the job selects no steps. */
int train_step_trace_open(const struct rank_view *view, struct comm *world, const char *run_dir,
			  uint32_t generation, struct step_trace **out, struct err *e);
/* Writes the file if steps were traced and it is not written yet. Takes NULL, as all of these do. */
void train_step_trace_close(struct step_trace *t);

/* The step after `step` begins. The trace starts, continues, or is written. */
void train_step_trace_begin(struct step_trace *t, int64_t step);
/* The training thread begins this phase, a literal. */
void train_step_trace_phase(struct step_trace *t, const char *name);
/* The passes of the step, as the pipeline has measured them: tells the phases of the step their chunks
 * and micro-batches. */
void train_step_trace_passes(struct step_trace *t, const struct timeline *passes);

#endif
