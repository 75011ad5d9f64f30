/*
 * dcp — the weights of a model in a folder of torch.distributed.checkpoint, or of Megatron's
 * dist_checkpointing (agent/engine/dcp/folder.h), in place of weights.h.
 *
 * The names are transformers' (names.h), or Megatron's (megatron.h) if the folder has its embedding.
 * dcp_names.h finds them.
 *
 * Every tensor of the model must be there, with its shape, and every tensor under the prefix must
 * belong to the model. Not imported: state of the optimizer and of training, by a table of names;
 * everything outside the prefix; _extra_state, which holds scales of fp8.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_DCP_H
#define MUSTER_AGENT_ENGINE_HF_DCP_H

#include "agent/engine/hf/names.h"
#include "base/err.h"

struct hf_dcp;

/* Refuses formats of dist_checkpointing other than torch_dist. */
int hf_dcp_open(const char *folder, struct hf_dcp **out, struct err *e);
void hf_dcp_close(struct hf_dcp *d);

/* As hf_weights_fit. `names` and `m` are borrowed until hf_dcp_close. */
int hf_dcp_fit(struct hf_dcp *d, const struct hf_names *names, const struct model_shape *m,
	       struct err *e);

/* Whether the names are Megatron's; after hf_dcp_fit. */
bool hf_dcp_is_megatron(const struct hf_dcp *d);

/* As hf_weights_read. */
int hf_dcp_read(struct hf_dcp *d, const struct hf_tensor *t, float *out, float *room,
		struct err *e);

/* Tells what was left out, cut off or rounded, after hf_dcp_fit. */
void hf_dcp_tell(const struct hf_dcp *d, void (*note)(void *arg, const char *text), void *arg);

#endif
