/*
 * text — continues a text: takes a prompt's tokens and produces further tokens one by one.
 *
 * When the model's context is full, the text continues from the last half of it: the cache is
 * rebuilt from those tokens, at positions from 0. From then on, each token sees between half a
 * context and a whole one. A prompt that is longer than the context is cut in the same way.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_TEXT_H
#define MUSTER_AGENT_ENGINE_GENERATE_TEXT_H

#include "agent/engine/generate/lm.h"
#include "agent/engine/generate/sample.h"

struct generated_text;

struct generated_text_options {
	struct lm *lm;   /* borrowed */
	int64_t context; /* the model's seq */
	int64_t vocab;   /* logits of the model */
	int64_t usable;  /* only tokens below this are drawn: 1 … vocab */
	struct sample_options sample;
};

int generate_text_open(const struct generated_text_options *opt, struct generated_text **out,
		       struct err *e);
void generate_text_close(struct generated_text *t);

/* Sets the prompt, n >= 1 tokens. Call it once. */
int generate_text_prompt(struct generated_text *t, const int32_t *tokens, int64_t n, struct err *e);
/* Draws the next token and appends it to the text. */
int generate_text_next(struct generated_text *t, int32_t *token, struct err *e);
/* How many tokens at the start of the text the next token does not see. */
int64_t generate_text_unseen(const struct generated_text *t);

#endif
