/*
 * search — the result of a search, for people and for programs: the best layout, how much slower
 * others are, why some do not fit, memory against time; and how a job scales over cluster sizes.
 */
#ifndef MUSTER_PLAN_SHOW_SEARCH_H
#define MUSTER_PLAN_SHOW_SEARCH_H

#include "plan/search/search.h"

#include <jansson.h>

void show_search_print(const struct job *job, const struct cluster *c, const struct search *s,
		       struct buf *out);
/* A new reference; NULL: out of memory. */
json_t *show_search_json(const struct job *job, const struct cluster *c, const struct search *s);
/* A configuration as an object with the job's keys. */
json_t *show_search_json_config(const struct search_config *c);

/* One size of a cluster. */
struct scaling_point {
	int devices; /* of the cluster */
	bool fits;
	struct search_found best;
	double flops; /* FLOP/s of a device by its data sheet; 0: unknown */
};
void show_scaling_print(const struct job *job, const char *cluster,
			const struct scaling_point *points, int n, struct buf *out);
json_t *show_scaling_json(const struct job *job, const char *cluster,
			  const struct scaling_point *points, int n);
/* An SVG picture: tokens per second over devices, both on a logarithmic scale, beside linear
 * scaling from the first point. */
void show_scaling_svg(const struct job *job, const char *cluster,
		      const struct scaling_point *points, int n, struct buf *out);

#endif
