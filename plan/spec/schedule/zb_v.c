/* zb-v: two chunks per rank, there and back (Qi et al., arXiv 2401.10241 and 2405.15362). */
#include "plan/spec/schedule/closed_form.h"

#include "plan/spec/schedule/order.h"

#include <math.h>

/* The next micro-batch of each kind of pass on each chunk. */
struct vee {
	struct order *o;
	int forwards[2], inputs[2], weights[2];
};

/* The order is the one of a long run. A short run leaves out the passes of micro-batches that do
 * not exist. */
static void put_forward(struct vee *v, int chunk)
{
	int micro = v->forwards[chunk]++;
	if (micro < v->o->of.micros)
		schedule_put_forward(v->o, chunk, micro);
}

static void put_input(struct vee *v, int chunk)
{
	int micro = v->inputs[chunk]++;
	if (micro < v->o->of.micros)
		schedule_put_backward_input(v->o, chunk, micro);
}

static void put_weight(struct vee *v, int chunk)
{
	int micro = v->weights[chunk]++;
	if (micro < v->o->of.micros)
		schedule_put_backward_weight(v->o, chunk, micro);
}

static void put_both_halves(struct vee *v, int chunk)
{
	put_input(v, chunk);
	put_weight(v, chunk);
}

static void list_zb_v(struct order *o)
{
	struct vee v = { .o = o };
	int pp = o->of.layout->pp, rank = o->of.rank;
	int micros = o->of.micros < 2 * pp - 1 ? 2 * pp - 1 : o->of.micros;
	/* First until the first micro-batch is back at this rank, then both directions in turn,
	 * then the first gradients. */
	for (int i = 0; i < 2 * (pp - rank) - 1; i++)
		put_forward(&v, 0);
	for (int i = 0; i < rank; i++) {
		put_forward(&v, 1);
		put_forward(&v, 0);
	}
	for (int i = 0; i < pp - rank; i++) {
		put_forward(&v, 1);
		put_both_halves(&v, 1);
	}
	while (v.forwards[1] < micros) {
		put_both_halves(&v, 0);
		if (v.forwards[0] < micros)
			put_forward(&v, 0);
		put_forward(&v, 1);
		put_both_halves(&v, 1);
	}
	/* The gradients of inputs come first as long as other ranks wait for them. */
	for (int i = 0; i < rank; i++) {
		put_input(&v, 0);
		put_input(&v, 1);
	}
	for (int i = 0; i < pp - rank; i++)
		put_both_halves(&v, 0);
	while (v.weights[1] < micros)
		put_weight(&v, 1);
	while (v.weights[0] < micros)
		put_weight(&v, 0);
}

/* The busiest rank's work and the pipeline's waits, which depend on the passes f, i and w of the
 * mean chunk. In a long run the wait is the longest of four paths, which were found from simulated
 * tables. With as many micro-batches as ranks it is the way there and back; in between it falls
 * linearly. */
static double zb_v_seconds(const struct pipeline_times *p, int chunks, int micros, double hop)
{
	(void)chunks;
	int more = p->ranks - 1;
	double n = 2.0 * p->ranks, f = p->sum.forward / n, i = p->sum.input / n,
	       w = p->sum.weight / n;
	double paths[] = { f * more, w * (more - 1) + f, 2 * (i - w) * more,
			   (2 * f - fmin(i, w)) * more - f / 2 };
	double few = (i + fmax(f, i)) * more + 4 * more * hop, many = i * more;
	for (int k = 0; k < (int)(sizeof paths / sizeof *paths); k++)
		many = fmax(many, paths[k]);
	many += 5 * more * hop;
	if (micros < p->ranks)
		return fmax(micros * p->busy, n * (f + i) + 4 * more * hop +
						      micros * p->busy / p->ranks +
						      (micros - 1) * p->busy * more / p->ranks);
	double late = fmin(1, (double)(micros - p->ranks) / p->ranks);
	return micros * p->busy + (1 - late) * few + late * many;
}

const struct schedule_kind schedule_zb_v = {
	.list_passes = list_zb_v,
	.seconds = zb_v_seconds,
	.enough_micros = schedule_four_rounds,
	.chunks_least = 2,
	.chunks_most = 2,
	.vee = true,
	.splits = true,
	.searched = true,
	.complexity = 3,
};
