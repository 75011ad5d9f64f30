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
	const char *name; /* as in plan/model.h */
	double *data;
};

struct ref64 {
	int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
	bool llama; /* RMSNorm, RoPE, SwiGLU, no biases; else GPT-2 */
	bool tied;
	double eps, theta;
	const struct ref64_tensor *tensors;
	int n_tensors;
};

/* Mean token loss of inputs, targets [batch, seq]. logits [batch, seq, vocab] may be NULL. */
double ref64_loss(const struct ref64 *m, const int32_t *inputs, const int32_t *targets, int batch, double *logits);

#endif
