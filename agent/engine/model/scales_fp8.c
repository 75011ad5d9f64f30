#include "agent/engine/model/scales_fp8.h"

#include <stdlib.h>

struct model_scales {
	struct model_scales_options o;
	struct fp8_scale *at;     /* [FP8_SIDES][layers][ACT_LINEARS] */
	struct fp8_scale *before; /* what they were before the last update: [the same] */
	bool known;               /* the scales were computed or loaded */
	bool known_before;        /* and before the last update */
	bool used;                /* a step has begun since the last update */
};

_Static_assert(sizeof(struct fp8_scale) % sizeof(int32_t) == 0, "scales travel as integers");

const char *const model_scales_names[FP8_SIDES] = {
	[FP8_INPUTS] = ACT_FP8_TENSORS "inputs", [FP8_GRADIENTS] = ACT_FP8_TENSORS "gradients"
};

static int64_t side_count(const struct model_scales *s)
{
	return (int64_t)s->o.layers * ACT_LINEARS;
}

static size_t all_bytes(const struct model_scales *s)
{
	return (size_t)(FP8_SIDES * side_count(s)) * sizeof *s->at;
}

int model_scales_open(const struct model_scales_options *o, struct model_scales **out,
		      struct err *e)
{
	struct model_scales *s = calloc(1, sizeof *s);
	if (s) {
		s->o = *o;
		size_t bytes = (size_t)activations_lines((int64_t)all_bytes(s));
		s->at = backend_alloc(o->backend, bytes);
		s->before = backend_alloc(o->backend, bytes);
	}
	if (!s || !s->at || !s->before) {
		model_scales_close(s);
		return err_set(e, ERR_NOMEM,
			       "no memory for the scales of %d layers; set precision.fp8_scaling = "
			       "current",
			       o->layers);
	}
	model_scales_clear(s);
	*out = s;
	return 0;
}

void model_scales_close(struct model_scales *s)
{
	if (!s)
		return;
	backend_free(s->o.backend, s->at);
	backend_free(s->o.backend, s->before);
	free(s);
}

struct fp8_scale *model_scales_at(const struct model_scales *s, enum fp8_side side, int layer,
				  enum act_linear l)
{
	return s->at + side * side_count(s) + (int64_t)layer * ACT_LINEARS + (int)l;
}

/* No field is negative, so that their bits, as integers, have the order of the numbers. All but the
 * largest ones are equal on all ranks. */
static int share_largest(struct model_scales *s, struct err *e)
{
	size_t words = all_bytes(s) / sizeof(int32_t);
	return parallel_largest(s->o.world, (int32_t *)(void *)s->at, words, e)
		       ? err_prefix(e, "the scales of 8-bit tensors")
		       : 0;
}

/* ends: a step has ended. Otherwise the history stays. */
static void update(struct model_scales *s, bool ends)
{
	const enum fp8 formats[] = { [FP8_INPUTS] = FP8_E4M3, [FP8_GRADIENTS] = s->o.gradients };
	for (int i = 0; i < FP8_SIDES; i++)
		backend_ops(s->o.backend)
			->fp8_update_scales(s->o.backend, s->at + i * side_count(s), side_count(s),
					    formats[i], ends);
}

int model_scales_settle(struct model_scales *s, struct err *e)
{
	if (!s->used)
		return 0;
	backend_copy(s->o.backend, s->before, s->at, all_bytes(s));
	s->known_before = s->known;
	if (share_largest(s, e))
		return -1;
	update(s, true);
	s->used = false;
	s->known = true;
	return 0;
}

/* Finds whether scales were loaded, and makes them those of this run's formats. It waits for the
 * device, once. */
static int look(struct model_scales *s, struct err *e)
{
	struct fp8_scale first;
	if (backend_get(s->o.backend, &first, s->at, sizeof first, e))
		return -1;
	s->known = first.updates > 0;
	if (s->known)
		update(s, false);
	return 0;
}

int model_scales_begin(struct model_scales *s, struct err *e)
{
	if (model_scales_settle(s, e) || (!s->known && look(s, e)))
		return -1;
	s->used = true;
	return 0;
}

void model_scales_back(struct model_scales *s)
{
	backend_copy(s->o.backend, s->at, s->before, all_bytes(s));
	s->known = s->known_before;
	s->used = false;
}

bool model_scales_known(const struct model_scales *s)
{
	return s->known;
}

void model_scales_clear(struct model_scales *s)
{
	backend_zero(s->o.backend, s->at, all_bytes(s));
	s->known = s->used = false;
}

int model_scales_layers(const struct model_scales *s)
{
	return s->o.layers;
}

float *model_scales_tensor(const struct model_scales *s, enum fp8_side side)
{
	return (float *)(void *)(s->at + side * side_count(s));
}

bool model_scales_saves(const struct model_scales *s)
{
	return parallel_is_first(s->o.world);
}
