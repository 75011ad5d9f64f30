#include "agent/engine/generate/sample.h"

#include "base/philox.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct sampler {
	struct sample_options opt;
	struct philox_key key;
	int64_t vocab;
	struct candidate {
		double weight; /* probability times a common factor */
		int32_t token;
	} * heap; /* [vocab] */
};

int generate_sampler_open(const struct sample_options *opt, int64_t vocab, struct sampler **out,
			  struct err *e)
{
	struct sampler *s = calloc(1, sizeof *s);
	if (s)
		s->heap = calloc((size_t)vocab, sizeof *s->heap);
	if (!s || !s->heap) {
		generate_sampler_close(s);
		return err_set(e, ERR_NOMEM, "no memory to sample from %lld tokens",
			       (long long)vocab);
	}
	s->opt = *opt;
	s->vocab = vocab;
	s->key = philox_key(opt->seed, PHILOX_SAMPLE, 0);
	*out = s;
	return 0;
}

void generate_sampler_close(struct sampler *s)
{
	if (!s)
		return;
	free(s->heap);
	free(s);
}

static int find_largest(const float *logits, int64_t n, int32_t *at, struct err *e)
{
	int64_t best = 0;
	for (int64_t i = 0; i < n; i++) {
		if (isnan(logits[i]))
			return err_set(e, ERR_NUMERIC,
				       "the logit of token %lld is not a number; the checkpoint's "
				       "weights are damaged, or "
				       "training had diverged",
				       (long long)i);
		if (logits[i] > logits[best])
			best = i;
	}
	if (!isfinite(logits[best]))
		return err_set(
			e, ERR_NUMERIC,
			"the largest logit, of token %lld, is infinite; training had diverged",
			(long long)best);
	*at = (int32_t)best;
	return 0;
}

/* Whether a precedes b: it has a higher probability, or the same probability and a lower id. */
static bool is_likelier(const struct candidate *a, const struct candidate *b)
{
	return a->weight != b->weight ? a->weight > b->weight : a->token < b->token;
}

static void sift_down(struct candidate *heap, int64_t n, int64_t i)
{
	struct candidate moved = heap[i];
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && is_likelier(&heap[child + 1], &heap[child]))
			child++;
		if (is_likelier(&moved, &heap[child]))
			break;
		heap[i] = heap[child];
	}
	heap[i] = moved;
}

/* Moves the most probable of the heap's n candidates to its end, and returns its weight. */
static double pop_likeliest(struct candidate *heap, int64_t n)
{
	struct candidate first = heap[0];
	heap[0] = heap[n - 1];
	sift_down(heap, n - 1, 0);
	heap[n - 1] = first;
	return first.weight;
}

/* Returns how many of the most probable candidates are kept, and sets their weight. They are the
 * last in the heap, with the most probable one at the end. */
static int64_t keep_likeliest(struct sampler *s, double total, double *weight)
{
	int64_t k = s->opt.top_k ? s->opt.top_k < s->vocab ? s->opt.top_k : s->vocab : s->vocab,
		kept = 0;
	double of_k = 0;
	for (int64_t i = s->vocab / 2; i-- > 0;)
		sift_down(s->heap, s->vocab, i);
	for (int64_t i = 0; i < k && k < s->vocab; i++)
		of_k += pop_likeliest(s->heap, s->vocab - i);
	bool popped = k < s->vocab;
	double most = s->opt.top_p * (popped ? of_k : total);
	*weight = 0;
	while (kept < k && (kept == 0 || *weight < most)) {
		*weight += popped ? s->heap[s->vocab - 1 - kept].weight
				  : pop_likeliest(s->heap, s->vocab - kept);
		kept++;
	}
	return kept;
}

/* Returns a random number in [0, 1) with 53 random bits. */
static double draw_uniform(const struct sampler *s, uint64_t place)
{
	uint32_t r[4];
	philox4(s->key, place, r);
	return (double)((uint64_t)r[0] << 21 ^ r[1] >> 11) * 0x1p-53;
}

static double set_weights(struct sampler *s, const float *logits, double max)
{
	double total = 0;
	for (int64_t i = 0; i < s->vocab; i++) {
		double w = exp(((double)logits[i] - max) / s->opt.temperature);
		s->heap[i] = (struct candidate){ w, (int32_t)i };
		total += w;
	}
	return total;
}

int generate_sampler_draw(struct sampler *s, const float *logits, uint64_t place, int32_t *token,
			  struct err *e)
{
	int32_t best = 0;
	if (find_largest(logits, s->vocab, &best, e))
		return -1;
	if (s->opt.temperature <= 0) {
		*token = best;
		return 0;
	}
	double weight = set_weights(s, logits, (double)logits[best]);
	int64_t kept = s->vocab;
	bool whole = !s->opt.top_k && s->opt.top_p >= 1;
	if (!whole)
		kept = keep_likeliest(s, weight, &weight);
	double at = draw_uniform(s, place) * weight;
	int64_t i = s->vocab - 1, last = s->vocab - kept;
	while (i > last && at >= s->heap[i].weight)
		at -= s->heap[i--].weight;
	*token = s->heap[i].weight > 0 ? s->heap[i].token : best;
	return 0;
}
