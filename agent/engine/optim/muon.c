/*
 * Muon (Jordan 2024): the nesterov momentum of a hidden matrix [n, m] is orthogonalized by five
 * iterations of Newton and Schulz. The scale and the decoupled weight decay are those of Liu et
 * al., arXiv 2502.16982, so that the learning rate and the decay of AdamW fit both:
 *
 *     M = 0.95 M + G                                       state `m`
 *     X = U / |U|,  U = G + 0.95 M,  |U| = sqrt(sum U²) + 1e-7
 *     five times:  A = X Xᵀ;  B = -4.7750 A + 2.0315 A A;  X = 3.4445 X + B X
 *     W = W - lr (0.2 sqrt(max(n, m)) X + weight_decay W)
 *
 * If n > m, the iterations take Xᵀ. Products are in fp32 (the published code uses bf16).
 * Embeddings, the head, norms and biases are AdamW's: states `m` and `v`, with the job's betas.
 *
 * One rank has the whole of a matrix while it is orthogonalized (matrices.h). Its result depends on
 * the matrix alone, so the layout changes nothing but the gradient's own rounding.
 */
#include "agent/engine/optim/matrices.h"
#include "agent/engine/optim/rules.h"
#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>

#define MOMENTUM 0.95
#define SCALE    0.2
#define NORM_EPS 1e-7

enum { ITERATIONS = 5 };

static const float newton_a = 3.4445f, newton_b = -4.7750f, newton_c = 2.0315f;

struct muon {
	struct optim_matrices *matrices;
	/* fp32 products: the optimizer's backend, or a separate one if that stores 2 bytes */
	struct backend *backend;
	bool own_backend;
};

static int open_muon(struct optim *o, struct err *e)
{
	struct muon *m = calloc(1, sizeof *m);
	if (!(o->own = m))
		return err_set(e, ERR_NOMEM, "muon: no memory; close other programs");
	m->backend = o->backend;
	if (backend_width(o->backend) < sizeof(float)) {
		m->backend = NULL;
		if (backend_open("cpu", backend_threads(o->backend), &m->backend, e))
			return -1;
		m->own_backend = true;
	}
	return optim_matrices_open(o, &m->matrices, e);
}

static void close_muon(struct optim *o)
{
	struct muon *m = o->own;
	if (!m)
		return;
	optim_matrices_close(o, m->matrices);
	if (m->own_backend)
		backend_close(m->backend);
	free(m);
}

/* --- Orthogonalization ---------------------------------------------------------------------- */

static void normalize(float *x, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	double scale = 1 / (sqrt(sum) + NORM_EPS);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(x[i] * scale);
}

/* a = X Xᵀ, or Xᵀ X if X is tall. */
static void multiply_self(struct backend *k, float *a, const float *x, int64_t rows,
			  int64_t columns)
{
	const struct ops *ops = backend_ops(k);
	if (rows <= columns) {
		ops->linear_fwd(k, a, x, x, NULL, rows, columns, rows);
		return;
	}
	ops->linear_bwd_weight(k, a, NULL, x, x, rows, columns, columns, false);
}

/* y = B X, or X B if X is tall; B is symmetric. */
static void multiply_side(struct backend *k, float *y, const float *b, const float *x, int64_t rows,
			  int64_t columns)
{
	const struct ops *ops = backend_ops(k);
	if (rows <= columns)
		ops->linear_bwd_input(k, y, b, x, rows, columns, rows);
	else
		ops->linear_fwd(k, y, x, b, NULL, rows, columns, columns);
}

static void orthogonalize(struct backend *k, float *x, float *y, float *a, float *b, int64_t rows,
			  int64_t columns)
{
	int64_t side = min_int64(rows, columns);
	normalize(x, rows * columns);
	for (int i = 0; i < ITERATIONS; i++) {
		multiply_self(k, a, x, rows, columns);
		backend_ops(k)->linear_fwd(k, b, a, a, NULL, side, side, side);
		for (int64_t j = 0; j < side * side; j++)
			b[j] = newton_b * a[j] + newton_c * b[j];
		multiply_side(k, y, b, x, rows, columns);
		for (int64_t j = 0; j < rows * columns; j++)
			x[j] = newton_a * x[j] + y[j];
	}
}

/* --- A step --------------------------------------------------------------------------------- */

struct muon_step {
	struct optim *o;
	const struct optim_step *s;
};

static void take_momentum(void *arg, const struct param_piece *piece, float *out)
{
	const struct muon_step *a = arg;
	float *m = optim_state(a->o, 0, piece);
	const float scale = (float)a->s->scale, mu = (float)MOMENTUM;
	for (int64_t i = 0; i < piece->count; i++) {
		float g = piece->grad[i] * scale;
		m[i] = mu * m[i] + g;
		out[i] = g + mu * m[i];
	}
}

static void replace_matrix(void *arg, const struct param *p, float *x, float *y, float *a, float *b)
{
	const struct muon_step *step = arg;
	const struct muon *m = step->o->own;
	orthogonalize(m->backend, x, y, a, b, p->shape[0], p->shape[1]);
}

static void apply_matrix(void *arg, const struct param_piece *piece, const float *in)
{
	const struct muon_step *a = arg;
	const struct param *p = piece->param;
	double side = (double)(p->shape[0] > p->shape[1] ? p->shape[0] : p->shape[1]);
	const float rate = (float)(a->s->lr * SCALE * sqrt(side));
	const float keep = (float)(1 - a->s->lr * optim_weight_decay(a->o, p->decay));
	for (int64_t i = 0; i < piece->count; i++)
		piece->master[i] = keep * piece->master[i] - rate * in[i];
}

static void update_others(struct optim *o, const struct optim_step *s)
{
	int n, others = 0;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		if (!optimizer_hidden(p->param))
			o->updates[others++] = (struct update){
				.p = p->master,
				.g = p->grad,
				.m = optim_state(o, 0, p),
				.v = optim_state(o, 1, p),
				.count = p->count,
				.weight_decay = (float)optim_weight_decay(o, p->param->decay),
			};
	}
	optim_adamw(o, o->updates, others, s);
}

static int step_muon(struct optim *o, const struct optim_step *s, struct err *e)
{
	const struct muon *m = o->own;
	struct muon_step step = { o, s };
	const struct optim_matrix_work work = { .take = take_momentum,
						.replace = replace_matrix,
						.apply = apply_matrix,
						.arg = &step };
	update_others(o, s);
	return optim_matrices_run(m->matrices, &work, e);
}

const struct optim_rule optim_rule_muon = { .open = open_muon,
					    .step = step_muon,
					    .close = close_muon };
