/*
 * LayerNorm and RMSNorm. The forward pass takes the sum as it is stored, after rounding. So a norm
 * that is recomputed from what was kept gives the same bits. The backward pass sums over rows, so
 * all threads work on one block.
 */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

struct fwd {
	void *y, *sum;
	float *mean, *rstd; /* mean: NULL for RMSNorm */
	const void *x, *r, *w, *bias;
	int64_t c;
	float eps;
};

/* The norm's input: x, or x + r after it was rounded to the storage type. */
static float *input(struct tile *t, const struct fwd *a, int64_t at, int64_t count)
{
	float *x = low_precision_tile_in(t, a->x, at, count);
	if (!a->r)
		return x;
	t->fp32->add(t->k, x, low_precision_tile_in(t, a->r, at, count), count);
	low_precision_tile_out(t, a->sum, at, count, x);
	return low_precision_tile_in(t, a->sum, at, count);
}

static void fwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct fwd *a = callv;
	int64_t c = a->c, at = lo * c, count = n * c;
	const float *w = low_precision_tile_in(t, a->w, 0, c),
		    *bias = low_precision_tile_in(t, a->bias, 0, c);
	float *x = input(t, a, at, count), *y = low_precision_tile_room(t, count);
	if (a->mean)
		t->fp32->layernorm_fwd(t->k, y, NULL, a->mean + lo, a->rstd + lo, x, NULL, w, bias,
				       n, c, a->eps);
	else
		t->fp32->rmsnorm_fwd(t->k, y, NULL, a->rstd + lo, x, NULL, w, n, c, a->eps);
	low_precision_tile_out(t, a->y, at, count, y);
}

static void layernorm_fwd(struct backend *k, void *y, void *sum, float *mean, float *rstd,
			  const void *x, const void *r, const void *w, const void *bias, int64_t n,
			  int64_t c, float eps)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(4 * c), fwd_tile,
				&(struct fwd){ y, sum, mean, rstd, x, r, w, bias, c, eps });
}

static void rmsnorm_fwd(struct backend *k, void *y, void *sum, float *rstd, const void *x,
			const void *r, const void *w, int64_t n, int64_t c, float eps)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(4 * c), fwd_tile,
				&(struct fwd){ y, sum, NULL, rstd, x, r, w, NULL, c, eps });
}

struct bwd {
	void *dx;
	float *dw, *dbias;
	const void *dy, *dres, *x;
	const float *mean, *rstd; /* mean: NULL for RMSNorm */
	const void *w;
	int64_t n, c;
	bool add;
};

static void bwd_block(struct tile *t, const struct bwd *a, const float *w, int64_t lo, int64_t n)
{
	int64_t c = a->c, at = lo * c, count = n * c;
	float *dy = low_precision_tile_in(t, a->dy, at, count),
	      *dres = low_precision_tile_in(t, a->dres, at, count),
	      *x = low_precision_tile_in(t, a->x, at, count);
	bool add = a->add || lo;
	float *dx = dres ? dres : low_precision_tile_room(t, count);
	if (a->mean)
		t->fp32->layernorm_bwd(t->k, dx, a->dw, a->dbias, dy, dres, x, a->mean + lo,
				       a->rstd + lo, w, n, c, add);
	else
		t->fp32->rmsnorm_bwd(t->k, dx, a->dw, dy, dres, x, a->rstd + lo, w, n, c, add);
	low_precision_tile_out(t, a->dx, at, count, dx);
}

static void bwd(struct backend *k, const struct bwd *a)
{
	struct tile whole = low_precision_tile_team(k);
	const float *w = low_precision_tile_in(&whole, a->w, 0, a->c);
	int64_t most = low_precision_team_rows(3 * a->c);
	for (int64_t lo = 0; lo < a->n || (lo == 0 && !a->add); lo += most) {
		struct tile t = whole;
		bwd_block(&t, a, w, lo, min_int64(most, a->n - lo));
	}
}

static void layernorm_bwd(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			  const void *dres, const void *x, const float *mean, const float *rstd,
			  const void *w, int64_t n, int64_t c, bool add)
{
	bwd(k, &(struct bwd){ dx, dw, dbias, dy, dres, x, mean, rstd, w, n, c, add });
}

static void rmsnorm_bwd(struct backend *k, void *dx, float *dw, const void *dy, const void *dres,
			const void *x, const float *rstd, const void *w, int64_t n, int64_t c,
			bool add)
{
	bwd(k, &(struct bwd){ dx, dw, NULL, dy, dres, x, NULL, rstd, w, n, c, add });
}

void low_precision_norm(struct ops *o)
{
	o->layernorm_fwd = layernorm_fwd;
	o->layernorm_bwd = layernorm_bwd;
	o->rmsnorm_fwd = rmsnorm_fwd;
	o->rmsnorm_bwd = rmsnorm_bwd;
}
