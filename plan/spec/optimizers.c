#include "plan/spec/optimizers.h"

#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"
#include "plan/spec/model/zero.h"

#include <string.h>

enum { ADAM = OPTIMIZER_BETA1 | OPTIMIZER_BETA2 | OPTIMIZER_EPS };

/* clang-format off */
static const struct optimizer table[] = {
	[OPTIMIZER_ADAMW] = {
		"adamw", { { "m", OPTIMIZER_ELEMENT }, { "v", OPTIMIZER_ELEMENT } },
		.keys = ADAM, .words = 7, .elementwise = true,
	},
	[OPTIMIZER_SGD] = {
		"sgd", { { "m", OPTIMIZER_ELEMENT } },
		.keys = OPTIMIZER_MOMENTUM, .words = 5, .elementwise = true,
	},
	[OPTIMIZER_ADAFACTOR] = { /* the gradient three times, the parameter there and back */
		"adafactor", { { "row", OPTIMIZER_ROW }, { "column", OPTIMIZER_COLUMN } },
		.words = 5, .work = OPTIMIZER_WORK_SUMS,
	},
	[OPTIMIZER_MUON] = { /* momentum and update there and back, the gradient; the parameter */
		"muon", { { "m", OPTIMIZER_ELEMENT }, { "v", OPTIMIZER_OTHER } },
		.keys = ADAM, .words = 7, .iterations = 5, .work = OPTIMIZER_WORK_MATRIX,
	},
};
/* clang-format on */

#define OPTIMIZER_WORD(NAME, name) #name,
const char *const optimizer_words[] = { OPTIMIZERS(OPTIMIZER_WORD) NULL };
#undef OPTIMIZER_WORD

const struct optimizer *optimizer_of(enum job_optimizer kind)
{
	return &table[kind];
}

bool optimizer_find(const char *name, enum job_optimizer *out)
{
	for (int i = 0; i < OPTIMIZER_KINDS; i++)
		if (!strcmp(table[i].name, name)) {
			*out = (enum job_optimizer)i;
			return true;
		}
	return false;
}

bool optimizer_hidden(const struct param *p)
{
	return p->dims == 2 && p->role != PARAM_EMBED && p->role != PARAM_POSITIONS &&
	       p->role != PARAM_HEAD;
}

bool optimizer_state_shape(enum job_optimizer kind, int i, const struct param *p, int64_t shape[2],
			   int *dims)
{
	shape[1] = 1;
	*dims = 1;
	switch (table[kind].states[i].size) {
	case OPTIMIZER_NONE:
		return false;
	case OPTIMIZER_OTHER:
		if (optimizer_hidden(p))
			return false;
		/* fallthrough */
	case OPTIMIZER_ELEMENT:
		shape[0] = p->shape[0];
		shape[1] = p->shape[1];
		*dims = p->dims;
		return true;
	case OPTIMIZER_ROW:
		shape[0] = p->shape[0];
		return true;
	case OPTIMIZER_COLUMN:
		shape[0] = p->shape[1];
		return p->dims == 2;
	}
	return false;
}

int optimizer_full_states(enum job_optimizer kind)
{
	int n = 0;
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++)
		n += table[kind].states[i].size == OPTIMIZER_ELEMENT;
	return n;
}

/* --- Memory ------------------------------------------------------------------------------- */

/* Elements of the unit's hidden matrices in [lo, hi) of it; counted: only those of copy 0. */
static int64_t hidden_elements(const struct catalogue_sample *u, int64_t lo, int64_t hi,
			       bool counted)
{
	int64_t n = 0;
	for (int64_t x = 0; x < u->times; x++)
		for (int i = 0; i < u->n; i++) {
			const struct param *p = &u->params[i];
			int64_t at = x * u->elements + p->offset;
			if (optimizer_hidden(p) && (!counted || p->copy == 0))
				n += catalogue_overlap(lo, hi, at, at + p->count);
		}
	return n;
}

static int64_t all_hidden_elements(const struct catalogue_sample *u)
{
	return hidden_elements(u, 0, u->times * u->elements, false);
}

/* Elements of the unit's states of one size that follow rows or columns. */
static int64_t factor_elements(const struct catalogue_sample *u, enum optimizer_size size)
{
	int64_t n = 0;
	for (int i = 0; i < u->n; i++) {
		const struct param *p = &u->params[i];
		n += size == OPTIMIZER_ROW ? p->shape[0] : p->dims == 2 ? p->shape[1] : 0;
	}
	return n * u->times;
}

static double state_elements(enum job_optimizer kind, const struct catalogue_sample *u, int64_t lo,
			     int64_t hi)
{
	double n = 0;
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++)
		switch (table[kind].states[i].size) {
		case OPTIMIZER_NONE:
			break;
		case OPTIMIZER_ELEMENT:
			n += (double)(hi - lo);
			break;
		case OPTIMIZER_OTHER:
			n += (double)(hi - lo - hidden_elements(u, lo, hi, false));
			break;
		case OPTIMIZER_ROW:
		case OPTIMIZER_COLUMN:
			n += (double)factor_elements(u, table[kind].states[i].size);
			break;
		}
	return n;
}

/* One double for each row, column and parameter. */
static double sums_bytes(const struct catalogue_sample *u)
{
	return (double)sizeof(double) *
	       (double)(factor_elements(u, OPTIMIZER_ROW) + factor_elements(u, OPTIMIZER_COLUMN) +
			u->n * u->times);
}

void optimizer_matrix_add(struct optimizer_matrix *m, const struct param *p)
{
	int64_t whole = p->shape[0] * p->shape[1];
	int64_t side = p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1];
	if (!optimizer_hidden(p))
		return;
	m->box = p->count > m->box ? p->count : m->box;
	m->whole = whole > m->whole ? whole : m->whole;
	if (p->count < whole && whole * p->copies > m->boxes)
		m->boxes = whole * p->copies;
	m->side = side > m->side ? side : m->side;
}

/* Two boxes, the boxes of all tp ranks, two matrices and two products. */
double optimizer_matrix_bytes(const struct optimizer_matrix *m)
{
	return (double)sizeof(float) *
	       (2 * (double)m->box + (double)m->boxes + 2 * (double)m->whole +
		2 * (double)m->side * (double)m->side);
}

void optimizer_memory_of(enum job_optimizer kind, const struct model_shape *m,
			 const struct share *s, const int *counts, int stage,
			 const struct zero_cut *cuts, struct optimizer_memory *out)
{
	struct optimizer_memory sum = { 0 };
	struct optimizer_matrix largest = { 0 };
	for (int unit = 0; unit < UNIT_KINDS; unit++) {
		const struct zero_cut *cut = &cuts[zero_class((enum unit_kind)unit)];
		struct catalogue_sample u;
		int64_t n = catalogue_unit_elements(m, s, (enum unit_kind)unit), lo, hi;
		if (!counts[unit])
			continue;
		catalogue_sample(m, s, (enum unit_kind)unit, &u);
		zero_owned(n, stage, cut, &lo, &hi);
		sum.state += counts[unit] * (double)sizeof(float) *
			     state_elements(kind, &u, lo, lo + zero_block(n, stage, cut));
		if (table[kind].work == OPTIMIZER_WORK_SUMS)
			sum.work += counts[unit] * sums_bytes(&u);
		for (int i = 0; i < u.n; i++)
			optimizer_matrix_add(&largest, &u.params[i]);
	}
	if (table[kind].work == OPTIMIZER_WORK_MATRIX)
		sum.work = optimizer_matrix_bytes(&largest);
	*out = sum;
}

void optimizer_elements_of(enum job_optimizer kind, const struct model_shape *m,
			   struct optimizer_elements *out)
{
	const struct stage whole = { 0, m->layers, true, true };
	const struct share share = { .tp = 1, .ep = 1, .chunks = &whole, .n_chunks = 1 };
	memset(out, 0, ZERO_CLASSES * sizeof *out);
	for (int unit = 0; unit < UNIT_KINDS; unit++) {
		struct optimizer_elements *sum = &out[zero_class((enum unit_kind)unit)];
		struct catalogue_sample u;
		int count = catalogue_unit_count(m, &share, (enum unit_kind)unit);
		int64_t params = 0;
		if (!count)
			continue;
		catalogue_sample(m, &share, (enum unit_kind)unit, &u);
		for (int i = 0; i < u.n; i++)
			params += u.times * u.params[i].count;
		sum->params += count * (double)params;
		for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
			enum optimizer_size size = table[kind].states[i].size;
			if (size == OPTIMIZER_ELEMENT)
				sum->split += count * (double)params;
			else if (size == OPTIMIZER_OTHER)
				sum->split += count * (double)(params - all_hidden_elements(&u));
			else if (size != OPTIMIZER_NONE)
				sum->whole += count * (double)factor_elements(&u, size);
		}
	}
}

int64_t optimizer_hidden_elements(const struct model_shape *m, const struct share *s, int unit)
{
	struct catalogue_sample u;
	catalogue_sample(m, s, (enum unit_kind)unit, &u);
	return all_hidden_elements(&u);
}

double optimizer_saved(enum job_optimizer kind, const struct model_shape *m, const struct share *s,
		       int stage, const struct zero_cut *cuts)
{
	double sum = 0, all = zero_saved(m, s, stage, cuts);
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
		enum optimizer_size size = table[kind].states[i].size;
		sum += size == OPTIMIZER_ELEMENT || size == OPTIMIZER_OTHER ? all : 0;
		for (int unit = 0; unit < UNIT_KINDS && size > OPTIMIZER_ELEMENT; unit++) {
			const struct zero_cut *cut = &cuts[zero_class((enum unit_kind)unit)];
			struct catalogue_sample u;
			int64_t lo, hi;
			int count = catalogue_unit_count(m, s, (enum unit_kind)unit);
			catalogue_sample(m, s, (enum unit_kind)unit, &u);
			zero_counted(catalogue_unit_elements(m, s, (enum unit_kind)unit), stage,
				     cut, &lo, &hi);
			if (size == OPTIMIZER_OTHER)
				sum -= count * (double)hidden_elements(&u, lo, hi, true);
			else if (s->tp_rank == 0 && cut->shard == 0 && cut->copy == 0 &&
				 !u.tied_copy)
				sum += count * (double)factor_elements(&u, size);
		}
	}
	return sum;
}

double optimizer_checkpoint_bytes(enum job_optimizer kind, const struct model_shape *m)
{
	struct optimizer_elements model[ZERO_CLASSES];
	double elements = 0;
	optimizer_elements_of(kind, m, model);
	for (int i = 0; i < ZERO_CLASSES; i++)
		elements += model[i].params + model[i].split + model[i].whole;
	return elements * (double)sizeof(float);
}
