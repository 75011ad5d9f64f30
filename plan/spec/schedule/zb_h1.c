/* zb-h1: 1f1b whose weight passes fill the bubble (Qi et al., arXiv 2401.10241). */
#include "plan/spec/schedule/closed_form.h"

#include "base/numbers.h"
#include "plan/spec/schedule/order.h"

#include <math.h>

/* A rank's weight passes come as many micro-batches late as there are ranks before it. So the
 * gradients reach those ranks sooner, and each rank keeps as much as the first one keeps under
 * 1f1b. */
static void list_zb_h1(struct order *o)
{
	int micros = o->of.micros, late = o->of.rank, weights = 0;
	int ahead = min_int(o->of.layout->pp - 1 - o->of.rank, micros);
	for (int i = 0; i < ahead; i++)
		schedule_put_forward(o, 0, i);
	for (int i = 0; i < micros; i++) {
		if (i + ahead < micros)
			schedule_put_forward(o, 0, i + ahead);
		schedule_put_backward_input(o, 0, i);
		if (i >= late)
			schedule_put_backward_weight(o, 0, weights++);
	}
	while (weights < micros)
		schedule_put_backward_weight(o, 0, weights++);
}

/* The path through rank `at`: to it, its own work with the wait for the first gradient, and back.
 * Its weight passes are as many micro-batches late as there are ranks before it, so they are not on
 * that path. */
static double path_through(const struct pipeline_times *p, const struct pipeline_rank_times *r,
			   int at, double before, double after, int micros, double hop)
{
	int behind = p->ranks - 1 - at, ahead = min_int(behind, micros - 1),
	    weights = micros - 1 - at;
	double wait = fmax(0, after + 2 * behind * hop - ahead * r->forward);
	return before + 2 * at * hop + micros * (r->forward + r->input) + wait +
	       (weights > 0 ? weights : 0) * r->weight + p->head.weight;
}

static double zb_h1_seconds(const struct pipeline_times *p, int chunks, int micros, double hop)
{
	(void)chunks;
	double all = p->sum.forward + p->sum.input;
	double head = path_through(p, &p->head, 0, 0, all - p->head.forward - p->head.input, micros,
				   hop);
	double tail = path_through(p, &p->tail, p->ranks - 1, all - p->tail.forward - p->tail.input,
				   0, micros, hop);
	double busiest = path_through(p, &p->busiest, p->busiest_at, p->before, p->after, micros,
				      hop);
	return fmax(busiest, fmax(head, tail));
}

const struct schedule_kind schedule_zb_h1 = {
	.list_passes = list_zb_h1,
	.seconds = zb_h1_seconds,
	.enough_micros = schedule_four_rounds,
	.chunks_least = 1,
	.chunks_most = 1,
	.splits = true,
	.searched = true,
	.complexity = 3,
};
