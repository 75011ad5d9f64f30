/*
 * balance — the load-balancing loss of a Mixtral's config.json, and model.aux_loss.
 *
 * Both are Fedus et al.'s (arXiv 2101.03961, section 2.2), over other sets of tokens. With E
 * experts, k of them per token, L layers; of a set of tokens P_e the mean probability of expert e,
 * F_e the mean number of choices of e per token (ΣF = k), f_e = F_e / k (Σf = 1):
 *
 *     transformers   router_aux_loss_coef × E Σ_e F_e P_e      F and P of the whole batch and all layers together
 *     muster         aux_loss × Σ_layers mean over sequences of E Σ_e f_e P_e      f and P of one sequence and layer (agent/engine/model/moe.h)
 *
 * Where all sequences and layers have the same F and P (an even load: both are coefficient × k) the
 * two are equal with
 *
 *     aux_loss = router_aux_loss_coef × k / L
 *
 * which is how import scales it; export does the inverse. In general muster's is
 * router_aux_loss_coef × (the mean of E Σ F P over layers and sequences), which is transformers'
 * plus router_aux_loss_coef × E Σ_e cov(F_e, P_e) over layers and sequences: it also balances what
 * transformers lets one layer or sequence make good for another. It needs no sum over stages and
 * replicas, and does not depend on how the batch is split.
 *
 * transformers adds its loss only with output_router_logits = true, and so does import: otherwise
 * aux_loss is 0, and a job that wants the loss sets the key. Export writes true where the model was
 * trained with aux_loss > 0.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_BALANCE_H
#define MUSTER_AGENT_ENGINE_HF_BALANCE_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stdint.h>

/* root: a Mixtral's config.json, of `layers` layers and `top` experts per token, both at least 1;
 * name: of the file, for errors. ERR_CORRUPT: a value of another type. */
int hf_balance_read(const json_t *root, const char *name, int64_t layers, int64_t top,
		    double *aux_loss, struct err *e);

/* Sets their keys in `config`. 0, or -1 without memory. */
int hf_balance_write(const struct job *job, json_t *config);

#endif
