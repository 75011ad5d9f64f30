#include "plan/cost/machine.h"

#include <math.h>
#include <stddef.h>

double cost_curve_at(const struct rate_curve *c, double x)
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

static double ratio_at(const struct rate_curve *c, double x)
{
	return c->n ? cost_curve_at(c, x) : 1;
}

/* The largest head that counts as one of 64. */
#define SMALL_HEAD 96

int cost_chip_dim(double dim)
{
	return dim > SMALL_HEAD;
}

static const struct rate_curve *curve_of(const struct cost_machine *m, enum rate_class class)
{
	enum rate_class kind = class <= RATE_PRODUCT_WEIGHT  ? RATE_PRODUCT_FWD
			       : class <= RATE_ATTENTION_BWD ? RATE_ATTENTION_FWD
							     : RATE_MOVED;
	if (m->rates[class].n)
		return &m->rates[class];
	return kind == RATE_ATTENTION_FWD && !m->rates[kind].n ? &m->rates[RATE_PRODUCT_FWD]
							       : &m->rates[kind];
}

double cost_machine_seconds(const struct cost_machine *m, enum rate_class class, double work)
{
	return work > 0 ? work / cost_curve_at(curve_of(m, class), work) + m->op : 0;
}

double cost_machine_fp32_product(const struct cost_machine *m, double flops)
{
	const struct rate_curve *curve = m->fp32_products.n ? &m->fp32_products
							    : curve_of(m, RATE_PRODUCT_FWD);
	return flops > 0 ? flops / cost_curve_at(curve, flops) + m->op : 0;
}

double cost_machine_attention(const struct cost_machine *m, enum attention_kernel kernel,
			      enum rate_class form, double flops, double keys, double dim)
{
	if (flops <= 0)
		return 0;
	if (m->attention <= 0)
		return flops / cost_curve_at(curve_of(m, form), keys * dim) + m->op;
	double share = form == RATE_ATTENTION_FWD
			       ? cost_attention_forward(m->generation, kernel, keys, dim)
			       : cost_attention_backward(m->generation, kernel, keys, dim);
	const struct rate_curve *ratio =
		&m->ratios.attention[form - RATE_ATTENTION_FWD][cost_chip_dim(dim)];
	return (flops / (share * m->attention) + m->op) * ratio_at(ratio, keys);
}

/* --- Products in tiles --- */

/* The shapes that matrix libraries choose from, and the share of the largest one's rate that they
 * reach: a smaller tile reads its operands more often (CUTLASS's profiles of Ampere GEMMs; cuBLAS
 * has the same shapes). */
static const struct tile {
	double m, n, share;
} tiles[] = { { 256, 128, 1 }, { 128, 128, 0.92 }, { 128, 64, 0.75 }, { 64, 64, 0.55 } };

#define SPLIT_DEPTH 1024 /* of a part that is worth a unit of its own */

static double in_tiles(const struct cost_machine *m, const struct tile *t, double batch,
		       double rows, double columns, double depth, double rate)
{
	double upright = ceil(rows / t->m) * ceil(columns / t->n),
	       across = ceil(rows / t->n) * ceil(columns / t->m);
	double count = batch * fmin(upright, across), split = 1;
	if (count < m->units)
		split = fmax(1, floor(fmin(m->units / count, depth / SPLIT_DEPTH)));
	double waves = ceil(count * split / m->units), size = t->m * t->n;
	return waves * (2 * size * depth / split / (t->share * rate / m->units) +
			m->wave * size / (tiles[0].m * tiles[0].n));
}

double cost_machine_products(const struct cost_machine *m, enum rate_class form, double batch,
			     double rows, double columns, double depth, double width)
{
	double flops = 2 * batch * rows * columns * depth,
	       bytes = width * batch * (rows * depth + depth * columns + rows * columns);
	if (flops <= 0)
		return 0;
	if (m->units < 1) {
		double weights = width * batch * columns *
				 (form == RATE_PRODUCT_WEIGHT ? rows : depth);
		return cost_machine_seconds(m, form, flops) +
		       (m->packing[form] > 0 ? weights / m->packing[form] : 0);
	}
	double rate = cost_curve_at(curve_of(m, form), flops) *
		      (width < 2 && m->eight > 0 ? m->eight : 1),
	       best = in_tiles(m, tiles, batch, rows, columns, depth, rate);
	for (size_t i = 1; i < sizeof tiles / sizeof *tiles; i++)
		best = fmin(best, in_tiles(m, &tiles[i], batch, rows, columns, depth, rate));
	const struct rate_curve *ratio = width < 2 && m->ratios.eight[form].n
						 ? &m->ratios.eight[form]
						 : &m->ratios.product[form];
	return (fmax(best, bytes / cost_curve_at(curve_of(m, RATE_MOVED), bytes)) + m->op) *
	       ratio_at(ratio, flops);
}

double cost_machine_product(const struct cost_machine *m, enum rate_class form, double n, double in,
			    double out, double width)
{
	if (form == RATE_PRODUCT_WEIGHT)
		return cost_machine_products(m, form, 1, out, in, n, width);
	return form == RATE_PRODUCT_INPUT ? cost_machine_products(m, form, 1, n, in, out, width)
					  : cost_machine_products(m, form, 1, n, out, in, width);
}

/* --- Transfers --- */

void cost_machine_links(const struct cost_machine *m, struct group_links group_links[GROUP_KINDS])
{
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		group_links[kind].inside.bandwidth *= m->link_share > 0 ? m->link_share : 1;
		group_links[kind].across.bandwidth *= m->net_share > 0 ? m->net_share : 1;
		group_links[kind].measured = m->measured;
		group_links[kind].crowd = m->agents;
		group_links[kind].busy = m->crowd;
	}
}

double cost_machine_offload(const struct cost_machine *m, double bytes)
{
	if (m->host <= 0)
		return cost_machine_seconds(m, RATE_MOVED, 2 * bytes);
	return bytes > 0 ? bytes / m->host + m->op : 0;
}
