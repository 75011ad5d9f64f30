#include "plan/cost/machine.h"

#include <math.h>

static const char *const words[] = {
	[COST_PRODUCT_FWD] = "product_fwd", [COST_PRODUCT_INPUT] = "product_input", [COST_PRODUCT_WEIGHT] = "product_weight",
	[COST_ATTENTION_FWD] = "attention_fwd", [COST_ATTENTION_BWD] = "attention_bwd",
	[COST_NORM_FWD] = "norm_fwd", [COST_NORM_BWD] = "norm_bwd", [COST_GELU_FWD] = "gelu_fwd", [COST_GELU_BWD] = "gelu_bwd",
	[COST_SWIGLU_FWD] = "swiglu_fwd", [COST_SWIGLU_BWD] = "swiglu_bwd", [COST_ROPE] = "rope", [COST_XENT] = "xent",
	[COST_SUM_ROWS] = "sum_rows", [COST_MOVED] = "moved", [COST_OPTIMIZER] = "optimizer",
};

const char *cost_class_word(enum cost_class class)
{
	return words[class];
}

double cost_curve_at(const struct cost_curve *c, double x)
{
	int i = 1;
	if (c->n < 1)
		return 0;
	if (c->n == 1 || x <= c->x[0])
		return c->rate[0];
	if (x >= c->x[c->n - 1])
		return c->rate[c->n - 1];
	while (x > c->x[i])
		i++;
	double share = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
	return c->rate[i - 1] + share * (c->rate[i] - c->rate[i - 1]);
}

static const struct cost_curve *curve_of(const struct machine *m, enum cost_class class)
{
	enum cost_class kind = class <= COST_PRODUCT_WEIGHT ? COST_PRODUCT_FWD : class <= COST_ATTENTION_BWD ? COST_ATTENTION_FWD : COST_MOVED;
	if (m->rates[class].n)
		return &m->rates[class];
	return kind == COST_ATTENTION_FWD && !m->rates[kind].n ? &m->rates[COST_PRODUCT_FWD] : &m->rates[kind];
}

double machine_seconds(const struct machine *m, enum cost_class class, double work)
{
	return work > 0 ? work / cost_curve_at(curve_of(m, class), work) + m->op : 0;
}

double machine_attention(const struct machine *m, enum cost_class form, double flops, double keys, double dim)
{
	return flops > 0 ? flops / cost_curve_at(curve_of(m, form), keys * dim) + m->op : 0;
}

double machine_product(const struct machine *m, enum cost_class form, double n, double in, double out, double width)
{
	double bytes = width * (n * in + in * out + n * out);
	return machine_seconds(m, form, 2 * n * in * out) + (m->packing > 0 ? bytes / m->packing : 0);
}
