/*
 * megatron — maps muster's tensors to those of Megatron-core's GPT models, as dist_checkpointing
 * names them.
 *
 * One table of patterns (megatron.c) has a row for each of muster's tensors. Megatron's tensors
 * differ from the others in these ways:
 *   - Layers of equal form are one tensor: decoder.layers.self_attention.linear_qkv.weight has a
 *     dimension 0 of all layers. A model whose layers differ has decoder.layers.N.… instead. Experts
 *     are stacked behind the layers in the same two ways.
 *   - linear_qkv has the rows of each kv head together: [its q heads, k, v].
 *   - linear_fc1 of a SwiGLU has gate, then up. With singleton_local_shards they are two tensors,
 *     linear_fc1.weight_w and linear_fc1.weight_v.
 *   - Norms in front of a linear layer can be fused with it: linear_qkv.layer_norm_weight.
 *   - The vocabulary is padded with rows that no token has (--make-vocab-size-divisible-by). They
 *     are cut off.
 * Rotary positions pair (i, i + d/2), like muster's; a checkpoint does not tell whether it was
 * trained with --rotary-interleaved or --apply-layernorm-1p, which muster does not compute.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_MEGATRON_H
#define MUSTER_AGENT_ENGINE_HF_MEGATRON_H

#include "agent/engine/dcp/metadata.h"
#include "agent/engine/hf/names.h"
#include "base/err.h"
#include "plan/spec/model/model.h"

#define HF_MEGATRON_ANCHOR "embedding.word_embeddings.weight"

/* Where one of muster's tensors is. */
struct hf_megatron_place {
	struct dcp_tensor *tensor;
	int stacked;   /* bit 0: the tensor has all layers; bit 1: all experts */
	int lead;      /* stacked dimensions in front of the rows */
	int64_t at[2]; /* the index in each of them */
	/* The rows are `groups` runs of `rows` each, `step` apart, of which the first begins at
	 * row `first`. */
	int64_t first, rows, groups, step;
	int64_t padding; /* rows that are cut off */
};

/* A tensor of the folder by its name without prefix and wrappers; NULL: none. */
typedef struct dcp_tensor *hf_megatron_find(void *arg, const char *name);

/* ERR_CORRUPT: the folder has no such tensor, or it has another shape. folder: its name, for
 * errors. */
int hf_megatron_locate(const struct model_shape *m, const struct hf_tensor *t,
		       const struct hf_part *part, hf_megatron_find *find, void *arg,
		       const char *folder, struct hf_megatron_place *out, struct err *e);

#endif
