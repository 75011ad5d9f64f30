/*
 * text — goes on with a text: a prompt's tokens in, one token after the other out.
 *
 * When the model's context is full, it goes on from the last half of it: the cache is built anew
 * from these tokens, at the positions from 0 on. From then on a token sees between half a context
 * and a whole one. A prompt longer than the context is cut in the same way.
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
	int64_t usable;  /* tokens below this may come: 1 … vocab */
	struct sample_options sample;
};

int generate_text_open(const struct generated_text_options *opt, struct generated_text **out,
		       struct err *e);
void generate_text_close(struct generated_text *t);

/* Takes the prompt, n >= 1 tokens. Once. */
int generate_text_prompt(struct generated_text *t, const int32_t *tokens, int64_t n, struct err *e);
/* Draws the next token, which becomes part of the text. */
int generate_text_next(struct generated_text *t, int32_t *token, struct err *e);
/* How many of the first tokens of the text the next one does not see. */
int64_t generate_text_unseen(const struct generated_text *t);

#endif
