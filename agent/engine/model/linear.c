/* Products between the stream's rows and all rows, with transfers overlapped: a rank multiplies
 * its own rows while it gathers the others, and reduces a gradient while it computes the weights'
 * gradient. */
#include "agent/engine/model/check.h"
#include "agent/engine/model/linear_fp8.h"
#include "agent/engine/model/stage.h"

/* Rows [lo, hi) of all n. */
struct row_range {
	int64_t lo, hi;
};

static struct row_range all_range(const struct model *m)
{
	return (struct row_range){ 0, m->d.n };
}

/* The stream's rows of this rank, among all n rows. */
static struct row_range own_range(const struct model *m)
{
	int64_t lo = m->tp->rank * m->d.s;
	return m->tp->sp ? (struct row_range){ lo, lo + m->d.s } : all_range(m);
}

/* Returns the rows that are multiplied before the gather ends. There are none in 8 bits, because a
 * scale needs the whole tensor. */
static struct row_range early_range(const struct model *m)
{
	return m->d.fp8 ? (struct row_range){ 0, 0 } : own_range(m);
}

static void *row_at(const struct model *m, void *x, int64_t i, int64_t width)
{
	return (char *)x + i * width * m->d.width;
}

static const void *const_row_at(const struct model *m, const void *x, int64_t i, int64_t width)
{
	return (const char *)x + i * width * m->d.width;
}

/* Multiplies rows s by a linear's weights. x, y, dx and dy point to row 0. */
static void multiply_rows(const struct pass *p, const struct linear_view *l,
			  const struct block_saved *k, void *y, const void *x, struct row_range s,
			  bool bias)
{
	struct model *m = p->m;
	if (s.hi > s.lo && m->d.fp8)
		model_linear_fp8_forward(p, l, k, y, x,
					 bias ? model_unit_param(m, l->unit, l->b) : NULL);
	else if (s.hi > s.lo)
		m->ops->linear_fwd(m->backend, row_at(m, y, s.lo, l->out),
				   const_row_at(m, x, s.lo, l->in),
				   model_unit_param(m, l->unit, l->w),
				   bias ? model_unit_param(m, l->unit, l->b) : NULL, s.hi - s.lo,
				   l->in, l->out);
}

/* Casts the gradient for the next two functions, if they multiply in 8 bits. */
static void cast_gradient(const struct pass *p, const struct linear_view *l, const void *dy)
{
	if (p->m->d.fp8)
		model_linear_fp8_gradient(p, l, dy);
}

static void input_grad(struct model *m, const struct linear_view *l, void *dx, const void *dy,
		       struct row_range s)
{
	if (s.hi > s.lo && m->d.fp8)
		model_linear_fp8_input(m, l, dx);
	else if (s.hi > s.lo)
		m->ops->linear_bwd_input(m->backend, row_at(m, dx, s.lo, l->in),
					 const_row_at(m, dy, s.lo, l->out),
					 model_unit_param(m, l->unit, l->w), s.hi - s.lo, l->in,
					 l->out);
}

static void weight_grad(struct model *m, const struct linear_view *l, const struct block_saved *k,
			const void *dy, const void *x)
{
	if (m->d.fp8) {
		model_linear_fp8_weight(m, l, k, x);
		return;
	}
	const struct weight_grad g = model_linear_grad(m, l);
	m->ops->linear_bwd_weight(m->backend, g.w, g.b, dy, x, m->d.n, l->in, l->out, g.add);
}

int model_all_rows(struct model *m, const void *x, const void **full, struct err *e)
{
	*full = x;
	if (!m->tp->sp)
		return 0;
	*full = m->scratch[SCRATCH_FULL];
	return tp_gather(m->tp, x, m->scratch[SCRATCH_FULL], (size_t)(m->d.s * m->d.c), e);
}

/* Starts model_all_rows(). This rank's own rows are in place at once. */
static int all_rows_start(struct model *m, const void *x, const void **full,
			  struct comm_request **req, struct err *e)
{
	*full = x;
	*req = NULL;
	if (!m->tp->sp)
		return 0;
	*full = m->scratch[SCRATCH_FULL];
	return tp_gather_start(m->tp, x, m->scratch[SCRATCH_FULL], (size_t)(m->d.s * m->d.c), req,
			       e);
}

/* Returns the address of row 0 of a tensor whose own rows are at x. */
static const void *as_all_rows(const struct model *m, const void *x)
{
	return m->tp->sp ? const_row_at(m, x, -own_range(m).lo, m->d.c) : x;
}

void *model_before_reduce(struct model *m, void *y)
{
	return m->tp->sp ? m->scratch[SCRATCH_SENT] : y;
}

int model_to_stream(struct model *m, void *y, struct err *e)
{
	return tp_reduce(m->tp, model_before_reduce(m, y), y, (size_t)(m->d.s * m->d.c), e);
}

static int to_stream_start(struct model *m, void *y, struct comm_request **req, struct err *e)
{
	return tp_reduce_start(m->tp, model_before_reduce(m, y), y, (size_t)(m->d.s * m->d.c), req,
			       e);
}

int model_column_forward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
			 void *y, const void *x, struct err *e)
{
	struct model *m = p->m;
	struct comm_request *req;
	struct row_range own = early_range(m);
	const void *full;
	if (all_rows_start(m, x, &full, &req, e))
		return -1;
	multiply_rows(p, l, k, y, as_all_rows(m, x), own, true);
	if (tp_wait(m->tp, &req, e))
		return -1;
	multiply_rows(p, l, k, y, full, (struct row_range){ 0, own.lo }, true);
	multiply_rows(p, l, k, y, full, (struct row_range){ own.hi, m->d.n }, true);
	model_check_tensor(m, "product", y, m->d.n * l->out);
	return 0;
}

/* Whether the weights' gradient reads x itself. */
static bool reads_input(const struct pass *p, const struct linear_view *l,
			const struct block_saved *k)
{
	return p->weight && (!p->m->d.fp8 || model_linear_fp8_needs_input(l, k));
}

int model_column_backward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
			  void *dx, const void *dy, const void *x, struct err *e)
{
	struct model *m = p->m;
	struct comm_request *gather = NULL, *reduce = NULL;
	const void *full = NULL;
	if (reads_input(p, l, k) && all_rows_start(m, x, &full, &gather, e))
		return -1;
	cast_gradient(p, l, dy);
	if (p->input) {
		input_grad(m, l, model_before_reduce(m, dx), dy, all_range(m));
		model_check_tensor(m, "gradient of a product's input", model_before_reduce(m, dx),
				   m->d.n * l->in);
	}
	int rc = tp_wait(m->tp, &gather, e);
	if (!rc && p->input)
		rc = to_stream_start(m, dx, &reduce, e);
	if (!rc && p->weight)
		weight_grad(m, l, k, dy, full);
	return tp_wait(m->tp, &reduce, rc ? NULL : e) || rc ? -1 : 0;
}

int model_row_forward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
		      void *y, const void *x, struct err *e)
{
	struct model *m = p->m;
	bool alone = m->tp->size == 1; /* without other ranks, the product adds the bias */
	multiply_rows(p, l, k, model_before_reduce(m, y), x, all_range(m), alone);
	model_check_tensor(m, "product", model_before_reduce(m, y), m->d.n * l->out);
	if (model_to_stream(m, y, e))
		return -1;
	if (l->b >= 0 && !alone)
		m->ops->add_bias(m->backend, y, model_unit_param(m, l->unit, l->b), m->d.s, m->d.c);
	return 0;
}

int model_row_backward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
		       void *dx, const void *dy, const void *x, struct err *e)
{
	struct model *m = p->m;
	struct comm_request *req;
	struct row_range own = early_range(m);
	const void *full;
	if (all_rows_start(m, dy, &full, &req, e))
		return -1;
	if (p->input)
		input_grad(m, l, dx, as_all_rows(m, dy), own);
	if (tp_wait(m->tp, &req, e))
		return -1;
	cast_gradient(p, l, full);
	if (p->input) {
		input_grad(m, l, dx, full, (struct row_range){ 0, own.lo });
		input_grad(m, l, dx, full, (struct row_range){ own.hi, m->d.n });
	}
	if (p->weight)
		weight_grad(m, l, k, full, x);
	return 0;
}

bool model_gelu_fuses(const struct model *m)
{
	return !m->shape->gated && !m->tp->sp && !m->d.fp8;
}

void model_column_gelu_forward(struct model *m, const struct linear_view *l, void *y, void *pre,
			       const void *x)
{
	m->ops->linear_gelu_fwd(m->backend, y, pre, x, model_unit_param(m, l->unit, l->w),
				model_unit_param(m, l->unit, l->b), m->d.n, l->in, l->out);
}

void model_row_gelu_backward(struct pass *p, const struct linear_view *l, void *dpre,
			     const void *dy, const void *x, const void *pre)
{
	struct model *m = p->m;
	if (p->input)
		m->ops->linear_gelu_bwd(m->backend, dpre, dy, model_unit_param(m, l->unit, l->w),
					pre, m->d.n, l->in, l->out);
	if (p->weight)
		weight_grad(m, l, NULL, dy, x); /* not in 8 bits: model_gelu_fuses() */
}
