/*
 * diagnose — finds out where the wrong numbers of a step began (diagnosis.h).
 *
 * It costs a normal step nothing. What remains of the first computation is compared with the second
 * one: each rank's part of the loss, the activations of the last micro-batches that are still in
 * their slots, and the reduced gradients. A fault in an earlier micro-batch that left no bad number
 * behind is therefore only seen in the sums over ranks, and no rank can be named.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_DIAGNOSE_H
#define MUSTER_AGENT_ENGINE_TRAIN_DIAGNOSE_H

#include "base/err.h"

struct trainer;

/* Collective over the world: all ranks call it for the same step, before the update, because the
 * loss or the norm of its gradients is not finite or counts as a spike. Appends the answer to e's
 * text and sets t->env->blame; the code stays. If hardware is at fault, the answer replaces the
 * text, whose remedy would mislead. If the diagnosis itself fails, *e is not changed. With a
 * parameter server it does nothing: replicas there are at different steps. The gradients of the
 * step are computed again and must not be used afterwards. */
void train_diagnose(struct trainer *t, double loss, double norm, struct err *e);

#endif
