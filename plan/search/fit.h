/*
 * fit — whether a plan fits the cluster, and the nearest plans that do. For plan/ only.
 */
#ifndef MUSTER_PLAN_SEARCH_FIT_H
#define MUSTER_PLAN_SEARCH_FIT_H

#include "base/buf.h"
#include "plan/capacity.h"
#include "plan/plan.h"

#include <stdbool.h>

/* Bytes that a rank may use if the node has `agents` agents: on a GPU its memory less what its
 * runtime needs, half a GiB for NCCL included; 0: unknown. */
double search_fit_limit(const struct node_kind *k, int agents);
/* The limit if NCCL needs `library` bytes (plan_memory_library). */
double search_fit_beside(double limit, double library);
/* The limit of a rank of the plan. */
double search_fit_of_rank(const struct cluster *c, const struct plan *p, const struct plan_rank *r);
/* Bytes of the node's memory that a rank may use for what is not on its GPU; 0: unknown. */
double search_fit_host(const struct node_kind *k, int agents);
/* A rank's bytes by part, and the name of a part. */
enum { FIT_PARTS = 6 };
double search_fit_part(const struct plan_rank *r, int part);
const char *search_fit_part_name(int part);

/* Whether each rank's device holds what it needs, as far as that is known. */
bool search_fit_devices(const struct cluster *c, const struct plan *p);
/* Sets p->memory. Adds to p->warning what the nodes' memory may not hold. ERR_NOFIT names the
 * rank, by how much it is too large, its largest parts, another program that would fit
 * (leaner.h), and the hint of search_fit_hint. */
int search_fit_memory(const struct job *job, const struct cluster *c, struct plan *p,
		      struct err *e);
/* Prints "nearest that fit: recompute.mode = full (12.3 s per step); or …": the changes to the job,
 * with the layout's replicas, that lead to the three nearest configurations that fit; or that none
 * fits. */
void search_fit_hint(const struct job *job, const struct cluster *c, const struct layout *asked,
		     struct buf *out);

#endif
