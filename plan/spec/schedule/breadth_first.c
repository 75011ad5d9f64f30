/* breadth-first: all micro-batches pass a chunk before the next one (Lamy-Poirier, arXiv
 * 2211.05953). */
#include "plan/spec/schedule/closed_form.h"
#include "plan/spec/schedule/order.h"

static void list_breadth_first(struct order *o)
{
	int chunks = o->of.layout->chunks, micros = o->of.micros;
	for (int chunk = 0; chunk < chunks; chunk++)
		for (int i = 0; i < micros; i++)
			schedule_put_forward(o, chunk, i);
	for (int chunk = chunks - 1; chunk >= 0; chunk--)
		for (int i = 0; i < micros; i++)
			schedule_put_backward(o, chunk, i);
}

/* The bubble is interleaved's with all micro-batches in one group: (pp - 1) / chunks passes. As in
 * gpipe, the forward passes flow through the ranks and then the backward passes do, and the slowest
 * rank of each direction limits the flow. */
static double breadth_first_seconds(const struct pipeline_times *p, int chunks, int micros,
				    double hop)
{
	double work = micros * (p->most_forward + p->most_backward);
	return schedule_seconds_looped(p, chunks, micros, work, p->most_forward, p->most_backward,
				       hop);
}

const struct schedule_kind schedule_breadth_first = {
	.list_passes = list_breadth_first,
	.seconds = breadth_first_seconds,
	.chunks_least = 2,
	.chunks_most = LAYOUT_CHUNKS_MAX,
	.loops = true,
	.searched = true,
	.complexity = 2,
};
