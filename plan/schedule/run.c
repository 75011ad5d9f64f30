/*
 * Walking a table on paper: whether it comes to its end, and the time it takes.
 */
#include "plan/schedule/run.h"

#include "plan/schedule/timeline.h"

#include <stdlib.h>

/* Messages in flight from one rank to a neighbour: stage and micro-batch in the order of their sends, and when each was sent. */
struct channel {
	struct message { int stage, micro; double sent; } *queue;
	int head, tail;
};

/* A rank's outgoing channels: of activations and gradients, to the rank after it and to the one before it (the ranks lie in a ring:
 * an interleaved pipeline goes from the last to the first). Of two ranks each has the other after it. */
enum { ACT_NEXT, ACT_PREV, GRAD_NEXT, GRAD_PREV, CHANNELS };

struct walk {
	const struct schedule *s;
	const struct sched_costs *costs;
	struct timeline *timeline;
	struct channel *out;  /* [pp][CHANNELS] */
	int *at;              /* [pp]: the next step of each */
	double *clock, *busy; /* [pp] */
	bool no_memory;
};

static void walk_fini(struct walk *w)
{
	for (int i = 0; w->out && i < w->s->layout.pp * CHANNELS; i++)
		free(w->out[i].queue);
	free(w->out);
	free(w->at);
	free(w->clock);
	free(w->busy);
}

static bool channel_needed(const struct schedule *s, int kind)
{
	bool gradients = kind == GRAD_NEXT || kind == GRAD_PREV;
	bool other_way = kind == ACT_PREV || kind == GRAD_NEXT; /* the V's way back, and two ranks */
	return !(gradients && s->forwards_only) && (!other_way || s->layout.vee || s->layout.pp == 2);
}

static bool walk_init(struct walk *w, const struct schedule *s, const struct sched_costs *costs)
{
	size_t n = (size_t)s->layout.pp;
	*w = (struct walk){
		.s = s,
		.costs = costs,
		.out = calloc(n * CHANNELS, sizeof *w->out),
		.at = calloc(n, sizeof *w->at),
		.clock = calloc(n, sizeof *w->clock),
		.busy = calloc(n, sizeof *w->busy),
	};
	if (!w->out || !w->at || !w->clock || !w->busy)
		return false;
	for (int i = 0; i < s->layout.pp * CHANNELS; i++) {
		if (!channel_needed(s, i % CHANNELS))
			continue;
		/* A row may send at most as often as it has steps. */
		w->out[i].queue = calloc((size_t)s->rows[i / CHANNELS].n + 1, sizeof *w->out[i].queue);
		if (!w->out[i].queue)
			return false;
	}
	return true;
}

/* The channel from the rank that holds stage `from` to the one that holds `to`. */
static struct channel *channel_of(struct walk *w, int from, int to)
{
	int a, b, chunk, pp = w->s->layout.pp;
	layout_holder(&w->s->layout, from, &a, &chunk);
	layout_holder(&w->s->layout, to, &b, &chunk);
	bool next = b == (a + 1) % pp;
	return &w->out[a * CHANNELS + (to > from ? (next ? ACT_NEXT : ACT_PREV) : (next ? GRAD_NEXT : GRAD_PREV))];
}

static void send(struct walk *w, int rank, int from, int to, int micro)
{
	struct channel *c = channel_of(w, from, to);
	c->queue[c->tail++] = (struct message){ to, micro, w->clock[rank] };
}

static bool receive(struct walk *w, int rank, int from, int to, int micro)
{
	struct channel *c = channel_of(w, from, to);
	if (c->head == c->tail || c->queue[c->head].stage != to || c->queue[c->head].micro != micro)
		return false;
	double arrival = c->queue[c->head++].sent + w->costs->hop;
	if (w->clock[rank] < arrival)
		w->clock[rank] = arrival;
	return true;
}

static double seconds_of(const struct sched_costs *c, enum sched_op op, int stage)
{
	switch (op) {
	case SCHED_FORWARD:
		return c->forward[stage];
	case SCHED_BACKWARD:
		return c->input[stage] + c->weight[stage];
	case SCHED_BACKWARD_INPUT:
		return c->input[stage];
	default:
		return c->weight[stage];
	}
}

static void pass(struct walk *w, int rank, const struct sched_step *step, int stage)
{
	double begin = w->clock[rank], work = seconds_of(w->costs, step->op, stage);
	w->clock[rank] += work;
	w->busy[rank] += work;
	if (w->timeline && timeline_add(w->timeline, &(struct timeline_event){ rank, step->op, step->chunk, step->micro, begin, begin + work }))
		w->no_memory = true;
}

/* Runs the next step of a rank if it can run now. */
static bool walk_step(struct walk *w, int rank)
{
	const struct sched_step *step = &w->s->rows[rank].steps[w->at[rank]];
	int stage = step->op == SCHED_REDUCE ? -1 : layout_stage(&w->s->layout, rank, step->chunk);
	switch (step->op) {
	case SCHED_RECV_ACT:
		if (!receive(w, rank, stage - 1, stage, step->micro))
			return false;
		break;
	case SCHED_RECV_GRAD:
		if (!receive(w, rank, stage + 1, stage, step->micro))
			return false;
		break;
	case SCHED_SEND_ACT:
		send(w, rank, stage, stage + 1, step->micro);
		break;
	case SCHED_SEND_GRAD:
		send(w, rank, stage, stage - 1, step->micro);
		break;
	case SCHED_REDUCE:
		break;
	default:
		pass(w, rank, step, stage);
	}
	w->at[rank]++;
	return true;
}

/* Until nothing moves. Returns the first rank that has not ended, -1 when all have. */
static int walk_all(struct walk *w)
{
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < w->s->layout.pp; i++)
			while (w->at[i] < w->s->rows[i].n && walk_step(w, i))
				moved = true;
	}
	for (int i = 0; i < w->s->layout.pp; i++)
		if (w->at[i] < w->s->rows[i].n)
			return i;
	return -1;
}

double schedule_simulate(const struct schedule *s, const struct sched_costs *c, struct timeline *timeline, double *bubble)
{
	struct walk w;
	double end = -1;
	bool ready = walk_init(&w, s, c);
	w.timeline = timeline;
	if (timeline) {
		timeline->ranks = s->layout.pp;
		timeline->chunks = s->layout.chunks;
	}
	if (ready && walk_all(&w) < 0 && !w.no_memory) {
		double busy = 0;
		end = 0;
		for (int i = 0; i < s->layout.pp; i++) {
			busy += w.busy[i];
			if (w.clock[i] > end)
				end = w.clock[i];
		}
		if (bubble)
			*bubble = end > 0 ? 1 - busy / (end * s->layout.pp) : 0;
	}
	walk_fini(&w);
	return end;
}

int schedule_stuck(const struct schedule *s, int *at)
{
	struct walk w;
	int stuck = -2;
	double *none = calloc((size_t)layout_n_stages(&s->layout), sizeof *none);
	struct sched_costs costs = { none, none, none, 0 };
	if (walk_init(&w, s, &costs) && none) {
		stuck = walk_all(&w);
		*at = stuck < 0 ? -1 : w.at[stuck];
	}
	walk_fini(&w);
	free(none);
	return stuck;
}
