/*
 * The order of each schedule: what a rank does when. Every rule reads the rank's own place alone,
 * so a row is made without the others; that the rows fit together is for the checker to prove.
 */
#include "plan/spec/schedule/order.h"

#include <stddef.h>

/* --- A pass and the messages around it --- */

/* Whether the pipeline goes on past `stage` in a direction (1: with activations, -1: with
 * gradients), and whether on this rank: then *chunk is where. */
static bool goes_on(const struct order *o, int stage, int direction, int *chunk)
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

static void put(struct order *o, enum sched_op op, int chunk, int micro)
{
	if (o->steps)
		o->steps[o->n] = (struct sched_step){ op, chunk, micro };
	o->n++;
}

static void take_slot(struct order *o, int chunk)
{
	if (++o->live[chunk] > o->slots.live[chunk])
		o->slots.live[chunk] = o->live[chunk];
	if (++o->all > o->slots.most)
		o->slots.most = o->all;
}

static void free_slot(struct order *o, int chunk)
{
	o->live[chunk]--;
	o->all--;
}

static void forward(struct order *o, int chunk, int micro)
{
	int stage = layout_stage(o->of.layout, o->of.rank, chunk), before, after;
	bool reads = goes_on(o, stage, -1, &before), writes = goes_on(o, stage, 1, &after);
	if (reads && before < 0)
		put(o, SCHED_RECV_ACT, chunk, micro);
	put(o, SCHED_FORWARD, chunk, micro);
	if (writes && after < 0)
		put(o, SCHED_SEND_ACT, chunk, micro);
	take_slot(o, chunk);
	if (o->forwards_only && before >= 0)
		free_slot(o, before);
	if (o->forwards_only && after < 0)
		free_slot(o, chunk);
}

static void back(struct order *o, enum sched_op op, int chunk, int micro)
{
	int stage = layout_stage(o->of.layout, o->of.rank, chunk), before, after;
	bool writes = goes_on(o, stage, -1, &before), reads = goes_on(o, stage, 1, &after);
	if (reads && after < 0)
		put(o, SCHED_RECV_GRAD, chunk, micro);
	put(o, op, chunk, micro);
	if (writes && before < 0)
		put(o, SCHED_SEND_GRAD, chunk, micro);
}

static void backward(struct order *o, int chunk, int micro)
{
	back(o, SCHED_BACKWARD, chunk, micro);
	free_slot(o, chunk);
}

static void backward_weight(struct order *o, int chunk, int micro)
{
	put(o, SCHED_BACKWARD_WEIGHT, chunk, micro);
	free_slot(o, chunk);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* --- One chunk a rank --- */

/* `ahead` forwards, then one forward and one backward in turn, then the backwards that are left. */
static void take_turns(struct order *o, int ahead)
{
	int micros = o->of.micros;
	ahead = least(ahead, micros);
	for (int i = 0; i < ahead; i++)
		forward(o, 0, i);
	for (int i = ahead; i < micros; i++) {
		forward(o, 0, i);
		backward(o, 0, i - ahead);
	}
	for (int i = micros - ahead; i < micros; i++)
		backward(o, 0, i);
}

static void naive(struct order *o)
{
	take_turns(o, 0);
}

static void gpipe(struct order *o)
{
	take_turns(o, o->of.micros);
}

static void one_f_one_b(struct order *o)
{
	take_turns(o, o->of.layout->pp - 1 - o->of.rank);
}

/* 1f1b in halves: a rank's weight passes come as many micro-batches late as there are ranks before
 * it. So the gradients reach those sooner, and each rank keeps as much as the first one keeps under
 * 1f1b. */
static void zb_h1(struct order *o)
{
	int micros = o->of.micros, late = o->of.rank, weights = 0;
	int ahead = least(o->of.layout->pp - 1 - o->of.rank, micros);
	for (int i = 0; i < ahead; i++)
		forward(o, 0, i);
	for (int i = 0; i < micros; i++) {
		if (i + ahead < micros)
			forward(o, 0, i + ahead);
		back(o, SCHED_BACKWARD_INPUT, 0, i);
		if (i >= late)
			backward_weight(o, 0, weights++);
	}
	while (weights < micros)
		backward_weight(o, 0, weights++);
}

/* --- Interleaved --- */

/* Micro-batches are dealt into micros / pp groups (one at least) that differ by one at most, the
 * larger ones first. A group goes through all chunks before the next begins. */
static int groups_of(const struct order_of *of)
{
	return of->micros < of->layout->pp ? 1 : of->micros / of->layout->pp;
}

/* Pass k of a direction, of micros × chunks. */
static void interleaved_pass(const struct order_of *of, int k, int *turn, int *micro)
{
	int groups = groups_of(of), chunks = of->layout->chunks;
	int small = of->micros / groups, larger = of->micros % groups;
	int before = larger * (small + 1) * chunks; /* passes of the larger groups */
	int size = k < before ? small + 1 : small;
	int in = k < before ? k : k - before;
	int group = in / (size * chunks);
	*turn = in % (size * chunks) / size;
	*micro = (k < before ? 0 : larger * (small + 1)) + group * size + in % size;
}

static void interleaved_forward(struct order *o, int k)
{
	int turn, micro;
	interleaved_pass(&o->of, k, &turn, &micro);
	forward(o, turn, micro);
}

static void interleaved_backward(struct order *o, int k)
{
	int turn, micro;
	interleaved_pass(&o->of, k, &turn, &micro);
	backward(o, o->of.layout->chunks - 1 - turn, micro);
}

static void interleaved(struct order *o)
{
	int chunks = o->of.layout->chunks, passes = o->of.micros * chunks,
	    groups = groups_of(&o->of);
	int first = (o->of.micros + groups - 1) / groups; /* the size of the first group */
	int ahead = least((chunks - 1) * first + 2 * (o->of.layout->pp - 1 - o->of.rank), passes);
	for (int k = 0; k < ahead; k++)
		interleaved_forward(o, k);
	for (int k = 0; k < passes; k++) {
		if (k + ahead < passes)
			interleaved_forward(o, k + ahead);
		interleaved_backward(o, k);
	}
}

/* --- zb-v --- */

/* How far each kind of pass of a chunk has come. */
struct vee {
	struct order *o;
	int forwards[2], inputs[2], weights[2];
};

/* The rule is that of a long run; of a short one the passes of micro-batches that do not exist
 * are left out. */
static void vee_forward(struct vee *v, int chunk)
{
	int micro = v->forwards[chunk]++;
	if (micro < v->o->of.micros)
		forward(v->o, chunk, micro);
}

static void vee_input(struct vee *v, int chunk)
{
	int micro = v->inputs[chunk]++;
	if (micro < v->o->of.micros)
		back(v->o, SCHED_BACKWARD_INPUT, chunk, micro);
}

static void vee_weight(struct vee *v, int chunk)
{
	int micro = v->weights[chunk]++;
	if (micro < v->o->of.micros)
		backward_weight(v->o, chunk, micro);
}

static void vee_backward(struct vee *v, int chunk)
{
	vee_input(v, chunk);
	vee_weight(v, chunk);
}

static void zb_v(struct order *o)
{
	struct vee v = { .o = o };
	int pp = o->of.layout->pp, rank = o->of.rank;
	int micros = o->of.micros < 2 * pp - 1 ? 2 * pp - 1 : o->of.micros;
	/* Until the first micro-batch is back at this rank, then both ways in turn, then the
	 * first gradients. */
	for (int i = 0; i < 2 * (pp - rank) - 1; i++)
		vee_forward(&v, 0);
	for (int i = 0; i < rank; i++) {
		vee_forward(&v, 1);
		vee_forward(&v, 0);
	}
	for (int i = 0; i < pp - rank; i++) {
		vee_forward(&v, 1);
		vee_backward(&v, 1);
	}
	while (v.forwards[1] < micros) {
		vee_backward(&v, 0);
		if (v.forwards[0] < micros)
			vee_forward(&v, 0);
		vee_forward(&v, 1);
		vee_backward(&v, 1);
	}
	/* Gradients first as long as other ranks wait for them. */
	for (int i = 0; i < rank; i++) {
		vee_input(&v, 0);
		vee_input(&v, 1);
	}
	for (int i = 0; i < pp - rank; i++)
		vee_backward(&v, 0);
	while (v.weights[1] < micros)
		vee_weight(&v, 1);
	while (v.weights[0] < micros)
		vee_weight(&v, 0);
}

/* --- The table of schedules --- */

static const struct rule {
	void (*list)(struct order *o);
	bool splits;
	int chunks_least, chunks_most;
} rules[] = {
	[SCHEDULE_1F1B] = { one_f_one_b, false, 1, 1 },
	[SCHEDULE_GPIPE] = { gpipe, false, 1, 1 },
	[SCHEDULE_NAIVE] = { naive, false, 1, 1 },
	[SCHEDULE_INTERLEAVED] = { interleaved, false, 2, LAYOUT_CHUNKS_MOST },
	[SCHEDULE_ZB_H1] = { zb_h1, true, 1, 1 },
	[SCHEDULE_ZB_V] = { zb_v, true, 2, 2 },
};

bool schedule_known(enum job_schedule kind)
{
	return (unsigned)kind < sizeof rules / sizeof *rules;
}

bool schedule_splits(enum job_schedule kind)
{
	return rules[kind].splits;
}

void schedule_chunks(enum job_schedule kind, int *fewest, int *most)
{
	*fewest = rules[kind].chunks_least;
	*most = rules[kind].chunks_most;
}

void schedule_order_list(enum job_schedule kind, struct order *o)
{
	rules[kind].list(o);
	put(o, SCHED_REDUCE, -1, -1);
}

/* The V's ranks take both ways in turn: stage s has micro-batch i at time 2 i + s, which falls into
 * even times on one chunk and into odd ones on the other. */
static void vee_forwards(struct order *o)
{
	int first = layout_stage(o->of.layout, o->of.rank, 0),
	    second = layout_stage(o->of.layout, o->of.rank, 1);
	for (int i = 0, j = 0; j < o->of.micros;)
		if (i < o->of.micros && 2 * i + first < 2 * j + second)
			forward(o, 0, i++);
		else
			forward(o, 1, j++);
}

void schedule_order_list_forwards(struct order *o)
{
	o->forwards_only = true;
	if (o->of.layout->vee)
		vee_forwards(o);
	else
		for (int k = 0; k < o->of.micros * o->of.layout->chunks; k++)
			interleaved_forward(o, k);
}
