#include "plan/spec/schedule/timeline.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_ROOM = 64 };

int timeline_add(struct timeline *t, const struct timeline_event *event)
{
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : FIRST_ROOM;
		struct timeline_event *more = realloc(t->events, (size_t)room * sizeof *more);
		if (!more)
			return -1;
		t->events = more;
		t->room = room;
	}
	t->events[t->n++] = *event;
	return 0;
}

void timeline_free(struct timeline *t)
{
	free(t->events);
	*t = (struct timeline){ 0 };
}

void timeline_begin_at_zero(struct timeline *t)
{
	double first = t->n ? t->events[0].begin : 0;
	for (int i = 0; i < t->n; i++)
		first = t->events[i].begin < first ? t->events[i].begin : first;
	for (int i = 0; i < t->n; i++) {
		t->events[i].begin -= first;
		t->events[i].end -= first;
	}
}

static double mean_of(const struct timeline *t, int rank, int chunk, enum sched_op op)
{
	double sum = 0;
	int n = 0;
	for (int i = 0; i < t->n; i++) {
		const struct timeline_event *v = &t->events[i];
		if (v->rank == rank && v->chunk == chunk && v->op == op) {
			sum += v->end - v->begin;
			n++;
		}
	}
	return n ? sum / n : 0;
}

void timeline_means(const struct timeline *t, const struct layout *l, double *forward,
		    double *input, double *weight)
{
	for (int s = 0; s < layout_n_stages(l); s++) {
		int rank, chunk;
		layout_holder(l, s, &rank, &chunk);
		forward[s] = mean_of(t, rank, chunk, SCHED_FORWARD);
		input[s] = mean_of(t, rank, chunk, SCHED_BACKWARD) +
			   mean_of(t, rank, chunk, SCHED_BACKWARD_INPUT);
		weight[s] = mean_of(t, rank, chunk, SCHED_BACKWARD_WEIGHT);
	}
}

static bool is_pass(const struct timeline_event *v)
{
	return v->op == SCHED_FORWARD || v->op == SCHED_BACKWARD || v->op == SCHED_BACKWARD_INPUT ||
	       v->op == SCHED_BACKWARD_WEIGHT;
}

double timeline_end(const struct timeline *t)
{
	double end = 0;
	for (int i = 0; i < t->n; i++)
		if (is_pass(&t->events[i]) && t->events[i].end > end)
			end = t->events[i].end;
	return end;
}

double timeline_bubble(const struct timeline *t)
{
	double end = timeline_end(t), most = 0;
	double *busy = calloc((size_t)t->ranks + 1, sizeof *busy);
	if (!busy)
		return NAN;
	for (int i = 0; i < t->n; i++)
		if (is_pass(&t->events[i])) {
			double *mine = &busy[t->events[i].rank];
			*mine += t->events[i].end - t->events[i].begin;
			most = fmax(most, *mine);
		}
	free(busy);
	return end > 0 ? fmax(0, 1 - most / end) : 0;
}

double timeline_idle(const struct timeline *t)
{
	double end = timeline_end(t), busy = 0;
	for (int i = 0; i < t->n; i++)
		if (is_pass(&t->events[i]))
			busy += t->events[i].end - t->events[i].begin;
	return end > 0 && t->ranks > 0 ? 1 - busy / (end * t->ranks) : 0;
}
