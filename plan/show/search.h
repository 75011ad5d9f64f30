/*
 * search — what a search found, for people and for programs: the best layout, what others would
 * lose, why some do not fit, memory against time; and how a job scales over a cluster's sizes.
 */
#ifndef MUSTER_PLAN_SHOW_SEARCH_H
#define MUSTER_PLAN_SHOW_SEARCH_H

#include "plan/search/search.h"

#include <jansson.h>

void show_search_print(const struct job *job, const struct cluster *c, const struct search *s,
		       struct buf *out);
/* A new reference; NULL: no memory. */
json_t *show_search_json(const struct job *job, const struct cluster *c, const struct search *s);
/* A configuration as an object of the job's keys. */
json_t *show_search_json_config(const struct search_config *c);

/* One size of a cluster. */
struct scaling_point {
	int devices; /* of the cluster */
	bool fits;
	struct search_found best;
	double flops; /* of a device's data sheet, a second; 0: unknown */
};
void show_scaling_print(const struct job *job, const char *cluster,
			const struct scaling_point *points, int n, struct buf *out);
json_t *show_scaling_json(const struct job *job, const char *cluster,
			  const struct scaling_point *points, int n);
/* A picture for slides: tokens a second over devices, both in powers of two, beside what the
 * first point times the devices would be. */
void show_scaling_svg(const struct job *job, const char *cluster,
		      const struct scaling_point *points, int n, struct buf *out);

#endif
