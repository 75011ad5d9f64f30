/*
 * agree_choices — the ranks of a run use the same measured choices (base/choices.h).
 *
 * Ranks on the same kind of machine form a group, over all stages of the pipeline: stages have
 * shapes in common. In the first step of a run, all use each library's first algorithm, and measure
 * the others. After it, the first rank of each stage gives what it measured to the group's first
 * rank, which merges it and sends the result to all; of two choices for the same shape, the one of
 * the lower stage counts. So no two ranks of a group ever use different algorithms for the same
 * shape. A shape that none of those ranks has, or that is first used later, keeps the library's
 * first algorithm.
 *
 * The group's first rank writes the choices into the run folder, and into the user's cache for the
 * next runs: what is there is not measured again. When a run continues, its choices come from the
 * run folder alone and nothing is measured, so it gives the same bits as if it had not stopped.
 * This also holds if it begins again with its first step. If it continues with another layout, with
 * another driver, runtime or version of a library, or with other stages on a kind of machine, the
 * first step measures, and also if job.deterministic was changed to any-order, or from it.
 *
 * With job.deterministic = any-order the choices are kept as well, but some of them give other bits each
 * time.
 *
 * Files that cannot be read or written cost time, but no run.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_AGREE_CHOICES_H
#define MUSTER_AGENT_ENGINE_TRAIN_AGREE_CHOICES_H

#include "kernels/ops.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

struct train_choices;

/* Collective over world, before the first step; `step` is the last one that was done. Sets
 * *out, NULL if nothing is to be chosen: on the host, and with job.deterministic =
 * yes. */
int train_choices_begin(struct comm *world, const struct rank_view *view, struct backend *k,
			const char *run_dir, int64_t step, struct train_choices **out,
			struct err *e);
/* Collective, after the first step. Frees *t and sets it to NULL, also if it fails. Does nothing if
 * it is NULL. */
int train_choices_agree(struct train_choices **t, struct err *e);
void train_choices_close(struct train_choices *t); /* NULL is allowed */

#endif
