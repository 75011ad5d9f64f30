/* Simulates a table: whether it runs to its end, and the time it takes. */
#include "plan/spec/schedule/simulate.h"

#include "plan/spec/schedule/timeline.h"

#include <stdlib.h>

/* Messages in flight from one rank to a neighbour, in the order of their sends: stage, micro-batch
 * and the time of the send. */
struct channel {
	struct message {
		int stage, micro;
		double sent;
	} * queue;
	int head, tail;
};

/* A rank's outgoing channels: for activations and for gradients, to the next rank and to the
 * previous one. The ranks form a ring, because an interleaved pipeline goes from the last rank to
 * the first. In a pipeline of two ranks each is the next one of the other. */
enum { ACT_NEXT, ACT_PREV, GRAD_NEXT, GRAD_PREV, CHANNELS };

struct simulation {
	const struct schedule *s;
	const struct sched_costs *costs;
	struct timeline *timeline;
	struct channel *out;  /* [pp][CHANNELS] */
	int *at;              /* [pp]: the next step of each rank */
	double *clock, *busy; /* [pp] */
	bool no_memory;
};

static void simulation_fini(struct simulation *w)
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
	/* the V's second chunk, and pipelines of two ranks */
	bool other_way = kind == ACT_PREV || kind == GRAD_NEXT;
	return !(gradients && s->forwards_only) &&
	       (!other_way || s->layout.vee || s->layout.pp == 2);
}

static bool simulation_init(struct simulation *w, const struct schedule *s,
			    const struct sched_costs *costs)
{
	size_t n = (size_t)s->layout.pp;
	*w = (struct simulation){
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
		/* A row sends at most as often as it has steps. */
		w->out[i].queue = calloc((size_t)s->rows[i / CHANNELS].n + 1,
					 sizeof *w->out[i].queue);
		if (!w->out[i].queue)
			return false;
	}
	return true;
}

/* The channel from the rank that holds stage `from` to the one that holds `to`. */
static struct channel *channel_of(struct simulation *w, int from, int to)
{
	int a, b, chunk, pp = w->s->layout.pp;
	layout_holder(&w->s->layout, from, &a, &chunk);
	layout_holder(&w->s->layout, to, &b, &chunk);
	bool next = b == (a + 1) % pp;
	return &w->out[a * CHANNELS +
		       (to > from ? (next ? ACT_NEXT : ACT_PREV) : (next ? GRAD_NEXT : GRAD_PREV))];
}

static void send_message(struct simulation *w, int rank, int from, int to, int micro)
{
	struct channel *c = channel_of(w, from, to);
	c->queue[c->tail++] = (struct message){ to, micro, w->clock[rank] };
}

static bool receive_message(struct simulation *w, int rank, int from, int to, int micro)
{
	struct channel *c = channel_of(w, from, to);
	if (c->head == c->tail || c->queue[c->head].stage != to || c->queue[c->head].micro != micro)
		return false;
	double arrival = c->queue[c->head++].sent + w->costs->hop;
	if (w->clock[rank] < arrival)
		w->clock[rank] = arrival;
	return true;
}

static double pass_seconds(const struct sched_costs *c, enum sched_op op, int stage)
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

static void end_pass(struct simulation *w, int rank, const struct sched_step *step, double begin,
		     double end)
{
	w->clock[rank] = end;
	w->busy[rank] += end - begin;
	if (w->timeline &&
	    timeline_add(w->timeline, &(struct timeline_event){ rank, step->op, step->chunk,
								step->micro, begin, end }))
		w->no_memory = true;
}

static const struct sched_step *next_step(const struct simulation *w, int rank, int *stage)
{
	const struct sched_step *step = &w->s->rows[rank].steps[w->at[rank]];
	*stage = step->op == SCHED_REDUCE ? -1 : layout_stage(&w->s->layout, rank, step->chunk);
	return step;
}

/* Runs the next step of a rank if it is a message or REDUCE and can run now. */
static bool run_message(struct simulation *w, int rank, const struct sched_step *step, int stage)
{
	switch (step->op) {
	case SCHED_RECV_ACT:
		if (!receive_message(w, rank, stage - 1, stage, step->micro))
			return false;
		break;
	case SCHED_RECV_GRAD:
		if (!receive_message(w, rank, stage + 1, stage, step->micro))
			return false;
		break;
	case SCHED_SEND_ACT:
		send_message(w, rank, stage, stage + 1, step->micro);
		break;
	case SCHED_SEND_GRAD:
		send_message(w, rank, stage, stage - 1, step->micro);
		break;
	case SCHED_REDUCE:
		break;
	default:
		return false;
	}
	w->at[rank]++;
	return true;
}

static bool is_pass(enum sched_op op)
{
	return op == SCHED_FORWARD || op == SCHED_BACKWARD || op == SCHED_BACKWARD_INPUT ||
	       op == SCHED_BACKWARD_WEIGHT;
}

static bool run_step(struct simulation *w, int rank)
{
	int stage;
	const struct sched_step *step = next_step(w, rank, &stage);
	if (!is_pass(step->op))
		return run_message(w, rank, step, stage);
	double begin = w->clock[rank];
	end_pass(w, rank, step, begin, begin + pass_seconds(w->costs, step->op, stage));
	w->at[rank]++;
	return true;
}

/* Runs steps until none can run. Returns the first rank that has not ended, -1 if all have. */
static int run_all_ranks(struct simulation *w)
{
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < w->s->layout.pp; i++)
			while (w->at[i] < w->s->rows[i].n && run_step(w, i))
				moved = true;
	}
	for (int i = 0; i < w->s->layout.pp; i++)
		if (w->at[i] < w->s->rows[i].n)
			return i;
	return -1;
}

/* --- Ranks that share cores: one clock for all ------------------------------ */

struct sharing {
	double now;
	/* [pp] seconds that the rank's pass still takes if it runs alone; 0: it is in no pass */
	double *left;
	double *began; /* [pp] when the rank's pass began */
	/* [pp] when the message that the rank waits for arrives; 0: it was not sent yet */
	double *wake;
	double *rate; /* [pp] speed of the rank's pass; 1: as if alone */
};

/* Runs what a rank can do now, up to and including the start of a pass. Returns whether it did
 * anything. */
static bool run_until_pass(struct simulation *w, struct sharing *h, int rank)
{
	bool moved = false;
	while (w->at[rank] < w->s->rows[rank].n && !(h->left[rank] > 0) &&
	       !(h->wake[rank] > h->now)) {
		int stage;
		const struct sched_step *step = next_step(w, rank, &stage);
		h->wake[rank] = 0;
		w->clock[rank] = h->now;
		if (!is_pass(step->op)) {
			if (!run_message(w, rank, step, stage))
				break;
			h->wake[rank] = w->clock[rank];
		} else {
			h->began[rank] = h->now;
			h->left[rank] = pass_seconds(w->costs, step->op, stage);
			if (!(h->left[rank] > 0)) {
				end_pass(w, rank, step, h->now, h->now);
				w->at[rank]++;
			}
		}
		moved = true;
	}
	return moved;
}

static void set_rates(const struct simulation *w, struct sharing *h)
{
	int pp = w->s->layout.pp, node_ranks = w->costs->node_ranks > 0 ? w->costs->node_ranks : pp;
	for (int first = 0; first < pp; first += node_ranks) {
		double load = 0;
		for (int i = first; i < first + node_ranks && i < pp; i++)
			load += h->left[i] > 0 ? w->costs->load : 0;
		for (int i = first; i < first + node_ranks && i < pp; i++)
			h->rate[i] = load > 1 ? 1 / load : 1;
	}
}

/* Seconds to the next end of a pass or arrival of a message; -1: none comes. */
static double time_to_next_event(const struct simulation *w, const struct sharing *h)
{
	double least = -1;
	for (int i = 0; i < w->s->layout.pp; i++) {
		double until = h->left[i] > 0 ? h->left[i] / h->rate[i] : h->wake[i] - h->now;
		if (until > 0 && (least < 0 || until < least))
			least = until;
	}
	return least;
}

static bool advance_time(struct simulation *w, struct sharing *h)
{
	set_rates(w, h);
	double seconds = time_to_next_event(w, h);
	if (seconds < 0)
		return false;
	h->now += seconds;
	for (int i = 0; i < w->s->layout.pp; i++) {
		int stage;
		if (!(h->left[i] > 0))
			continue;
		h->left[i] -= seconds * h->rate[i];
		if (h->left[i] > 1e-9 * seconds)
			continue;
		h->left[i] = 0;
		end_pass(w, i, next_step(w, i, &stage), h->began[i], h->now);
		w->at[i]++;
	}
	return true;
}

static bool run_sharing_cores(struct simulation *w)
{
	size_t n = (size_t)w->s->layout.pp;
	double *room = calloc(4 * n, sizeof *room);
	struct sharing h = {
		.left = room, .began = room + n, .wake = room + 2 * n, .rate = room + 3 * n
	};
	bool done = room != NULL;
	if (done) {
		do {
			for (bool moved = true; moved;) {
				moved = false;
				for (int i = 0; i < (int)n; i++)
					moved |= run_until_pass(w, &h, i);
			}
		} while (advance_time(w, &h));
	}
	for (size_t i = 0; i < n; i++)
		done = done && w->at[i] == w->s->rows[i].n;
	free(room);
	return done;
}

double schedule_simulate(const struct schedule *s, const struct sched_costs *c,
			 struct timeline *timeline, double *idle)
{
	struct simulation w;
	double end = -1;
	bool ready = simulation_init(&w, s, c);
	w.timeline = timeline;
	if (timeline) {
		timeline->ranks = s->layout.pp;
		timeline->chunks = s->layout.chunks;
	}
	if (ready && (c->load > 0 ? run_sharing_cores(&w) : run_all_ranks(&w) < 0) &&
	    !w.no_memory) {
		double busy = 0;
		end = 0;
		for (int i = 0; i < s->layout.pp; i++) {
			busy += w.busy[i];
			if (w.clock[i] > end)
				end = w.clock[i];
		}
		if (idle)
			*idle = end > 0 ? 1 - busy / (end * s->layout.pp) : 0;
	}
	simulation_fini(&w);
	return end;
}

int schedule_find_stuck(const struct schedule *s, int *at)
{
	struct simulation w;
	int stuck = -2;
	double *none = calloc((size_t)layout_n_stages(&s->layout), sizeof *none);
	struct sched_costs costs = { .forward = none, .input = none, .weight = none };
	if (simulation_init(&w, s, &costs) && none) {
		stuck = run_all_ranks(&w);
		*at = stuck < 0 ? -1 : w.at[stuck];
	}
	simulation_fini(&w);
	free(none);
	return stuck;
}
