/* sureness — how sure a prediction is, for people and for programs (plan/cost/sureness.h). */
#ifndef MUSTER_PLAN_SHOW_SURENESS_H
#define MUSTER_PLAN_SHOW_SURENESS_H

#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

#include <jansson.h>

/* Prints the interval of a step of so many seconds on devices of this kind; nothing on processors, whose
 * figures are measured, and on devices of unknown rates. */
void show_sureness_print(const struct job *job, const struct node_kind *k, double seconds,
			 struct buf *out);
/* {"least_seconds", "most_seconds", "regime", "published_steps", "mean_error", "worst_error"}; errors
 * are shares of a step's time. Null where nothing is printed. */
json_t *show_sureness_json(const struct job *job, const struct node_kind *k, double seconds);

#endif
