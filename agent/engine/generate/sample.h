/*
 * sample — which token comes next, of a row of logits.
 *
 * The logits are divided by the temperature; the top_k largest stay, and of these the fewest whose
 * probabilities add up to top_p (Holtzman et al., arXiv 1904.09751); one of what is left is drawn
 * by its probability. Equal logits stand in the order of their ids. The number drawn with is
 * Philox's of (seed, place), so that a text is a function of the seed.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_SAMPLE_H
#define MUSTER_AGENT_ENGINE_GENERATE_SAMPLE_H

#include "base/err.h"

#include <stdint.h>

struct sample_options {
	double temperature; /* >= 0; 0: the largest logit, nothing is drawn */
	int64_t top_k;      /* 0: all */
	double top_p;       /* in (0, 1]; 1: all */
	uint64_t seed;
};

struct sampler; /* memory for a vocabulary */
int generate_sampler_open(const struct sample_options *opt, int64_t vocab, struct sampler **out,
			  struct err *e);
void generate_sampler_close(struct sampler *s);

/* The token for number `place` of the text. logits: [vocab]. ERR_NUMERIC when one is not a
 * number, or none is finite. */
int generate_sampler_draw(struct sampler *s, const float *logits, uint64_t place, int32_t *token,
			  struct err *e);

#endif
