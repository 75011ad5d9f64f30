/*
 * stop — why the run is being stopped, and what follows its last checkpoint.
 *
 * A signal starts the stop at once (transitions.c). Meanwhile the launch backend is asked for the
 * cause. When the generation has left:
 *
 *     cause                        [slurm] requeue = yes       otherwise
 *     the time limit, preemption   the job is requeued         the run ends as stopped
 *     another one, or unknown      the run ends as stopped     the run ends as stopped
 *
 * A job that Slurm has ended before it could be requeued, because it was preempted without a grace
 * time, is followed by a new job of the same submission.
 *
 * If another job of a chain continues the run (chain.h), the job is not requeued.
 *
 * At a time limit the job is requeued only if this start of it has finished a step and committed a
 * checkpoint: otherwise it would repeat the same steps for ever.
 *
 * Slurm's signal comes [slurm] signal_before seconds before the time limit. If a checkpoint takes
 * longer than that, the stop begins earlier, by the end of the job that Slurm knows and by the longest
 * checkpoint and step that were measured.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STOP_H
#define MUSTER_LAUNCHER_SUPERVISE_STOP_H

#include "launcher/stop_cause.h"

#include <stdbool.h>

struct supervisor;
struct stop_query;

struct stop_state {
	struct stop_query *query; /* that is under way; NULL: none */
	bool stopping;            /* the query is about a stop, otherwise about the time limit */
	bool known;               /* the cause of the stop is known, or cannot be known */
	struct stop_answer answer;
	double ends;   /* time at which the job ends; 0: unknown, or it has no time limit */
	double asked;  /* time of the last query about the time limit */
	double near;   /* time since which the job is expected to end soon; 0: it is not */
	bool early;    /* this room has begun the stop, before Slurm's signal */
	double ckpt_s; /* the longest checkpoint; 0: none */
	double gap_s;  /* the longest time between two steps */
	double stepped;
};

/* Seconds that a stop needs until the job must end, besides the checkpoint: the requeue, and the end of
 * all processes. */
enum { STOP_MARGIN_S = 30 };

/* The run is to stop: asks for the cause, once. EV_STOP_KNOWN follows, unless it is known already. */
void supervise_stop_ask(struct supervisor *s);
/* The generation has left, and the run ends as stopped: waits for the cause in SUP_LEAVING, then
 * requeues the job or ends the run. */
void supervise_stop_leave(struct supervisor *s);
/* Whether the time limit stops this start of the job before it has done anything that lasts, although it
 * had its time: Slurm's signal was not early. */
bool supervise_stop_is_futile(const struct supervisor *s);
/* A step is done, or a checkpoint that took this long was committed. */
void supervise_stop_note_step(struct supervisor *s);
void supervise_stop_note_ckpt(struct supervisor *s, double seconds);
/* Seconds to expect from the signal to stop until all has ended. */
double supervise_stop_seconds(const struct supervisor *s);
/* While it trains: stops the run in time before the time limit. */
void supervise_stop_tick(struct supervisor *s);
void supervise_stop_close(struct supervisor *s);

#endif
