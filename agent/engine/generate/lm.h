/*
 * lm — a language model for inference: whole weights in this process, a cache of keys and values.
 *
 * It computes what the training model's forward pass does (agent/engine/model/model.h), of one
 * sequence, without dropout and with experts that never drop a token, and shares no code with it:
 * logits that agree are two witnesses. Tokens are appended at the positions behind those that it
 * has seen; each layer's keys and values of these are kept, so that a token costs one pass over the
 * weights, whatever stands before it.
 *
 * One thread calls it; the backend's threads do the work.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_LM_H
#define MUSTER_AGENT_ENGINE_GENERATE_LM_H

#include "base/err.h"
#include "plan/spec/model/model.h"

#include <stdint.h>

struct lm;

struct lm_options {
	struct model_shape shape; /* seq: the most tokens that it can see at once */
	const char *backend_name; /* "cpu", "plain" */
	int threads;
};

/* ERR_NOMEM names the bytes. The weights are not set yet. */
int generate_lm_open(const struct lm_options *opt, struct lm **out, struct err *e);
void generate_lm_close(struct lm *m);

/* The weights by their global names (plan/spec/model/model.h): what generate_lm_load, or a test,
 * fills. */
const struct catalogue *generate_lm_catalogue(const struct lm *m);
float *generate_lm_weights(struct lm *m); /* in the catalogue's flat order */
/* Loads them from a checkpoint of any layout; digests are verified. */
int generate_lm_load(struct lm *m, const char *checkpoint, struct err *e);

/* Tokens that it has seen since the last generate_lm_reset, at most shape.seq. */
int64_t generate_lm_length(const struct lm *m);
void generate_lm_reset(struct lm *m);
/* Appends n tokens, 1 <= n <= seq - length, and computes the logits, [vocab], of what follows the
 * last of them. ERR_USAGE for a token outside of the vocabulary, and when they are too many. */
int generate_lm_append(struct lm *m, const int32_t *tokens, int64_t n, float *logits,
		       struct err *e);
/* The same with the logits of what follows each of them, [n, vocab]. */
int generate_lm_append_all(struct lm *m, const int32_t *tokens, int64_t n, float *logits,
			   struct err *e);

#endif
