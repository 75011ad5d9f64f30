/* Vocabulary-parallel cross-entropy, a few rows of logits at a time. */
#include "kernels/low_precision/low_precision.h"

struct call {
	void *logits;
	float *max, *sum, *target;
	const int32_t *targets;
	int64_t v, row;
	int32_t lo;
	const float *scale;
};

static void max_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	t->fp32->xent_max(t->k, a->max + lo,
			  low_precision_tile_in_rows(t, a->logits, lo * a->row, a->row, n, a->v), n,
			  a->v, a->v);
}

static void exp_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *x = low_precision_tile_in_rows(t, a->logits, lo * a->row, a->row, n, a->v);
	t->fp32->xent_exp(t->k, x, a->sum + lo, a->target + lo, a->max + lo, a->targets + lo, n,
			  a->v, a->v, a->lo);
	low_precision_tile_out_rows(t, a->logits, lo * a->row, a->row, n, a->v, x);
}

static void grad_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *x = low_precision_tile_in_rows(t, a->logits, lo * a->row, a->row, n, a->v);
	t->fp32->xent_grad(t->k, x, a->sum + lo, a->targets + lo, a->scale, n, a->v, a->v, a->lo);
	low_precision_tile_out_rows(t, a->logits, lo * a->row, a->row, n, a->v, x);
}

static void xent_max(struct backend *k, float *max, const void *logits, int64_t n, int64_t v,
		     int64_t row)
{
	low_precision_tiles_run(
		k, n, low_precision_tile_rows(v), max_tile,
		&(struct call){ .logits = (void *)logits, .max = max, .v = v, .row = row });
}

static void xent_exp(struct backend *k, void *logits, float *sum, float *target, const float *max,
		     const int32_t *targets, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(v), exp_tile,
				&(struct call){ logits, (float *)max, sum, target, targets, v, row,
						lo, NULL });
}

static void xent_grad(struct backend *k, void *logits, const float *sum, const int32_t *targets,
		      const float *scale, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(v), grad_tile,
				&(struct call){ logits, NULL, (float *)sum, NULL, targets, v, row,
						lo, scale });
}

void low_precision_xent(struct ops *o)
{
	o->xent_max = xent_max;
	o->xent_exp = xent_exp;
	o->xent_grad = xent_grad;
}
