/*
 * drill — the faults that `muster drill` (launcher/drill) cannot cause from outside: the agent causes
 * one in itself, if AGENT_ENV_DRILL asks this rank for it.
 *
 * The text is "KIND RANK STEP". The fault comes once: in the first generation, when STEP steps are
 * finished.
 *
 *     exit     the process ends with a status and reports nothing
 *     device   the agent reports that its device is lost
 *     nan      this rank's gradients become NaN
 *     memory   the agent takes memory until the kernel's OOM killer ends it
 *
 * To add one: add its row to the table in drill.c, and its row in launcher/drill/injections.c.
 */
#ifndef MUSTER_AGENT_DRILL_H
#define MUSTER_AGENT_DRILL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* text: the value of AGENT_ENV_DRILL, or NULL. Returns 1 if this rank is to cause a fault, otherwise
 * 0. ERR_USAGE: the text is wrong. */
int agent_drill_open(const char *text, int rank, uint32_t generation, struct err *e);
/* For struct train_hooks; arg is not used. */
int agent_drill_step(void *arg, int64_t step, bool *poison, struct err *e);

#endif
