/* interleaved: 1f1b over several chunks per rank (Narayanan et al., arXiv 2104.04473). */
#include "plan/spec/schedule/closed_form.h"

#include "base/numbers.h"
#include "plan/spec/schedule/order.h"

/* Micro-batches are split into micros / pp groups (at least one) whose sizes differ by at most one,
 * the larger groups first. A group goes through all chunks before the next group begins. */
static int count_groups(int micros, int pp)
{
	return micros < pp ? 1 : micros / pp;
}

static int first_group(int micros, int pp)
{
	int groups = count_groups(micros, pp);
	return (micros + groups - 1) / groups;
}

/* Pass k of a direction, of micros × chunks: the chunk's turn in that direction, and the
 * micro-batch. */
static void find_pass(const struct order_of *of, int k, int *turn, int *micro)
{
	int groups = count_groups(of->micros, of->layout->pp), chunks = of->layout->chunks;
	int small = of->micros / groups, larger = of->micros % groups;
	int before = larger * (small + 1) * chunks; /* passes of the larger groups */
	int size = k < before ? small + 1 : small;
	int in = k < before ? k : k - before;
	int group = in / (size * chunks);
	*turn = in % (size * chunks) / size;
	*micro = (k < before ? 0 : larger * (small + 1)) + group * size + in % size;
}

static void put_forward(struct order *o, int k)
{
	int turn, micro;
	find_pass(&o->of, k, &turn, &micro);
	schedule_put_forward(o, turn, micro);
}

static void put_backward(struct order *o, int k)
{
	int turn, micro;
	find_pass(&o->of, k, &turn, &micro);
	schedule_put_backward(o, o->of.layout->chunks - 1 - turn, micro);
}

static void list_interleaved(struct order *o)
{
	int chunks = o->of.layout->chunks, pp = o->of.layout->pp, passes = o->of.micros * chunks;
	int ahead = min_int(
		(chunks - 1) * first_group(o->of.micros, pp) + 2 * (pp - 1 - o->of.rank), passes);
	for (int k = 0; k < ahead; k++)
		put_forward(o, k);
	for (int k = 0; k < passes; k++) {
		if (k + ahead < passes)
			put_forward(o, k + ahead);
		put_backward(o, k);
	}
}

void schedule_list_looped_forwards(struct order *o)
{
	for (int k = 0; k < o->of.micros * o->of.layout->chunks; k++)
		put_forward(o, k);
}

static double interleaved_seconds(const struct pipeline_times *p, int chunks, int micros,
				  double hop)
{
	return schedule_seconds_looped(p, chunks, first_group(micros, p->ranks), micros * p->busy,
				       p->busiest.forward, p->busiest.input + p->busiest.weight,
				       hop);
}

/* Three groups of pp micro-batches keep as much alive as many such groups do, and so do three
 * larger groups before them. */
static int interleaved_enough_micros(int pp, int micros)
{
	int groups = micros / pp, larger = micros % pp;
	if (groups <= larger)
		return micros;
	return min_int(larger, 3) + pp * (min_int(larger, 3) + min_int(groups - larger, 3));
}

const struct schedule_kind schedule_interleaved = {
	.list_passes = list_interleaved,
	.seconds = interleaved_seconds,
	.enough_micros = interleaved_enough_micros,
	.chunks_least = 2,
	.chunks_most = LAYOUT_CHUNKS_MAX,
	.loops = true,
	.searched = true,
	.complexity = 2,
};
