/*
 * step_trace — what a rank records in detail of chosen steps, for `muster trace`: those that [trace]
 * steps selects, and those that somebody asks for while the run trains (muster trace RUN --next).
 *
 * The phases of the training thread follow each other without a gap: each lasts until the next one
 * begins. A pass (forward, backward, …) has its chunk and micro-batch. The operations of all groups of
 * ranks come from libcomm's tape (comm_tape_start). On a device the times of both are those at which
 * the host waits, not those of its streams.
 *
 * When the last of the steps has ended, or training ends before, a thread of its own writes
 * RUN/trace/gen-<generation>/steps-<rank>.json while training goes on. A later recording of the
 * generation replaces the file. It is one object, times in microseconds since 1970:
 *
 *     {"muster_steps": 1, "rank": 3, "place": "tp 1, pp 0, dp 0", "first": 40, "last": 44, "lost": 0,
 *      "phases": [[name, step, begin, end, chunk, micro], …],
 *      "comm": as comm_dump() writes it}
 *
 * chunk and micro are -1 where there are none. A step is counted from 1, as in metrics.jsonl. "lost":
 * phases and operations for which there was no room.
 *
 * One recording runs at a time. Steps that somebody asks for wait if those of the job are being
 * recorded, or would begin among them. All ranks decide this alike, because they know the same steps.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STEP_TRACE_H
#define MUSTER_AGENT_ENGINE_TRAIN_STEP_TRACE_H

#include "agent/engine/train/hooks.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"
#include "plan/spec/schedule/timeline.h"

#include <stdint.h>

struct step_trace;

/* The next steps, which somebody asks for. */
struct step_trace_ask {
	int number; /* of the request, from 1 */
	int64_t steps;
};

/* Borrows all of them. */
int train_step_trace_open(const struct rank_view *view, struct comm *world, const char *run_dir,
			  uint32_t generation, const struct train_hooks *hooks,
			  struct step_trace **out, struct err *e);
/* Writes the file if steps were recorded and it is not written yet, and reports a request that is open.
 * Takes NULL, as do all of these but the next. */
void train_step_trace_close(struct step_trace *t);

/* Collective, between two steps, with the same request on all ranks and none that is open: the next
 * steps are recorded. Each rank reports its end with the hook `traced`; if some rank has no room for so
 * many steps, at once. */
int train_step_trace_ask(struct step_trace *t, const struct step_trace_ask *ask, struct err *e);

/* The step after `step` begins. A recording starts, continues, or is written. */
void train_step_trace_begin(struct step_trace *t, int64_t step);
/* The training thread begins this phase, a literal. */
void train_step_trace_phase(struct step_trace *t, const char *name);
/* The passes of the step, as the pipeline has measured them: tells the phases of the step their chunks
 * and micro-batches. */
void train_step_trace_passes(struct step_trace *t, const struct timeline *passes);

#endif
