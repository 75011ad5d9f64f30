#include "agent/engine/model/linear_fp8.h"

/* The tensors in scratch, each with its own scale. */
enum operand { OPERAND_X, OPERAND_WEIGHT, OPERAND_GRADIENT };
_Static_assert(sizeof(struct fp8_scale) == ACT_FP8_SCALE_BYTES, "the planner counts scales");

static struct fp8_scale *scale_of(const struct model *m, enum operand o)
{
	return (struct fp8_scale *)m->scratch[SCRATCH_FP8_SCALES] + o;
}

static enum fp8 format_of(const struct model *m, enum operand o)
{
	return o == OPERAND_GRADIENT && m->job->precision.fp8 == FP8_HYBRID ? FP8_E5M2 : FP8_E4M3;
}

/* Casts x[rows, columns] to 8 bits: into `at`, and its transpose into `transposed`. Either may be
 * NULL. The scale is that of the largest value of x. */
static void cast(struct model *m, uint8_t *at, uint8_t *transposed, enum operand o, const void *x,
		 int64_t rows, int64_t columns)
{
	struct fp8_scale *s = scale_of(m, o);
	enum fp8 format = format_of(m, o);
	backend_zero(m->backend, s, sizeof *s);
	m->ops->fp8_cast(m->backend, NULL, NULL, s, x, format, rows, columns);
	m->ops->fp8_update_scales(m->backend, s, 1, format, 1, 0);
	m->ops->fp8_cast(m->backend, at, transposed, s, x, format, rows, columns);
}

static struct fp8_tensor tensor(const struct model *m, enum act_scratch at, enum operand o)
{
	return (struct fp8_tensor){ m->scratch[at], scale_of(m, o), format_of(m, o) };
}

void model_linear_fp8_forward(struct model *m, const struct linear_view *l, void *y, const void *x,
			      const void *bias)
{
	const struct fp8_tensor left = tensor(m, SCRATCH_FP8_ROWS, OPERAND_X),
				right = tensor(m, SCRATCH_FP8_WEIGHT, OPERAND_WEIGHT);
	cast(m, m->scratch[SCRATCH_FP8_ROWS], NULL, OPERAND_X, x, m->d.n, l->in);
	cast(m, m->scratch[SCRATCH_FP8_WEIGHT], NULL, OPERAND_WEIGHT,
	     model_unit_param(m, l->unit, l->w), l->out, l->in);
	m->ops->fp8_product(m->backend, y, &left, &right, bias, false, false, m->d.n, l->out,
			    l->in);
}

void model_linear_fp8_gradient(struct model *m, const struct linear_view *l, const void *dy,
			       bool input, bool weight)
{
	if (input || weight)
		cast(m, input ? m->scratch[SCRATCH_FP8_ROWS] : NULL,
		     weight ? m->scratch[SCRATCH_FP8_TRANSPOSED] : NULL, OPERAND_GRADIENT, dy,
		     m->d.n, l->out);
}

void model_linear_fp8_input(struct model *m, const struct linear_view *l, void *dx)
{
	const struct fp8_tensor left = tensor(m, SCRATCH_FP8_ROWS, OPERAND_GRADIENT),
				right = tensor(m, SCRATCH_FP8_WEIGHT, OPERAND_WEIGHT);
	cast(m, NULL, m->scratch[SCRATCH_FP8_WEIGHT], OPERAND_WEIGHT,
	     model_unit_param(m, l->unit, l->w), l->out, l->in);
	m->ops->fp8_product(m->backend, dx, &left, &right, NULL, false, false, m->d.n, l->in,
			    l->out);
}

/* The gradient's untransposed copy is no longer needed: the transposed x overwrites it. */
void model_linear_fp8_weight(struct model *m, const struct linear_view *l, const void *dy,
			     const void *x)
{
	const struct fp8_tensor left = tensor(m, SCRATCH_FP8_TRANSPOSED, OPERAND_GRADIENT),
				right = tensor(m, SCRATCH_FP8_ROWS, OPERAND_X);
	cast(m, NULL, m->scratch[SCRATCH_FP8_ROWS], OPERAND_X, x, m->d.n, l->in);
	const struct weight_grad g = model_linear_grad(m, l);
	m->ops->fp8_product(m->backend, g.w, &left, &right, NULL, true, g.add, l->out, l->in,
			    m->d.n);
	if (g.b)
		m->ops->sum_rows(m->backend, g.b, dy, m->d.n, l->out, g.add);
}
