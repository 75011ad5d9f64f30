/*
 * ref64 — a textbook Transformer in float64, forward only: what the engine's loss
 * must be, and, by finite differences of it, what every gradient must be.
 *
 * Nothing here is shared with the engine: no ops, no views, no fused products, no
 * online softmax. One token after the other, plain loops, whole score rows.
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
	bool llama;    /* RMSNorm, RoPE, SwiGLU, no biases; else GPT-2 */
	bool qkv_bias; /* biases of q, k and v in a LLaMA, too */
	bool qk_norm;  /* each head of q and of k is normalized before it rotates */
	bool tied;
	double eps, theta;
	enum ref64_rope rope;
	double rope_factor, rope_low, rope_high, rope_original;
	int experts, top;        /* 0: one feed-forward part */
	bool before;             /* softmax before the choice of the experts */
	double aux, z, capacity; /* as the job's keys */
	const struct ref64_tensor *tensors;
	int n_tensors;
};

/* Mean token loss of inputs, targets [batch, seq], the router's losses with it. starts [batch,
 * seq]: the first position that each token attends to; NULL: 0. */
double ref64_loss(const struct ref64 *m, const int32_t *inputs, const int32_t *targets,
		  const int32_t *starts, int batch);

#endif
