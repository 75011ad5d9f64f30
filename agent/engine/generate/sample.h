/*
 * sample — selects the next token from a row of logits.
 *
 * The logits are divided by the temperature. Then the top_k largest are kept, and of these the fewest
 * whose probabilities add up to top_p (Holtzman et al., arXiv 1904.09751). One of them is drawn by its
 * probability. Equal logits are ordered by token id. The random number comes from Philox with the
 * key (seed, place), so a text is a function of the seed.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_SAMPLE_H
#define MUSTER_AGENT_ENGINE_GENERATE_SAMPLE_H

#include "base/err.h"

#include <stdint.h>

struct sample_options {
	double temperature; /* >= 0; 0: always the largest logit */
	int64_t top_k;      /* 0: all */
	double top_p;       /* in (0, 1]; 1: all */
	uint64_t seed;
};

struct sampler;
int generate_sampler_open(const struct sample_options *opt, int64_t vocab, struct sampler **out,
			  struct err *e);
void generate_sampler_close(struct sampler *s);

/* Draws the token at position `place` of the text. logits: [vocab]. ERR_NUMERIC: a logit is NaN, or
 * the largest is not finite. */
int generate_sampler_draw(struct sampler *s, const float *logits, uint64_t place, int32_t *token,
			  struct err *e);

#endif
