/*
 * optim — AdamW over the flat parameter buffer, learning-rate schedules, clipping.
 */
#ifndef MUSTER_AGENT_OPTIM_OPTIM_H
#define MUSTER_AGENT_OPTIM_OPTIM_H

#include "base/err.h"
#include "kernels/ops.h"
#include "plan/job.h"
#include "plan/model.h"

#include <stdint.h>

struct optim;

/* State (m, v: [catalogue.elements], zero) for one rank's catalogue, which is borrowed. */
int optim_open(struct kern *k, const struct catalogue *c, const struct job *job, struct optim **out, struct err *e);
void optim_close(struct optim *o);
float *optim_m(struct optim *o);
float *optim_v(struct optim *o);

/* The rate of step `step` (from 0): linear warm-up to lr over `warmup` steps, then the job's schedule down to min_lr at decay_steps. */
double optim_lr(const struct job *job, int64_t step);

/* Applies step number `step` (from 0): gradients times min(1, clip / norm), decay on the catalogue's decay parameters only. */
void optim_step(struct optim *o, float *params, const float *grads, double grad_norm, int64_t step);

#endif
