#include "agent/engine/model/linear_fp8.h"

_Static_assert(sizeof(struct fp8_scale) == ACT_FP8_SCALE_BYTES, "the planner counts scales");
_Static_assert((int)FP8_ROW == (int)ACT_FP8_ROW, "the planner counts transposed copies");

static struct fp8_scale *input_scale(const struct model *m, const struct linear_view *l,
				     const struct block_saved *k)
{
	return m->delays ? l->input_scale : (struct fp8_scale *)k->at[ACT_FP8_SCALES] + l->place;
}

static struct fp8_scale *gradient_scale(const struct model *m, const struct linear_view *l)
{
	return m->delays ? l->gradient_scale
			 : (struct fp8_scale *)m->scratch[SCRATCH_FP8_SCALES] + l->place;
}

static struct fp8_scale *weight_scale(const struct model *m)
{
	return (struct fp8_scale *)m->scratch[SCRATCH_FP8_SCALES] + ACT_LINEARS;
}

static enum fp8 gradient_format(const struct model *m)
{
	return m->job->precision.fp8 == FP8_HYBRID ? FP8_E5M2 : FP8_E4M3;
}

/* The transposed copy of a linear's input; NULL: the layer keeps none. */
static const enum act copies[] = { [ACT_LINEAR_QKV] = ACT_Y1_FP8,
				   [ACT_LINEAR_O] = ACTS,
				   [ACT_LINEAR_UP] = ACT_Y2_FP8,
				   [ACT_LINEAR_DOWN] = ACT_ACT_FP8 };

static uint8_t *copy_of(const struct linear_view *l, const struct block_saved *k)
{
	return copies[l->place] == ACTS ? NULL : k->at[copies[l->place]];
}

/* The copy, if this pass has to write it: a forward pass need not write what will be computed
 * again. */
static uint8_t *copy_to_write(const struct pass *p, const struct linear_view *l,
			      const struct block_saved *k)
{
	uint8_t *copy = copy_of(l, k);
	bool backward = p->input || p->weight;
	if (!copy || !p->keep || (!backward && copy == p->m->recomputed.at[copies[l->place]]))
		return NULL;
	return copy;
}

/* Returns whether one op computes all of this rank's input of a linear. */
static bool one_op_makes_input(const struct model *m, const struct linear_view *l)
{
	bool gathered = m->tp->sp && l->place != ACT_LINEAR_DOWN;
	return m->d.fp8 && l->place != ACT_LINEAR_O && !gathered;
}

const struct fp8_copies *model_linear_fp8_input_copies(const struct pass *p,
						       const struct linear_view *l,
						       const struct block_saved *k,
						       struct fp8_copies *to)
{
	const struct model *m = p->m;
	if (!one_op_makes_input(m, l))
		return NULL;
	*to = (struct fp8_copies){ .scale = input_scale(m, l, k), .format = FP8_E4M3 };
	if (m->delays) {
		to->at = m->scratch[SCRATCH_FP8_ROWS];
		to->transposed = copy_to_write(p, l, k);
		to->only = copy_of(l, k) != NULL;
	}
	return to;
}

const struct fp8_copies *model_linear_fp8_restored_copies(const struct pass *p,
							  const struct linear_view *l,
							  const struct block_saved *k, bool scaled,
							  struct fp8_copies *to)
{
	const struct model *m = p->m;
	if (!m->d.fp8 || !copy_of(l, k) || !p->weight)
		return NULL;
	*to = (struct fp8_copies){ .scale = input_scale(m, l, k), .format = FP8_E4M3 };
	if (m->delays || scaled) {
		to->transposed = copy_of(l, k);
		to->only = true;
	}
	return to;
}

/* A pass that computes the weights' gradient needs the sums of a bias's gradient. */
static void ask_for_sums(const struct pass *p, const struct linear_view *l, struct fp8_copies *to)
{
	if (!p->weight || l->b < 0)
		return;
	const struct weight_grad g = model_linear_bias_grad(p->m, l);
	to->sums = g.b;
	to->add = g.add;
}

static struct fp8_copies gradient_copies(const struct pass *p, const struct linear_view *l)
{
	const struct model *m = p->m;
	void *const *scratch = m->scratch;
	return (struct fp8_copies){ .at = p->input ? scratch[SCRATCH_FP8_ROWS] : NULL,
				    .transposed = p->weight ? scratch[SCRATCH_FP8_TRANSPOSED]
							    : NULL,
				    .scale = gradient_scale(m, l),
				    .format = gradient_format(m) };
}

/* The op that computes the gradient of l casts it, or only finds its largest number. */
static struct fp8_copies cast_ahead(const struct pass *p, const struct linear_view *l)
{
	struct fp8_copies to = gradient_copies(p, l);
	p->m->cast_ahead = l;
	if (!p->m->delays)
		to.at = to.transposed = NULL;
	return to;
}

/* The second half of a pass that is split reads the tensor itself. */
const struct fp8_copies *model_linear_fp8_gradient_copies(const struct pass *p,
							  const struct linear_view *l,
							  struct fp8_copies *to)
{
	if (!p->m->d.fp8 || !p->input)
		return NULL;
	*to = cast_ahead(p, l);
	if (p->m->delays) {
		to->only = p->weight;
		ask_for_sums(p, l, to);
	}
	return to;
}

/* The gradients of the layer below are not held yet, so the sums of a bias's gradient wait in
 * scratch. */
const struct fp8_copies *model_linear_fp8_row_copies(const struct pass *p,
						     const struct linear_view *l,
						     struct fp8_copies *to)
{
	const struct model *m = p->m;
	if (!m->d.fp8 || m->d.sp || m->d.dropout || !p->input || !p->weight)
		return NULL;
	*to = cast_ahead(p, l);
	if (m->delays && l->b >= 0)
		to->sums = m->scratch[SCRATCH_FP8_SUMS];
	return to;
}

/* The products that a layer recomputes need the scratch of the copies. With current scaling, the
 * scale of the upper layer's down becomes that of the lower one. */
const struct fp8_copies *model_linear_fp8_stream_copies(const struct pass *p, int i,
							struct fp8_copies *to)
{
	const struct model *m = p->m;
	const struct block_view *v = i ? &p->chunk->views.blocks[i - 1] : NULL;
	if (!v || m->moe || (m->delays && activations_mode(&m->d, v->layer) == RECOMPUTE_FULL) ||
	    !model_linear_fp8_row_copies(p, &v->down, to))
		return NULL;
	if (!m->delays)
		backend_zero(m->backend, to->scale, ACT_FP8_SCALE_BYTES);
	return to;
}

/* Only finds the largest value of x[rows, columns]. */
static void note_largest(struct model *m, struct fp8_scale *s, enum fp8 format, const void *x,
			 int64_t rows, int64_t columns)
{
	const struct fp8_copies none = { .scale = s, .format = format };
	m->ops->fp8_cast(m->backend, x, rows, columns, &none);
}

/* Casts x[rows, columns] to 8 bits with the scale of its largest value. known: the scale has the
 * largest value; otherwise it is zero. */
static void cast_current(struct model *m, const void *x, int64_t rows, int64_t columns,
			 const struct fp8_copies *to, bool known)
{
	if (!known)
		note_largest(m, to->scale, to->format, x, rows, columns);
	m->ops->fp8_cast_current(m->backend, x, rows, columns, to);
}

/* Casts with current or with delayed scaling, whichever the pass has. note: the scale of delayed
 * scaling; before it is known, it gets only the largest value. made: the op that computed x
 * has found the largest value (current scaling) or has written the copies (delayed scaling). */
static void cast(struct model *m, const void *x, int64_t rows, int64_t columns,
		 const struct fp8_copies *to, struct fp8_scale *note, bool made)
{
	if (m->delays) {
		if (!made)
			m->ops->fp8_cast(m->backend, x, rows, columns, to);
		return;
	}
	cast_current(m, x, rows, columns, to, made);
	if (m->notes)
		note_largest(m, note, to->format, x, rows, columns);
}

static void set_scales(struct model *m, int layer, struct linear_view *l, enum act_linear place)
{
	l->input_scale = model_scales_at(m->scales, FP8_INPUTS, layer, place);
	l->gradient_scale = model_scales_at(m->scales, FP8_GRADIENTS, layer, place);
}

int model_linear_fp8_open(struct model *m, struct comm *world, struct err *e)
{
	const struct model_scales_options o = { m->backend, world, (int)m->shape->layers,
						gradient_format(m) };
	if (!m->d.fp8_delayed_layers)
		return 0;
	if (model_scales_open(&o, &m->scales, e))
		return -1;
	for (int i = 0; i < m->n_chunks; i++)
		for (int j = 0; j < m->chunks[i].layers; j++) {
			struct block_view *v = &m->chunks[i].views.blocks[j];
			set_scales(m, v->layer, &v->qkv, ACT_LINEAR_QKV);
			set_scales(m, v->layer, &v->o, ACT_LINEAR_O);
			set_scales(m, v->layer, &v->up, ACT_LINEAR_UP);
			set_scales(m, v->layer, &v->down, ACT_LINEAR_DOWN);
		}
	return 0;
}

void model_linear_fp8_pass(struct model *m, bool trains)
{
	m->notes = m->scales && trains;
	m->delays = m->notes && model_scales_known(m->scales);
	m->cast_ahead = NULL;
}

void model_linear_fp8_enter(struct model *m, const struct block_saved *k)
{
	if (m->d.fp8)
		backend_zero(m->backend, k->at[ACT_FP8_SCALES], ACT_LINEARS * ACT_FP8_SCALE_BYTES);
}

/* That of down, the last one, may be known already. */
void model_linear_fp8_enter_backward(struct model *m)
{
	int64_t n = m->cast_ahead ? ACT_LINEAR_DOWN : ACT_LINEARS;
	if (m->d.fp8)
		backend_zero(m->backend, m->scratch[SCRATCH_FP8_SCALES],
			     (size_t)(n * ACT_FP8_SCALE_BYTES));
}

/* The weights, or with `transposed` their transpose. */
static struct fp8_tensor weights(struct model *m, const struct linear_view *l, bool transposed)
{
	const struct weight_copy *c = l->copy;
	uint8_t *at = m->scratch[SCRATCH_FP8_WEIGHT];
	int64_t row = transposed ? activations_fp8_row(l->out) : l->in;
	if (c)
		return (struct fp8_tensor){ transposed ? c->transposed : c->at, c->scale, FP8_E4M3,
					    false, row };
	const struct fp8_copies to = { .at = transposed ? NULL : at,
				       .transposed = transposed ? at : NULL,
				       .scale = weight_scale(m),
				       .format = FP8_E4M3 };
	backend_zero(m->backend, weight_scale(m), ACT_FP8_SCALE_BYTES);
	cast_current(m, model_unit_param(m, l->unit, l->w), l->out, l->in, &to, false);
	return (struct fp8_tensor){ at, weight_scale(m), FP8_E4M3, false, row };
}

void model_linear_fp8_forward(const struct pass *p, const struct linear_view *l,
			      const struct block_saved *k, void *y, const void *x, const void *bias)
{
	struct model *m = p->m;
	const struct fp8_tensor left = { m->scratch[SCRATCH_FP8_ROWS], input_scale(m, l, k),
					 FP8_E4M3, true, 0 },
				right = weights(m, l, false);
	const struct fp8_copies to = { .at = m->scratch[SCRATCH_FP8_ROWS],
				       .transposed = copy_to_write(p, l, k),
				       .scale = input_scale(m, l, k),
				       .format = FP8_E4M3 };
	cast(m, x, m->d.n, l->in, &to, l->input_scale, one_op_makes_input(m, l));
	m->ops->fp8_product(m->backend, y, &left, &right, bias, false, false, m->d.n, l->out,
			    l->in);
}

void model_linear_fp8_restore(const struct pass *p, const struct linear_view *l,
			      const struct block_saved *k, const void *x)
{
	struct model *m = p->m;
	const struct fp8_copies to = { .transposed = m->d.fp8 ? copy_of(l, k) : NULL,
				       .scale = input_scale(m, l, k),
				       .format = FP8_E4M3 };
	if (to.transposed && p->weight)
		cast(m, x, m->d.n, l->in, &to, l->input_scale, true);
}

bool model_linear_fp8_needs_input(const struct linear_view *l, const struct block_saved *k)
{
	return !copy_of(l, k);
}

/* Adds the sums that wait in scratch. */
static void take_sums(struct model *m, const struct linear_view *l)
{
	const struct weight_grad g = model_linear_bias_grad(m, l);
	const float *sums = m->scratch[SCRATCH_FP8_SUMS];
	if (g.add)
		m->ops->accumulate(m->backend, g.b, sums, l->out);
	else
		backend_copy(m->backend, g.b, sums, (size_t)l->out * sizeof *sums);
}

void model_linear_fp8_gradient(const struct pass *p, const struct linear_view *l, const void *dy)
{
	struct model *m = p->m;
	struct fp8_copies to = gradient_copies(p, l);
	const bool made = m->cast_ahead == l;
	m->cast_ahead = NULL;
	if (!made || !m->delays) {
		ask_for_sums(p, l, &to);
		cast(m, dy, m->d.n, l->out, &to, l->gradient_scale, made);
	} else if (l->b >= 0 && l->place != ACT_LINEAR_UP) {
		take_sums(m, l);
	}
}

void model_linear_fp8_input(struct model *m, const struct linear_view *l, void *dx)
{
	const struct fp8_tensor left = { m->scratch[SCRATCH_FP8_ROWS], gradient_scale(m, l),
					 gradient_format(m), false, 0 },
				right = weights(m, l, true);
	m->ops->fp8_product(m->backend, dx, &left, &right, NULL, false, false, m->d.n, l->in,
			    l->out);
}

/* Where no copy of x was kept, its transpose overwrites the gradient's untransposed copy, which is
 * no longer needed. */
void model_linear_fp8_weight(struct model *m, const struct linear_view *l,
			     const struct block_saved *k, const void *x)
{
	uint8_t *copy = copy_of(l, k), *at = copy ? copy : m->scratch[SCRATCH_FP8_ROWS];
	const struct weight_grad g = model_linear_weight_grad(m, l);
	const struct fp8_tensor left = { m->scratch[SCRATCH_FP8_TRANSPOSED], gradient_scale(m, l),
					 gradient_format(m), false, 0 },
				right = { at, input_scale(m, l, k), FP8_E4M3, false, 0 };
	const struct fp8_copies to = { .transposed = at,
				       .scale = input_scale(m, l, k),
				       .format = FP8_E4M3 };
	if (!copy)
		m->ops->fp8_cast(m->backend, x, m->d.n, l->in, &to);
	/* over the padding, too, which is zero */
	m->ops->fp8_product(m->backend, g.w, &left, &right, NULL, true, g.add, l->out, l->in,
			    activations_fp8_row(m->d.n));
}
