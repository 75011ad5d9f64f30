/*
 * report — sends what training reports as messages of the control channel (base/messages.h).
 *
 * To report another number of a step: add it to struct step_report, to MSG_METRICS_FIELDS of
 * base/messages.h, and to agent_report_step(). metrics.jsonl then has it, too. A part of the step's
 * time needs only the row in base/step_parts.h.
 */
#ifndef MUSTER_AGENT_METRICS_REPORT_H
#define MUSTER_AGENT_METRICS_REPORT_H

#include "agent/control.h"
#include "agent/engine/train/hooks.h"

#include <jansson.h>
#include <stdint.h>

/* The training loop's hooks over the control channel; borrows control. */
struct train_hooks agent_report_hooks(struct control *control);

/* The bodies of the messages metrics and eval. New references; NULL if there is no memory. */
json_t *agent_report_step(const struct step_report *r);
json_t *agent_report_eval(int64_t step, double loss);

#endif
