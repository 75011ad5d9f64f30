#include "plan/cost/pipe.h"

#include <math.h>

/* As busy as another: but for rounding. */
#define ALIKE 1e-9

static double busy_of(const struct pipeline_rank_times *r)
{
	return r->forward + r->input + r->weight;
}

void schedule_times_add(struct pipe *p, const struct pipeline_rank_times *r)
{
	double busy = busy_of(r);
	if (!p->ranks)
		p->head = *r;
	p->tail = *r;
	p->heavy += fabs(busy - p->busy) <= ALIKE * busy;
	if (busy > p->busy * (1 + ALIKE)) {
		p->busy = busy;
		p->slow = *r;
		p->at = p->ranks;
		p->heavy = 1;
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

/* The first micro-batch down the pipeline and back. */
static double through(const struct pipe *p, double hop)
{
	return busy_of(&p->sum) + 2 * (p->ranks - 1) * hop;
}

static double naive(const struct pipe *p, int micros, double hop)
{
	return micros * through(p, hop);
}

/* Forwards flow through the ranks, then backwards do: the slowest of each sets the pace. */
static double gpipe(const struct pipe *p, int micros, double hop)
{
	return through(p, hop) + (micros - 1) * (p->most_forward + p->most_backward);
}

/* So many micro-batches, when as many ranks that `once` takes are passed there and back before a
 * further one is let in. */
static double rounds(int micros, int ranks, double once, double busy)
{
	return micros / ranks * once + micros % ranks * busy;
}

/* A rank lets in as many as there are ranks from it to the end: where messages take time, so
 * many share a way there and back. */
static double one_f_one_b(const struct pipe *p, int micros, double hop)
{
	double all = through(p, hop), heavy = p->heavy * p->busy + 2 * (p->heavy - 1) * hop;
	return all + fmax(rounds(micros - 1, p->ranks, all, p->busy),
			  rounds(micros - 1, p->heavy, heavy, p->busy));
}

/* The busiest rank works without a pause but for the pipeline's filling and emptying, by a chunk a
 * rank; and a group of micro-batches goes round all ranks before its next chunk can begin, which a
 * small group does not fill. */
static double interleaved(const struct pipe *p, int chunks, int micros, double hop)
{
	int groups = micros < p->ranks ? 1 : micros / p->ranks,
	    group = (micros + groups - 1) / groups;
	double forward = p->sum.forward + p->ranks * chunks * hop - group * p->slow.forward;
	double backward = p->sum.input + p->sum.weight + p->ranks * chunks * hop -
			  group * (p->slow.input + p->slow.weight);
	double turns = (double)(chunks - 1) / chunks;
	return micros * p->busy + p->fill + 2 * (p->ranks - 1) * hop +
	       turns * (fmax(0, forward) + fmax(0, backward));
}

/* The path through rank `at`: to it, its own work with the wait for the first gradient, and back.
 * Its weight passes are as many micro-batches late as there are ranks before it, and so are not on
 * that path. */
static double zb_h1_path(const struct pipe *p, const struct pipeline_rank_times *r, int at, double before,
			 double after, int micros, double hop)
{
	int behind = p->ranks - 1 - at, ahead = behind < micros - 1 ? behind : micros - 1,
	    weights = micros - 1 - at;
	double wait = fmax(0, after + 2 * behind * hop - ahead * r->forward);
	return before + 2 * at * hop + micros * (r->forward + r->input) + wait +
	       (weights > 0 ? weights : 0) * r->weight + p->head.weight;
}

static double zb_h1(const struct pipe *p, int micros, double hop)
{
	double all = p->sum.forward + p->sum.input;
	double head = zb_h1_path(p, &p->head, 0, 0, all - p->head.forward - p->head.input, micros,
				 hop);
	double tail = zb_h1_path(p, &p->tail, p->ranks - 1, all - p->tail.forward - p->tail.input,
				 0, micros, hop);
	double slow = zb_h1_path(p, &p->slow, p->at, p->before, p->after, micros, hop);
	return fmax(slow, fmax(head, tail));
}

/* The busiest rank's work and the pipeline's waits, which the mean chunk's passes f, i and w
 * decide: of a long run the longest of five paths, found from simulated tables; with as many
 * micro-batches as ranks the way there and back; in between it falls. */
static double zb_v(const struct pipe *p, int micros, double hop)
{
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

double schedule_seconds(const struct pipe *p, enum job_schedule kind, int chunks, int micros,
		      double hop)
{
	if (p->ranks == 1)
		return micros * p->busy;
	switch (kind) {
	case SCHEDULE_NAIVE:
		return naive(p, micros, hop);
	case SCHEDULE_GPIPE:
		return gpipe(p, micros, hop);
	case SCHEDULE_INTERLEAVED:
		return interleaved(p, chunks, micros, hop);
	case SCHEDULE_ZB_H1:
		return zb_h1(p, micros, hop);
	case SCHEDULE_ZB_V:
		return zb_v(p, micros, hop);
	default:
		return one_f_one_b(p, micros, hop);
	}
}
