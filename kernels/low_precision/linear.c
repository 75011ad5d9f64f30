/*
 * Matrix products, block by block. Operands are converted into blocks that fill the arena, so that
 * many rows of the other operand share one conversion: with a thousand rows it costs about a
 * thousandth of the products' additions. A sum over more than DEPTH elements is several products,
 * added in fp32.
 */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

#include <string.h>

enum {
	DEPTH = 4096,  /* of one product */
	COLUMNS = 512, /* of one block of a weight gradient */
	SLACK = 1024   /* floats that alignment may take */
};

/* c[m, p] = a[m, q] · w, where w is [p, q] (forward: c = a wᵀ + bias) or [q, p] (backward). */
struct product {
	bool backward;
	void *c;
	const void *a, *w, *bias;
	int64_t m, q, p;
};

/* The edges of the blocks: a's takes half of the scratch, w's and c's the rest. */
struct cut {
	int64_t m, q, p;
};

static struct cut cut_of(const struct product *f, int64_t room)
{
	struct cut s = { .q = min_int64(f->q, DEPTH) };
	s.m = min_int64(f->m, room / 2 / s.q);
	int64_t results = s.q < f->q ? 2 : 1;
	s.p = min_int64(f->p, (room - s.m * s.q) / (s.q + results * s.m + 1));
	return s;
}

static float *weight(struct tile *t, const struct product *f, int64_t q0, int64_t q, int64_t p0,
		     int64_t p)
{
	return f->backward ? low_precision_tile_in_rows(t, f->w, q0 * f->p + p0, f->p, q, p)
			   : low_precision_tile_in_rows(t, f->w, p0 * f->q + q0, f->q, p, q);
}

/* Computes rows m0 … m0 + m and columns p0 … p0 + p of c. `a` holds the converted rows of a if they
 * fit, otherwise it is NULL. */
static void block(struct tile t, const struct product *f, const struct cut *s, const float *a,
		  int64_t m0, int64_t m, int64_t p0, int64_t p)
{
	const float *bias = f->bias ? low_precision_tile_in(&t, f->bias, p0, p) : NULL;
	float *sum = low_precision_tile_room(&t, m * p),
	      *part = s->q < f->q ? low_precision_tile_room(&t, m * p) : NULL;
	for (int64_t q0 = 0; q0 < f->q; q0 += s->q) {
		struct tile inner = t;
		int64_t q = min_int64(s->q, f->q - q0);
		const float *left = a ? a
				      : low_precision_tile_in_rows(&inner, f->a, m0 * f->q + q0,
								   f->q, m, q);
		const float *right = weight(&inner, f, q0, q, p0, p);
		float *to = q0 ? part : sum;
		if (f->backward)
			t.fp32->linear_bwd_input(t.k, to, left, right, m, p, q);
		else
			t.fp32->linear_fwd(t.k, to, left, right, q0 ? NULL : bias, m, q, p);
		if (q0)
			t.fp32->add(t.k, sum, part, m * p);
	}
	low_precision_tile_out_rows(&t, f->c, m0 * f->p + p0, f->p, m, p, sum);
}

static void product(struct backend *k, const struct product *f)
{
	struct tile whole = low_precision_tile_team(k);
	struct cut s = cut_of(f, whole.end - whole.at - SLACK);
	for (int64_t m0 = 0; m0 < f->m; m0 += s.m) {
		struct tile t = whole;
		int64_t m = min_int64(s.m, f->m - m0);
		const float *a = s.q == f->q ? low_precision_tile_in(&t, f->a, m0 * f->q, m * f->q)
					     : NULL;
		for (int64_t p0 = 0; p0 < f->p; p0 += s.p)
			block(t, f, &s, a, m0, m, p0, min_int64(s.p, f->p - p0));
	}
}

static void linear_fwd(struct backend *k, void *y, const void *x, const void *w, const void *bias,
		       int64_t n, int64_t in, int64_t out)
{
	product(k, &(struct product){ false, y, x, w, bias, n, in, out });
}

static void linear_bwd_input(struct backend *k, void *dx, const void *dy, const void *w, int64_t n,
			     int64_t in, int64_t out)
{
	if (dx)
		product(k, &(struct product){ true, dx, dy, w, NULL, n, out, in });
}

/* The rows of dw are consecutive, so a block of them is a weight gradient by itself. */
static void weight_gradient(struct backend *k, float *dw, float *dbias, const void *dy, int64_t row,
			    const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	if (n == 0 && !add) {
		memset(dw, 0, (size_t)(out * in) * sizeof *dw);
		if (dbias)
			memset(dbias, 0, (size_t)out * sizeof *dbias);
	}
	struct tile whole = low_precision_tile_team(k);
	int64_t columns = min_int64(out, COLUMNS);
	int64_t most = min_int64(n, (whole.end - whole.at - SLACK) / (in + columns));
	for (int64_t n0 = 0; n0 < n; n0 += most) {
		struct tile t = whole;
		int64_t rows = min_int64(most, n - n0);
		const float *xs = low_precision_tile_in(&t, x, n0 * in, rows * in);
		for (int64_t o0 = 0; o0 < out; o0 += columns) {
			struct tile inner = t;
			int64_t cols = min_int64(columns, out - o0);
			const float *dys = low_precision_tile_in_rows(&inner, dy, n0 * row + o0,
								      row, rows, cols);
			t.fp32->linear_bwd_weight(k, dw + o0 * in, dbias ? dbias + o0 : NULL, dys,
						  xs, rows, in, cols, add || n0);
		}
	}
}

static void linear_bwd_weight(struct backend *k, float *dw, float *dbias, const void *dy,
			      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	weight_gradient(k, dw, dbias, dy, out, x, n, in, out, add);
}

static void linear_bwd_weight_strided(struct backend *k, float *dw, const void *dy, int64_t row,
				      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	weight_gradient(k, dw, NULL, dy, row, x, n, in, out, add);
}

void low_precision_linear(struct ops *o)
{
	o->linear_fwd = linear_fwd;
	o->linear_bwd_input = linear_bwd_input;
	o->linear_bwd_weight = linear_bwd_weight;
	o->linear_bwd_weight_strided = linear_bwd_weight_strided;
}
