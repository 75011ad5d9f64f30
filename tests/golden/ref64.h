/*
 * ref64 — a textbook Transformer in float64, forward only. The engine's loss must equal its loss,
 * and every gradient must equal its finite differences.
 *
 * The code shares nothing with the engine: no ops, no views, no fused products, no online softmax.
 * It processes one token after another, with plain loops and whole rows of scores.
 */
#ifndef MUSTER_TESTS_GOLDEN_REF64_H
#define MUSTER_TESTS_GOLDEN_REF64_H

#include <stdbool.h>
#include <stdint.h>

struct ref64_tensor {
	const char *name; /* as in plan/spec/model/model.h */
	double *data;
};

enum ref64_rope { REF64_PLAIN, REF64_LINEAR, REF64_LLAMA3 };

struct ref64 {
	int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
	bool llama;    /* RMSNorm, RoPE, SwiGLU, no biases; otherwise GPT-2 */
	bool qkv_bias; /* a LLaMA also has biases of q, k and v */
	bool qk_norm;  /* each head of q and of k is normalized before it is rotated */
	bool tied;
	double eps, theta;
	enum ref64_rope rope;
	double rope_factor, rope_low, rope_high, rope_original;
	int experts, top;        /* 0: one feed-forward block */
	bool before;             /* softmax before the experts are chosen */
	double aux, z, capacity; /* the job's keys of these names */
	const struct ref64_tensor *tensors;
	int n_tensors;
};

/* Returns the mean token loss of inputs, targets [batch, seq], including the router's losses.
 * starts [batch, seq]: the first position that each token attends to; NULL: 0. */
double ref64_loss(const struct ref64 *m, const int32_t *inputs, const int32_t *targets,
		  const int32_t *starts, int batch);

#endif
