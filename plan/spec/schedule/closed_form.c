#include "plan/spec/schedule/closed_form.h"

#include <math.h>

/* Two ranks are equally busy if they differ by rounding errors only. */
#define ROUNDING 1e-9

static double busy_of(const struct pipeline_rank_times *r)
{
	return r->forward + r->input + r->weight;
}

void schedule_times_add(struct pipeline_times *p, const struct pipeline_rank_times *r)
{
	double busy = busy_of(r);
	if (!p->ranks)
		p->head = *r;
	p->tail = *r;
	p->n_busiest += fabs(busy - p->busy) <= ROUNDING * busy;
	if (busy > p->busy * (1 + ROUNDING)) {
		p->busy = busy;
		p->busiest = *r;
		p->busiest_at = p->ranks;
		p->n_busiest = 1;
		p->before = p->sum.forward + p->sum.input;
		p->fill = p->sum.first;
		p->after = 0;
	} else {
		p->after += r->forward + r->input;
		p->fill += r->last;
	}
	p->most_forward = fmax(p->most_forward, r->forward);
	p->most_backward = fmax(p->most_backward, r->input + r->weight);
	p->sum.forward += r->forward;
	p->sum.input += r->input;
	p->sum.weight += r->weight;
	p->sum.first += r->first;
	p->ranks++;
}

double schedule_seconds_through(const struct pipeline_times *p, double hop)
{
	return busy_of(&p->sum) + 2 * (p->ranks - 1) * hop;
}

/* The busiest rank works without a pause except while the pipeline fills and drains, by one chunk
 * of each rank. A group goes round all ranks before its next chunk can begin, and a small group
 * does not fill that time. */
double schedule_seconds_looped(const struct pipeline_times *p, int chunks, int group, double work,
			       double forward, double backward, double hop)
{
	double messages = p->ranks * chunks * hop;
	double down = p->sum.forward + messages - group * forward;
	double up = p->sum.input + p->sum.weight + messages - group * backward;
	double turns = (double)(chunks - 1) / chunks;
	return work + p->fill + 2 * (p->ranks - 1) * hop + turns * (fmax(0, down) + fmax(0, up));
}
