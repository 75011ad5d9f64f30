/*
 * lm — a language model for inference: all weights in this process, and a cache of keys and values.
 *
 * It computes the forward pass of the training model (agent/engine/model/model.h) for one sequence,
 * without dropout, and with experts that never drop a token. It shares no code with the training
 * model, so each is a check of the other. Tokens are appended after those that the model has seen.
 * Each layer caches their keys and values, so that a further token costs one pass over the weights,
 * independent of the tokens before it.
 *
 * One thread calls it; the backend's threads compute.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_LM_H
#define MUSTER_AGENT_ENGINE_GENERATE_LM_H

#include "base/err.h"
#include "plan/spec/model/model.h"

#include <stdint.h>

struct lm;

struct lm_options {
	struct model_shape shape; /* seq: the most tokens that the model can see at once */
	const char *backend_name; /* "cpu", "reference" */
	int threads;
};

/* Allocates the model; the weights are not set. ERR_NOMEM: the text has the size. */
int generate_lm_open(const struct lm_options *opt, struct lm **out, struct err *e);
void generate_lm_close(struct lm *m);

/* The weights and their global names (plan/spec/model/model.h). generate_lm_load, or a test, sets
 * them. */
const struct catalogue *generate_lm_catalogue(const struct lm *m);
float *generate_lm_weights(struct lm *m); /* in the catalogue's flat order */
/* Loads the weights from a checkpoint of any layout, and verifies its digests. */
int generate_lm_load(struct lm *m, const char *checkpoint, struct err *e);

/* How many tokens the model has seen since the last generate_lm_reset; at most shape.seq. */
int64_t generate_lm_length(const struct lm *m);
void generate_lm_reset(struct lm *m);
/* Appends n tokens, 1 <= n <= seq - length, and sets logits [vocab] for the token after them.
 * ERR_USAGE: a token is outside the vocabulary, or there are too many. */
int generate_lm_append(struct lm *m, const int32_t *tokens, int64_t n, float *logits,
		       struct err *e);
/* Like generate_lm_append, but sets logits [n, vocab] for the token after each of them. */
int generate_lm_append_all(struct lm *m, const int32_t *tokens, int64_t n, float *logits,
			   struct err *e);

#endif
