/*
 * config — one choice of everything that a search decides about a job.
 */
#ifndef MUSTER_PLAN_SEARCH_CONFIG_H
#define MUSTER_PLAN_SEARCH_CONFIG_H

#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

struct search_config {
	int tp, cp, ep, dp, pp;
	int chunks; /* as a layout has them: 1 where the schedule has no choice */
	int micro, every, zero;
	enum job_schedule schedule;
	enum job_zero_shard shard;
	enum job_recompute mode;
	bool sp, activations, optimizer; /* the last two: offloaded */
};

/* The job's own, with so many replicas. */
struct search_config search_config_of(const struct job *job, int dp);
/* Writes it into the job and closes its open keys. Stages are left as they are, or where they
 * are open to be balanced. */
void search_config_apply(const struct search_config *c, struct job *job);
struct layout search_config_layout(const struct search_config *c);

/* How much of it a person has to understand: of two that take equally long the lesser is better. */
int search_config_weight(const struct search_config *c);
/* Below, equal to or above 0: some order of all of them. */
int search_config_order(const struct search_config *a, const struct search_config *b);
bool search_config_same(const struct search_config *a, const struct search_config *b);

/* "tp 8 × dp 8 × pp 16" and, with a comma before each, the ways: "interleaved 3, micro 2, ZeRO
 * 1, full recomputation". */
void search_config_print(const struct search_config *c, struct buf *out);
/* Sections and keys that make a job this one, as its file would have them. */
void search_config_lines(const struct search_config *c, struct buf *out);
/* What `to` has that `from` has not, as "recompute.mode = full, parallel.zero = 1". */
void search_config_changes(const struct search_config *from, const struct search_config *to,
			   struct buf *out);

#endif
