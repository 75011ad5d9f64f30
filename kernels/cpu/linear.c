/* Matrix products, split into one piece per thread, and their sums. */
#include "base/numbers.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/linear.h"

#include <string.h>

/* The grid of pieces over a product's m × n whose pieces have the shortest edges. */
struct grid {
	int rows, cols;
};

static struct grid grid_cut(int threads, int64_t m, int64_t n, int64_t k)
{
	struct grid best = { 1, 1 };
	if (m * n * k < (int64_t)1 << 20)
		return best; /* too little work to start a team for */
	double least = 0;
	for (int rows = 1; rows <= threads; rows++) {
		if (threads % rows)
			continue;
		int cols = threads / rows;
		double edge = (double)m / rows + (double)n / cols;
		if (rows == 1 || edge < least) {
			best = (struct grid){ rows, cols };
			least = edge;
		}
	}
	return best;
}

/* Piece i of `pieces` of n: lo and hi are multiples of 16 where possible. */
static void piece(int64_t n, int pieces, int i, int64_t *lo, int64_t *hi)
{
	int64_t units = (n + 15) / 16;
	*lo = min_int64(units * i / pieces * 16, n);
	*hi = min_int64(units * (i + 1) / pieces * 16, n);
}

/* c = op(a)[m,k] · op(b)[k,n] */
struct product {
	bool ta, tb;
	int64_t m, n, k;
	const float *a, *b;
	int64_t lda, ldb;
	float *c;          /* [m, n], dense */
	bool add;          /* adds to c; otherwise sets it */
	const float *bias; /* [n] or NULL */
};

static void bias_rows(float *c, int64_t ldc, const float *bias, int64_t m, int64_t n)
{
	for (int64_t i = 0; i < m; i++)
		memcpy(c + i * ldc, bias, (size_t)n * sizeof *c);
}

/* The BLAS reads c anyway, so writing the bias to it first costs no extra pass. */
static void product_piece(const struct product *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
	if (m0 == m1 || n0 == n1)
		return;
	float *c = p->c + m0 * p->n + n0;
	if (p->bias)
		bias_rows(c, p->n, p->bias + n0, m1 - m0, n1 - n0);
	blas_gemm(p->ta, p->tb, m1 - m0, n1 - n0, p->k, 1, p->a + (p->ta ? m0 : m0 * p->lda),
		  p->lda, p->b + (p->tb ? n0 * p->ldb : n0), p->ldb, p->add || p->bias ? 1 : 0, c,
		  p->n);
}

static void product(struct backend *k, const struct product *p)
{
	struct grid g = grid_cut(k->threads, p->m, p->n, p->k);
	if (g.rows * g.cols == 1) {
		product_piece(p, 0, p->m, 0, p->n);
		return;
	}
	#pragma omp parallel for schedule(static) num_threads(g.rows * g.cols)
	for (int i = 0; i < g.rows * g.cols; i++) {
		int64_t m0, m1, n0, n1;
		piece(p->m, g.rows, i / g.cols, &m0, &m1);
		piece(p->n, g.cols, i % g.cols, &n0, &n1);
		product_piece(p, m0, m1, n0, n1);
	}
}

static void linear_fwd(struct backend *k, void *y, const void *x, const void *w, const void *bias,
		       int64_t n, int64_t in, int64_t out)
{
	if (n == 1) {
		CPU(linear_one)(k, y, x, w, bias, in, out);
		return;
	}
	product(k, &(struct product){ .tb = true,
				      .m = n,
				      .n = out,
				      .k = in,
				      .a = x,
				      .lda = in,
				      .b = w,
				      .ldb = in,
				      .c = y,
				      .bias = bias });
}

static void linear_bwd_input(struct backend *k, void *dx, const void *dy, const void *w, int64_t n,
			     int64_t in, int64_t out)
{
	if (dx)
		product(k, &(struct product){ .m = n,
					      .n = in,
					      .k = out,
					      .a = dy,
					      .lda = out,
					      .b = w,
					      .ldb = in,
					      .c = dx });
}

/* Sets out to the sums over rows of columns j … j + w of x, or adds them. */
static void sum_strip(float *restrict out, const float *restrict x, int64_t n, int64_t c, int64_t j,
		      int64_t w, bool add)
{
	double total[CPU_STRIP] = { 0 };
	for (int64_t i0 = 0; i0 < n; i0 += CPU_RUN) {
		float part[CPU_STRIP] = { 0 };
		for (int64_t i = i0; i < min_int64(n, i0 + CPU_RUN); i++)
			for (int64_t l = 0; l < w; l++)
				part[l] += x[i * c + j + l];
		for (int64_t l = 0; l < w; l++)
			total[l] += (double)part[l];
	}
	for (int64_t l = 0; l < w; l++)
		out[j + l] = (float)((add ? (double)out[j + l] : 0) + total[l]);
}

static void sum_rows(struct backend *k, float *out, const void *x, int64_t n, int64_t c, bool add)
{
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t j = 0; j < c; j += CPU_STRIP)
		sum_strip(out, x, n, c, j, min_int64(CPU_STRIP, c - j), add);
}

static void linear_bwd_weight_strided(struct backend *k, float *dw, const void *dy, int64_t row,
				      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	product(k, &(struct product){ .ta = true,
				      .m = out,
				      .n = in,
				      .k = n,
				      .a = dy,
				      .lda = row,
				      .b = x,
				      .ldb = in,
				      .c = dw,
				      .add = add });
}

static void linear_bwd_weight(struct backend *k, float *dw, float *dbias, const void *dy,
			      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	linear_bwd_weight_strided(k, dw, dy, out, x, n, in, out, add);
	if (dbias)
		sum_rows(k, dbias, dy, n, out, add);
}

static void add_elements(struct backend *k, void *yv, const void *xv, int64_t count)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, count))
	for (int64_t i = 0; i < count; i++)
		y[i] += x[i];
}

static void add_bias(struct backend *k, void *xv, const void *biasv, int64_t n, int64_t c)
{
	float *x = xv;
	const float *bias = biasv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		float *row = x + i * c;
		#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			row[j] += bias[j];
	}
}

void CPU(linear)(struct ops *o)
{
	o->linear_fwd = linear_fwd;
	o->linear_bwd_input = linear_bwd_input;
	o->linear_bwd_weight = linear_bwd_weight;
	o->linear_bwd_weight_strided = linear_bwd_weight_strided;
	o->add = add_elements;
	o->add_bias = add_bias;
	o->sum_rows = sum_rows;
}
