/* sureness — how sure a prediction is, for people and for programs (plan/cost/sureness.h). */
#ifndef MUSTER_PLAN_SHOW_SURENESS_H
#define MUSTER_PLAN_SHOW_SURENESS_H

#include "base/buf.h"
#include "plan/peak.h"

#include <jansson.h>

/* Prints the interval of a step of so many seconds on these devices; nothing if some of them are
 * processors, whose figures are measured, or have unknown rates. */
void show_sureness_print(const struct job *job, const struct plan_peak *of, double seconds,
			 struct buf *out);
/* {"least_seconds", "most_seconds", "regime", "published_steps", "mean_error", "worst_error"};
 * errors are shares of a step's time. Null where nothing is printed. */
json_t *show_sureness_json(const struct job *job, const struct plan_peak *of, double seconds);

#endif
