/* calibration_inner — what the files of calibration.h share. Only plan/cost/calibration*.c include
 * it. */
#ifndef MUSTER_PLAN_COST_CALIBRATION_INNER_H
#define MUSTER_PLAN_COST_CALIBRATION_INNER_H

#include "plan/cost/calibration.h"

/* $XDG_CONFIG_HOME/muster/calibration.json, or the same below ~/.config; "" if neither variable is
 * set. */
void calibration_default(char *path, size_t size);
int calibration_load(const char *path, struct calibration *out, struct err *e);
/* Whether the half of the file that is a host's was measured on this one. */
int calibration_check_host(const char *path, const struct calibration *out, struct err *e);

#endif
