/*
 * leaner — what a plan that does not fit has more of than another program would have with the same
 * layout. For plan/ only.
 */
#ifndef MUSTER_PLAN_SEARCH_LEANER_H
#define MUSTER_PLAN_SEARCH_LEANER_H

#include "base/buf.h"
#include "plan/plan.h"

/* Prints "; Megatron-Core would fit with 71 GiB (gradients 13 GiB less)": the program that
 * needs the least, and by how much each part of the rank `worst` would be smaller. Prints
 * nothing if the job is another program's, or if none of them would fit. */
void search_leaner_print(const struct job *job, const struct cluster *c, const struct plan *p,
			 const struct plan_rank *worst, struct buf *out);

#endif
