/*
 * report — what training reports, as messages of the control channel (base/msg.h).
 *
 * Numbers that JSON cannot hold (NaN, infinity) become null.
 */
#ifndef MUSTER_AGENT_METRICS_REPORT_H
#define MUSTER_AGENT_METRICS_REPORT_H

#include "agent/control.h"
#include "agent/engine/train/hooks.h"

#include <jansson.h>
#include <stdint.h>

/* The training loop's hooks over the control channel; borrows control. */
struct train_hooks agent_report_hooks(struct control *control);

/* New references; NULL without memory. */
json_t *agent_report_step(const struct step_report *r);
json_t *agent_report_eval(int64_t step, double loss);

#endif
