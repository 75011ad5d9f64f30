/*
 * check — check mode of the passes (model.h), for the files of this folder.
 *
 * Outside of check mode each of these functions tests a pointer and returns.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_CHECK_H
#define MUSTER_AGENT_ENGINE_MODEL_CHECK_H

#include "agent/engine/model/stage.h"

/* The pass begins a part: the embedding (layer -1), a layer, or the head (the number of layers). */
void model_check_enter(const struct pass *p, bool backward, int layer);
/* A tensor [n] of the storage type has been computed. what: its name inside its part, for
 * people. */
void model_check_tensor(struct model *m, const char *what, const void *x, int64_t n);
/* The unit's gradients of this micro-batch are complete, and not yet reduced. */
void model_check_gradients(struct model *m, int unit);
void model_check_loss(struct model *m);

/* They do nothing unless model_plant asks for it. */
void model_plant_input(const struct pass *p, void *x);
void model_plant_gradient(const struct pass *p, int unit);

#endif
