/*
 * Walking a table on paper: whether it comes to its end, and the time it takes.
 */
#include "plan/spec/schedule/run.h"

#include "plan/spec/schedule/timeline.h"

#include <stdlib.h>

/* Messages in flight from one rank to a neighbour: stage and micro-batch in the order of their
 * sends, and when each was sent. */
struct channel {
	struct message {
		int stage, micro;
		double sent;
	} * queue;
	int head, tail;
};

/* A rank's outgoing channels: of activations and gradients, to the rank after it and to the one
 * before it (the ranks lie in a ring: an interleaved pipeline goes from the last to the first). Of
 * two ranks each has the other after it. */
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
	/* the V's way back, and two ranks */
	bool other_way = kind == ACT_PREV || kind == GRAD_NEXT;
	return !(gradients && s->forwards_only) &&
	       (!other_way || s->layout.vee || s->layout.pp == 2);
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
		w->out[i].queue = calloc((size_t)s->rows[i / CHANNELS].n + 1,
					 sizeof *w->out[i].queue);
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
	return &w->out[a * CHANNELS +
		       (to > from ? (next ? ACT_NEXT : ACT_PREV) : (next ? GRAD_NEXT : GRAD_PREV))];
}

static void send(struct walk *w, int rank, int from, int to, int micro)
{
	struct channel *c = channel_of(w, from, to);
	c->queue[c->tail++] = (struct message){ to, micro, w->clock[rank] };
}

static bool pipeline_receive(struct walk *w, int rank, int from, int to, int micro)
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

static void ran(struct walk *w, int rank, const struct sched_step *step, double begin, double end)
{
	w->clock[rank] = end;
	w->busy[rank] += end - begin;
	if (w->timeline &&
	    timeline_add(w->timeline, &(struct timeline_event){ rank, step->op, step->chunk,
								step->micro, begin, end }))
		w->no_memory = true;
}

static const struct sched_step *next_step(const struct walk *w, int rank, int *stage)
{
	const struct sched_step *step = &w->s->rows[rank].steps[w->at[rank]];
	*stage = step->op == SCHED_REDUCE ? -1 : layout_stage(&w->s->layout, rank, step->chunk);
	return step;
}

/* Runs the next step of a rank if it is none that computes and can run now. */
static bool pass_on(struct walk *w, int rank, const struct sched_step *step, int stage)
{
	switch (step->op) {
	case SCHED_RECV_ACT:
		if (!pipeline_receive(w, rank, stage - 1, stage, step->micro))
			return false;
		break;
	case SCHED_RECV_GRAD:
		if (!pipeline_receive(w, rank, stage + 1, stage, step->micro))
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
		return false;
	}
	w->at[rank]++;
	return true;
}

static bool computes(enum sched_op op)
{
	return op == SCHED_FORWARD || op == SCHED_BACKWARD || op == SCHED_BACKWARD_INPUT ||
	       op == SCHED_BACKWARD_WEIGHT;
}

static bool walk_step(struct walk *w, int rank)
{
	int stage;
	const struct sched_step *step = next_step(w, rank, &stage);
	if (!computes(step->op))
		return pass_on(w, rank, step, stage);
	double begin = w->clock[rank];
	ran(w, rank, step, begin, begin + seconds_of(w->costs, step->op, stage));
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

/* --- Ranks that share cores: all clocks go together --- */

struct sharing {
	double now;
	double *left;  /* [pp] of the pass that a rank is in, as if alone; 0: in none */
	double *begun; /* [pp] */
	/* [pp] when the message that it waits for will have come; 0: it is not on its way */
	double *wake;
	double *slowest_replica; /* [pp] of the passes on its node, of 1 */
};

/* All that a rank can do now, up to a pass. Whether it did anything. */
static bool run_to_pass(struct walk *w, struct sharing *h, int rank)
{
	bool moved = false;
	while (w->at[rank] < w->s->rows[rank].n && !(h->left[rank] > 0) &&
	       !(h->wake[rank] > h->now)) {
		int stage;
		const struct sched_step *step = next_step(w, rank, &stage);
		h->wake[rank] = 0;
		w->clock[rank] = h->now;
		if (!computes(step->op)) {
			if (!pass_on(w, rank, step, stage))
				break;
			h->wake[rank] = w->clock[rank];
		} else {
			h->begun[rank] = h->now;
			h->left[rank] = seconds_of(w->costs, step->op, stage);
			if (!(h->left[rank] > 0)) {
				ran(w, rank, step, h->now, h->now);
				w->at[rank]++;
			}
		}
		moved = true;
	}
	return moved;
}

static void set_paces(const struct walk *w, struct sharing *h)
{
	int pp = w->s->layout.pp, node_replicas = w->costs->node_replicas > 0 ? w->costs->node_replicas : pp;
	for (int first = 0; first < pp; first += node_replicas) {
		double load = 0;
		for (int i = first; i < first + node_replicas && i < pp; i++)
			load += h->left[i] > 0 ? w->costs->load : 0;
		for (int i = first; i < first + node_replicas && i < pp; i++)
			h->slowest_replica[i] = load > 1 ? 1 / load : 1;
	}
}

/* Seconds to the next end of a pass or arrival of a message; -1: there is none. */
static double next_event(const struct walk *w, const struct sharing *h)
{
	double least = -1;
	for (int i = 0; i < w->s->layout.pp; i++) {
		double until = h->left[i] > 0 ? h->left[i] / h->slowest_replica[i] : h->wake[i] - h->now;
		if (until > 0 && (least < 0 || until < least))
			least = until;
	}
	return least;
}

static bool advance(struct walk *w, struct sharing *h)
{
	set_paces(w, h);
	double seconds = next_event(w, h);
	if (seconds < 0)
		return false;
	h->now += seconds;
	for (int i = 0; i < w->s->layout.pp; i++) {
		int stage;
		if (!(h->left[i] > 0))
			continue;
		h->left[i] -= seconds * h->slowest_replica[i];
		if (h->left[i] > 1e-9 * seconds)
			continue;
		h->left[i] = 0;
		ran(w, i, next_step(w, i, &stage), h->begun[i], h->now);
		w->at[i]++;
	}
	return true;
}

static bool walk_shared(struct walk *w)
{
	size_t n = (size_t)w->s->layout.pp;
	double *room = calloc(4 * n, sizeof *room);
	struct sharing h = {
		.left = room, .begun = room + n, .wake = room + 2 * n, .slowest_replica = room + 3 * n
	};
	bool done = room != NULL;
	if (done) {
		do {
			for (bool moved = true; moved;) {
				moved = false;
				for (int i = 0; i < (int)n; i++)
					moved |= run_to_pass(w, &h, i);
			}
		} while (advance(w, &h));
	}
	for (size_t i = 0; i < n; i++)
		done = done && w->at[i] == w->s->rows[i].n;
	free(room);
	return done;
}

double schedule_simulate(const struct schedule *s, const struct sched_costs *c,
			 struct timeline *timeline, double *bubble)
{
	struct walk w;
	double end = -1;
	bool ready = walk_init(&w, s, c);
	w.timeline = timeline;
	if (timeline) {
		timeline->ranks = s->layout.pp;
		timeline->chunks = s->layout.chunks;
	}
	if (ready && (c->load > 0 ? walk_shared(&w) : walk_all(&w) < 0) && !w.no_memory) {
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
	struct sched_costs costs = { .forward = none, .input = none, .weight = none };
	if (walk_init(&w, s, &costs) && none) {
		stuck = walk_all(&w);
		*at = stuck < 0 ? -1 : w.at[stuck];
	}
	walk_fini(&w);
	free(none);
	return stuck;
}
