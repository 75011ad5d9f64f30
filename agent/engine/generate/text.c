#include "agent/engine/generate/text.h"

#include <stdlib.h>
#include <string.h>

struct generated_text {
	struct generated_text_options opt;
	struct sampler *sampler;
	int32_t *seen;     /* [context] tokens that the model sees */
	int64_t n_seen, n; /* tokens in `seen`; in the whole text */
	int64_t shown;     /* how many of `seen` are in lm's cache */
	float *logits;     /* [vocab] */
};

int generate_text_open(const struct generated_text_options *opt, struct generated_text **out,
		       struct err *e)
{
	struct generated_text *t = calloc(1, sizeof *t);
	if (t) {
		t->seen = calloc((size_t)opt->context, sizeof *t->seen);
		t->logits = calloc((size_t)opt->vocab, sizeof *t->logits);
	}
	if (!t || !t->seen || !t->logits) {
		generate_text_close(t);
		return err_set(e, ERR_NOMEM, "no memory for a text of %lld tokens",
			       (long long)opt->context);
	}
	t->opt = *opt;
	if (generate_sampler_open(&opt->sample, opt->usable, &t->sampler, e)) {
		generate_text_close(t);
		return -1;
	}
	generate_lm_reset(opt->lm);
	*out = t;
	return 0;
}

void generate_text_close(struct generated_text *t)
{
	if (!t)
		return;
	generate_sampler_close(t->sampler);
	free(t->seen);
	free(t->logits);
	free(t);
}

static int64_t half_context(const struct generated_text *t)
{
	return t->opt.context > 1 ? t->opt.context / 2 : 1;
}

int generate_text_prompt(struct generated_text *t, const int32_t *tokens, int64_t n, struct err *e)
{
	int64_t keep = n > t->opt.context ? half_context(t) : n;
	memcpy(t->seen, tokens + n - keep, (size_t)keep * sizeof *tokens);
	t->n_seen = keep;
	t->n = n;
	t->shown = keep;
	return generate_lm_append(t->opt.lm, t->seen, keep, t->logits, e);
}

/* Appends the pushed tokens to the model. */
static int append_pushed(struct generated_text *t, struct err *e)
{
	int64_t n = t->n_seen - t->shown;
	t->shown = t->n_seen;
	return n ? generate_lm_append(t->opt.lm, t->seen + t->n_seen - n, n, t->logits, e) : 0;
}

/* Adds a token to `seen`. If the context is full, keeps only its last half, which the model must
 * then see again. */
static void push_token(struct generated_text *t, int32_t token)
{
	if (t->n_seen == t->opt.context) {
		int64_t keep = t->opt.context > 1 ? half_context(t) - 1 : 0;
		memmove(t->seen, t->seen + t->n_seen - keep, (size_t)keep * sizeof *t->seen);
		t->n_seen = keep;
		t->shown = 0;
		generate_lm_reset(t->opt.lm);
	}
	t->seen[t->n_seen++] = token;
	t->n++;
}

int generate_text_next(struct generated_text *t, int32_t *token, struct err *e)
{
	if (append_pushed(t, e) ||
	    generate_sampler_draw(t->sampler, t->logits, (uint64_t)t->n, token, e))
		return -1;
	push_token(t, *token);
	return 0;
}

int64_t generate_text_unseen(const struct generated_text *t)
{
	return t->n - t->n_seen;
}
