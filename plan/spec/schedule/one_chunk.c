/* naive, gpipe and 1f1b: one stage per rank, each backward pass in one piece. */
#include "plan/spec/schedule/closed_form.h"

#include "base/numbers.h"
#include "plan/spec/schedule/order.h"

#include <math.h>

/* `ahead` forward passes, then one forward and one backward in turn, then the remaining backward
 * passes. */
static void alternate_passes(struct order *o, int ahead)
{
	int micros = o->of.micros;
	ahead = min_int(ahead, micros);
	for (int i = 0; i < ahead; i++)
		schedule_put_forward(o, 0, i);
	for (int i = ahead; i < micros; i++) {
		schedule_put_forward(o, 0, i);
		schedule_put_backward(o, 0, i - ahead);
	}
	for (int i = micros - ahead; i < micros; i++)
		schedule_put_backward(o, 0, i);
}

/* --- naive -------------------------------------------------------------------- */

static void list_naive(struct order *o)
{
	alternate_passes(o, 0);
}

static double naive_seconds(const struct pipeline_times *p, int chunks, int micros, double hop)
{
	(void)chunks;
	return micros * schedule_seconds_through(p, hop);
}

static int naive_enough_micros(int pp, int micros)
{
	(void)pp;
	(void)micros;
	return 1;
}

const struct schedule_kind schedule_naive = {
	.list_passes = list_naive,
	.seconds = naive_seconds,
	.enough_micros = naive_enough_micros,
	.chunks_least = 1,
	.chunks_most = 1,
	.complexity = 2,
};

/* --- gpipe -------------------------------------------------------------------- */

static void list_gpipe(struct order *o)
{
	alternate_passes(o, o->of.micros);
}

/* The forward passes flow through the ranks, then the backward passes do. The slowest rank of each
 * direction limits the flow. */
static double gpipe_seconds(const struct pipeline_times *p, int chunks, int micros, double hop)
{
	(void)chunks;
	return schedule_seconds_through(p, hop) +
	       (micros - 1) * (p->most_forward + p->most_backward);
}

const struct schedule_kind schedule_gpipe = {
	.list_passes = list_gpipe,
	.seconds = gpipe_seconds,
	.chunks_least = 1,
	.chunks_most = 1,
	.complexity = 1,
};

/* --- 1f1b --------------------------------------------------------------------- */

static void list_one_f_one_b(struct order *o)
{
	alternate_passes(o, o->of.layout->pp - 1 - o->of.rank);
}

/* The time of `micros` micro-batches if `ranks` of them share a way of `once` seconds there and
 * back before a further one is let in. */
static double rounds(int micros, int ranks, double once, double busy)
{
	return micros / ranks * once + micros % ranks * busy;
}

/* A rank lets in as many micro-batches as there are ranks from it to the end. If messages take
 * time, that many share a way there and back. */
static double one_f_one_b_seconds(const struct pipeline_times *p, int chunks, int micros,
				  double hop)
{
	(void)chunks;
	double all = schedule_seconds_through(p, hop),
	       busiest = p->n_busiest * p->busy + 2 * (p->n_busiest - 1) * hop;
	return all + fmax(rounds(micros - 1, p->ranks, all, p->busy),
			  rounds(micros - 1, p->n_busiest, busiest, p->busy));
}

const struct schedule_kind schedule_one_f_one_b = {
	.list_passes = list_one_f_one_b,
	.seconds = one_f_one_b_seconds,
	.enough_micros = schedule_four_rounds,
	.chunks_least = 1,
	.chunks_most = 1,
	.searched = true,
};
