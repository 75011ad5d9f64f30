#include "plan/spec/schedule/order.h"

#include "base/numbers.h"

#include <stddef.h>

/* Whether the model has a stage next to `stage` in a direction (1: where activations go, -1: where
 * gradients go). *chunk is this rank's chunk that holds it, -1 if another rank does. */
static bool has_neighbour(const struct order *o, int stage, int direction, int *chunk)
{
	int next = stage + direction, rank;
	*chunk = -1;
	if (next < 0 || next >= layout_n_stages(o->of.layout))
		return false;
	layout_holder(o->of.layout, next, &rank, chunk);
	if (rank != o->of.rank)
		*chunk = -1;
	return true;
}

static void put_step(struct order *o, enum sched_op op, int chunk, int micro)
{
	if (o->steps)
		o->steps[o->n] = (struct sched_step){ op, chunk, micro };
	o->n++;
}

static void take_slot(struct order *o, int chunk)
{
	if (++o->live[chunk] > o->slots.live[chunk])
		o->slots.live[chunk] = o->live[chunk];
	if (++o->live_total > o->slots.most)
		o->slots.most = o->live_total;
	if (++o->whole[chunk] > o->slots.whole[chunk])
		o->slots.whole[chunk] = o->whole[chunk];
}

static void free_slot(struct order *o, int chunk)
{
	o->live[chunk]--;
	o->live_total--;
}

void schedule_put_forward(struct order *o, int chunk, int micro)
{
	int stage = layout_stage(o->of.layout, o->of.rank, chunk), before, after;
	bool reads = has_neighbour(o, stage, -1, &before),
	     writes = has_neighbour(o, stage, 1, &after);
	if (reads && before < 0)
		put_step(o, SCHED_RECV_ACT, chunk, micro);
	put_step(o, SCHED_FORWARD, chunk, micro);
	if (writes && after < 0)
		put_step(o, SCHED_SEND_ACT, chunk, micro);
	take_slot(o, chunk);
	if (o->forwards_only && before >= 0)
		free_slot(o, before);
	if (o->forwards_only && after < 0)
		free_slot(o, chunk);
}

static void put_gradient_pass(struct order *o, enum sched_op op, int chunk, int micro)
{
	int stage = layout_stage(o->of.layout, o->of.rank, chunk), before, after;
	bool writes = has_neighbour(o, stage, -1, &before),
	     reads = has_neighbour(o, stage, 1, &after);
	if (reads && after < 0)
		put_step(o, SCHED_RECV_GRAD, chunk, micro);
	put_step(o, op, chunk, micro);
	o->whole[chunk]--;
	if (writes && before < 0)
		put_step(o, SCHED_SEND_GRAD, chunk, micro);
}

void schedule_put_backward(struct order *o, int chunk, int micro)
{
	put_gradient_pass(o, SCHED_BACKWARD, chunk, micro);
	free_slot(o, chunk);
}

void schedule_put_backward_input(struct order *o, int chunk, int micro)
{
	put_gradient_pass(o, SCHED_BACKWARD_INPUT, chunk, micro);
}

void schedule_put_backward_weight(struct order *o, int chunk, int micro)
{
	put_step(o, SCHED_BACKWARD_WEIGHT, chunk, micro);
	free_slot(o, chunk);
}

int schedule_four_rounds(int pp, int micros)
{
	return min_int(micros, 4 * pp);
}

void schedule_list_passes(enum job_schedule kind, struct order *o)
{
	schedule_kinds[kind]->list_passes(o);
	put_step(o, SCHED_REDUCE, -1, -1);
}

/* The V's ranks take both directions in turn: stage s has micro-batch i at time 2 i + s, which is
 * an even time on one chunk and an odd time on the other. */
static void list_vee_forwards(struct order *o)
{
	int first = layout_stage(o->of.layout, o->of.rank, 0),
	    second = layout_stage(o->of.layout, o->of.rank, 1);
	for (int i = 0, j = 0; j < o->of.micros;)
		if (i < o->of.micros && 2 * i + first < 2 * j + second)
			schedule_put_forward(o, 0, i++);
		else
			schedule_put_forward(o, 1, j++);
}

void schedule_list_forwards(struct order *o)
{
	o->forwards_only = true;
	if (o->of.layout->vee)
		list_vee_forwards(o);
	else
		schedule_list_looped_forwards(o);
}
