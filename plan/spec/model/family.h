/*
 * family — the model families, one row each. A row holds every trait that sets a family apart, and
 * no other code asks which family a model belongs to: shapes, the parameter catalogue, activation
 * memory, FLOPs, the engine, `muster generate` and the checks of the job file read the traits.
 *
 * To add a family whose traits exist:
 *   1. Add its row to SHAPE_FAMILIES below. The row defines FAMILY_<id>, the word for [model]
 *      family and the text of its help.
 *   2. Add its class and its config.json keys to agent/engine/hf/family.c: import and export then
 *      work.
 *   3. Add a tiny model to tests/golden/make_golden.py and run it: the files hold what transformers
 *      computes.
 *   4. Add the model's folder to the cases of tests/unit/agent/test_model_golden.c.
 *
 * A new trait also needs a member of struct shape_family and of struct model_shape (model.h), and
 * what it changes:
 *     parameters      a role in model.h, a row and a condition in catalogue.c, the count in
 *                     shape_params(), its tensor name in agent/engine/hf/names.c and
 *                     megatron.c
 *     activations     a row in activations.h and activations.c
 *     computation     agent/engine/model/ for training, agent/engine/generate/ for inference
 *     cost            a pass in plan/cost/engine.c
 *     the reference   tests/golden/ref64.c, and a case in test_model_gradients.c and in
 *                     test_strategies.c
 */
#ifndef MUSTER_PLAN_SPEC_MODEL_FAMILY_H
#define MUSTER_PLAN_SPEC_MODEL_FAMILY_H

#include <stdbool.h>

struct shape_family {
	const char *word; /* of [model] family; transformers' model_type, too */
	bool rms;         /* RMSNorm; otherwise LayerNorm, which has biases */
	bool rope;        /* rotary positions; otherwise learned ones */
	bool gated;       /* SwiGLU; otherwise GELU */
	bool qkv_bias;    /* biases of the q, k and v projections */
	bool bias;        /* biases of the o projection and of the feed-forward part */
	bool qk_norm;     /* RMSNorm of each head of q and of k, before the rotation */
	bool tied;        /* tie_head = auto ties the output head to the token embedding */
	bool experts;     /* a mixture of experts in place of the feed-forward part */
};

/* clang-format off */
/* X(id, word, help, traits): traits initialize a struct shape_family. */
#define SHAPE_FAMILIES(X) \
	X(GPT2, "gpt2", "LayerNorm, learned positions, GELU, biases", .qkv_bias = true, .bias = true, .tied = true) \
	X(LLAMA, "llama", "RMSNorm, rotary positions, SwiGLU", .rms = true, .rope = true, .gated = true) \
	X(MIXTRAL, "mixtral", "llama with a mixture of experts", .rms = true, .rope = true, .gated = true, .experts = true) \
	X(QWEN2, "qwen2", "llama with biases of q, k and v", .rms = true, .rope = true, .gated = true, .qkv_bias = true) \
	X(QWEN3, "qwen3", "llama with RMSNorm of each head of q and k", .rms = true, .rope = true, .gated = true, .qk_norm = true)
/* clang-format on */

#define SHAPE_FAMILY_ID(id, ...) FAMILY_##id,
enum job_family { SHAPE_FAMILIES(SHAPE_FAMILY_ID) FAMILIES };
#undef SHAPE_FAMILY_ID

extern const struct shape_family shape_families[FAMILIES];

#endif
