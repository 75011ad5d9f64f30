/*
 * balance — converts the load-balancing loss between a Mixtral's config.json and model.aux_loss.
 *
 * Both are the loss of Fedus et al. (arXiv 2101.03961, section 2.2), over different sets of tokens.
 * There are E experts, k of them per token, and L layers. For a set of tokens, P_e is the mean
 * probability of expert e, F_e the mean number of choices of e per token (ΣF = k), and f_e = F_e / k
 * (Σf = 1):
 *
 *     transformers   router_aux_loss_coef × E Σ_e F_e P_e
 *                    F and P of the whole batch and all layers together
 *     muster         aux_loss × Σ_layers mean over sequences of E Σ_e f_e P_e
 *                    f and P of one sequence and one layer (agent/engine/model/moe.h)
 *
 * If all sequences and layers have the same F and P, the two are equal with
 *
 *     aux_loss = router_aux_loss_coef × k / L
 *
 * Import scales by this rule, and export by its inverse. (With an even load both losses are
 * coefficient × k.) In general, muster's loss is router_aux_loss_coef × (the mean of E Σ F P over
 * layers and sequences). That is transformers' loss plus router_aux_loss_coef × E Σ_e cov(F_e, P_e)
 * over layers and sequences: muster also balances an uneven load that transformers lets another
 * layer or sequence compensate. muster's loss needs no sum over stages and replicas, and does not
 * depend on how the batch is split.
 *
 * transformers adds its loss only if output_router_logits is true, and import follows: otherwise
 * aux_loss becomes 0, and a job that wants the loss sets the key. Export writes true if the model
 * was trained with aux_loss > 0.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_BALANCE_H
#define MUSTER_AGENT_ENGINE_HF_BALANCE_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stdint.h>

/* root: a Mixtral's config.json, with `layers` layers and `top` experts per token, both at least 1.
 * name: the file's name, for errors. ERR_CORRUPT: a value has the wrong type. */
int hf_balance_read(const json_t *root, const char *name, int64_t layers, int64_t top,
		    double *aux_loss, struct err *e);

/* Sets transformers' keys in `config`. Returns 0, or -1 if out of memory. */
int hf_balance_write(const struct job *job, json_t *config);

#endif
