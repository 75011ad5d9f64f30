/*
 * config — one choice of all the keys that a search decides.
 */
#ifndef MUSTER_PLAN_SEARCH_CONFIG_H
#define MUSTER_PLAN_SEARCH_CONFIG_H

#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

struct search_config {
	int tp, cp, ep, dp, pp;
	int chunks; /* virtual stages per rank, at least 1 */
	int micro, every, zero;
	enum job_schedule schedule;
	enum job_zero_shard shard;
	enum job_recompute mode;
	bool sp, activations, optimizer; /* the last two: whether they are offloaded */
	char speeds[JOB_TEXT];           /* launch.speeds */
};

/* The job's own choice, with dp replicas. */
struct search_config search_config_of(const struct job *job, int dp);
/* Writes the choice into the job and closes its open keys. The job keeps its stages; if they are
 * open they will be balanced. */
void search_config_apply(const struct search_config *c, struct job *job);
struct layout search_config_layout(const struct search_config *c);

/* How complex the configuration is for a person. Of two configurations that take equally long the
 * one with the smaller weight is better. */
int search_config_weight(const struct search_config *c);
/* A total order: the result is below, equal to or above 0. */
int search_config_order(const struct search_config *a, const struct search_config *b);
bool search_config_same(const struct search_config *a, const struct search_config *b);

/* Prints the degrees and then the other keys: "tp 8 × dp 8 × pp 16, interleaved 3, micro 2, ZeRO 1,
 * full recomputation". */
void search_config_print(const struct search_config *c, struct buf *out);
/* Prints the sections and keys that give a job this choice, in the form of a job file. */
void search_config_lines(const struct search_config *c, struct buf *out);
/* Prints the keys that differ with their values in `to`:
 * "recompute.mode = full, parallel.zero = 1". */
void search_config_changes(const struct search_config *from, const struct search_config *to,
			   struct buf *out);

#endif
