/*
 * fit — whether a plan fits the cluster, and the nearest ones that do.
 *
 * For plan/ only.
 */
#ifndef MUSTER_PLAN_SEARCH_FIT_H
#define MUSTER_PLAN_SEARCH_FIT_H

#include "base/buf.h"
#include "plan/capacity.h"
#include "plan/plan.h"

#include <stdbool.h>

/* Bytes a rank may use when a node holds `agents` of them: of a GPU, less what its runtime
 * takes; 0: unknown. */
double search_fit_limit(const struct node_kind *k, int agents);
/* A rank's bytes by part, and what a part is called. */
enum { FIT_PARTS = 6 };
double search_fit_part(const struct plan_rank *r, int part);
const char *search_fit_part_name(int part);

/* Sets p->memory; ERR_NOFIT names the rank, by how much it is too large and because of what, and
 * search_fit_hint's words. */
int search_fit_memory(const struct job *job, const struct cluster *c, struct plan *p,
		      struct err *e);
/* "nearest that fit: recompute.mode = full (12.3 s a step); or …": the changes to the job, with the
 * layout's replicas, that lead to the three nearest ones that fit; or that none does. */
void search_fit_hint(const struct job *job, const struct cluster *c, const struct layout *asked,
		     struct buf *out);

#endif
