/*
 * shape — a model's shape from what its checkpoint says of it (the manifest's "model": agent/state.h, state_model).
 */
#ifndef MUSTER_AGENT_GENERATE_SHAPE_H
#define MUSTER_AGENT_GENERATE_SHAPE_H

#include "agent/generate/lm.h"
#include "base/err.h"

#include <jansson.h>

/* Sets shape and softmax_before. ERR_CORRUPT names the field that is missing or no model's. */
int shape_read(const json_t *model, struct lm_options *out, struct err *e);

#endif
