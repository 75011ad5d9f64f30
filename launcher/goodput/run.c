/* run: the faults of a simulated run, and what follows from each. */
#include "launcher/goodput/run_inner.h"

#include <math.h>
#include <stdlib.h>

static const struct {
	const char *name, *doc;
} parts[] = {
#define PART_ROW(id, name, doc) [GOODPUT_##id] = { name, doc },
	GOODPUT_PARTS(PART_ROW)
#undef PART_ROW
};

const char *goodput_part_name(enum goodput_part p)
{
	return parts[p].name;
}

const char *goodput_part_doc(enum goodput_part p)
{
	return parts[p].doc;
}

double goodput_effective(const struct goodput_result *r)
{
	return r->seconds > 0 ? r->parts[GOODPUT_TRAINED] / r->seconds : 0;
}

/* --- The faults ----------------------------------------------------------------------------- */

static const struct goodput_fault *fault_of(const struct run *r)
{
	return &r->s->faults->of[r->next.kind];
}

static int draw_kind(struct run *r, double rate)
{
	const struct goodput_faults *f = r->s->faults;
	double at = simulate_random_unit(&r->dice) * rate;
	int kind = 0;
	while (kind < f->n - 1 && at >= f->of[kind].rate)
		at -= f->of[kind++].rate;
	return kind;
}

/* The next fault of a node that works. Those of nodes that do not are left out here, so that the others come
 * at the same times. */
static void draw_fault(struct run *r)
{
	double rate = goodput_faults_rate(r->s->faults);
	do {
		if (!(rate > 0) || r->out->all_faults == GOODPUT_FAULTS_MOST) {
			r->out->endless = rate > 0;
			r->next.at = INFINITY;
			return;
		}
		r->next.at += simulate_random_wait(&r->dice, 1 / (rate * r->s->nodes));
		r->next.kind = draw_kind(r, rate);
		r->next.node = simulate_random_below(&r->dice, r->s->nodes);
	} while (r->next.node >= goodput_nodes_used(r));
}

static void count_fault(struct run *r)
{
	r->out->faults[r->next.kind]++;
	r->out->all_faults++;
}

/* --- Time that is not trained --------------------------------------------------------------- */

static double end_of(const struct run *r)
{
	return r->s->seconds > 0 ? r->s->seconds : INFINITY;
}

static bool is_over(const struct run *r)
{
	return r->out->endless || r->now >= end_of(r) ||
	       (r->s->seconds <= 0 && r->step >= r->s->steps);
}

static double add(struct run *r, enum goodput_part part, double seconds)
{
	r->out->parts[part] += seconds;
	r->now += seconds;
	return seconds;
}

/* Nothing runs meanwhile, so faults change nothing. */
static void pass(struct run *r, enum goodput_part part, double seconds)
{
	double some = fmin(seconds, end_of(r) - r->now);
	if (isinf(some)) {
		r->out->endless = true;
		return;
	}
	add(r, part, some);
	while (r->next.at < r->now) {
		count_fault(r);
		draw_fault(r);
	}
}

/* These end a recovery, which then begins again. */
static bool interrupts(enum goodput_shows s)
{
	return s == SHOWS_CLOSED || s == SHOWS_SILENT || s == SHOWS_HANG;
}

/* False: a fault has come that interrupts. Others change nothing meanwhile. */
static bool spend(struct run *r, enum goodput_part part, double seconds)
{
	for (;;) {
		double until = fmin(r->next.at, end_of(r));
		if (isinf(seconds) && isinf(until)) {
			r->out->endless = true;
			return true;
		}
		seconds -= add(r, part, fmax(0, fmin(seconds, until - r->now)));
		if (seconds <= 0 || r->now >= end_of(r))
			return true;
		if (interrupts(fault_of(r)->shows))
			return false;
		count_fault(r);
		draw_fault(r);
	}
}

/* --- A loss --------------------------------------------------------------------------------- */

/* What is to be done before training goes on. */
struct recovery {
	enum goodput_shows shows;
	bool elsewhere; /* ranks start on another node */
	bool all;       /* all processes start */
	bool by_hand;
};

/* The copies of a node's state are on itself and on the next one. */
static void lose_copies(struct run *r, int node)
{
	int nodes = r->s->nodes, last = r->exposed;
	bool both = last >= 0 && (node == (last + 1) % nodes || (node + 1) % nodes == last);
	if (nodes < 2 || both)
		r->copied = 0;
	r->exposed = node;
}

/* Without a node to take, the run waits for the first one that returns. */
static void replace_node(struct run *r, struct recovery *todo)
{
	int how = goodput_node_replace(r);
	todo->elsewhere |= how > 0;
	if (how >= 0)
		return;
	double wait = goodput_node_returns(r) - r->now;
	r->out->waited++;
	todo->by_hand |= wait > r->s->rules.patience;
	pass(r, GOODPUT_WAIT, wait);
	goodput_nodes_take(r);
	todo->elsewhere |= goodput_node_replace(r) > 0;
}

/* The fault of r->next happens now. */
static void lose(struct run *r, struct recovery *todo)
{
	const struct goodput_fault *f = fault_of(r);
	int node = r->next.node;
	count_fault(r);
	draw_fault(r);
	todo->shows = f->shows;
	lose_copies(r, node);
	if (f->shows == SHOWS_NUMBERS) /* they may hold wrong numbers, too */
		r->copied = 0;
	r->out->restarts++;
	r->losses++;
	todo->by_hand |= r->s->rules.restarts >= 0 && r->losses > r->s->rules.restarts;
	goodput_nodes_take(r);
	if (f->node_out > 0) {
		goodput_node_leaves(r, f->node_out);
		replace_node(r, todo);
	}
}

static double detection(const struct goodput_costs *c, enum goodput_shows shows)
{
	return shows == SHOWS_SILENT    ? c->silent
	       : shows == SHOWS_HANG    ? c->hang
	       : shows == SHOWS_NUMBERS ? c->numbers
					: c->closed;
}

static void call_person(struct run *r, struct recovery *todo)
{
	pass(r, GOODPUT_PERSON, r->s->costs.person);
	r->out->people++;
	r->losses = 0;
	todo->by_hand = false;
	todo->all = true;
}

/* False: another fault has come meanwhile. */
static bool restart(struct run *r, struct recovery *todo)
{
	const struct goodput_costs *c = &r->s->costs;
	/* What is computed until wrong numbers are found counts for nothing. */
	if (!spend(r, todo->shows == SHOWS_NUMBERS ? GOODPUT_LOST : GOODPUT_DETECT,
		   detection(c, todo->shows)))
		return false;
	if (todo->by_hand)
		call_person(r, todo);
	todo->all |= !r->s->rules.warm;
	if (todo->all && !r->s->rules.keeps)
		r->copied = 0;
	return spend(r, GOODPUT_RESTART,
		     c->end + c->respawn + (r->copied > r->saved ? c->recall : c->load) +
			     (todo->elsewhere ? c->replace : 0) + (todo->all ? c->start : 0));
}

static void recover(struct run *r)
{
	struct recovery todo = { 0 };
	double since = r->now;
	do {
		lose(r, &todo);
	} while (!restart(r, &todo) && !is_over(r));
	bool copies = r->copied > r->saved;
	r->out->from_copies += copies;
	r->out->longest = fmax(r->out->longest, r->now - since);
	goodput_go_back(r, copies ? r->copied : r->saved);
}

/* --- Moves, which lose no step --------------------------------------------------------------- */

/* The run goes on from a checkpoint of this step. */
static void move(struct run *r, enum goodput_part part, double seconds)
{
	const struct goodput_costs *c = &r->s->costs;
	r->saved = r->step;
	r->copied = 0;
	r->exposed = -1;
	if (!spend(r, part, seconds + c->respawn + c->load))
		recover(r);
}

static void stop_as_planned(struct run *r)
{
	const struct goodput_costs *c = &r->s->costs;
	count_fault(r);
	draw_fault(r);
	move(r, GOODPUT_START, c->snapshot + c->write + c->start);
}

static void become_slow(struct run *r)
{
	bool leaves = r->s->rules.leaves_slow;
	double out = fault_of(r)->node_out;
	count_fault(r);
	draw_fault(r);
	r->slow_until = r->now + (leaves ? r->s->costs.slow : out);
	r->slowed_out = leaves ? out : 0;
}

static void leave_slow_node(struct run *r)
{
	struct recovery todo = { 0 };
	if (r->slowed_out > 0) {
		goodput_node_leaves(r, r->slowed_out);
		replace_node(r, &todo);
		move(r, GOODPUT_RESTART, r->s->costs.end + r->s->costs.replace);
	}
	r->slow_until = r->slowed_out = 0;
}

static void meet_fault(struct run *r)
{
	switch (fault_of(r)->shows) {
	case SHOWS_PLANNED:
		stop_as_planned(r);
		break;
	case SHOWS_SLOW:
		become_slow(r);
		break;
	case SHOWS_CLOSED:
	case SHOWS_SILENT:
	case SHOWS_HANG:
	case SHOWS_NUMBERS:
	case SHOWS_COUNT:
		recover(r);
		break;
	}
}

/* --- The run -------------------------------------------------------------------------------- */

/* Trains until something happens, and does what follows from it. */
static void go_on(struct run *r)
{
	double slow = r->slow_until > 0 ? r->slow_until : INFINITY,
	       back = r->left_out ? goodput_node_returns(r) : INFINITY,
	       next = fmin(fmin(slow, back), r->next.at);
	goodput_train(r, fmin(fmin(next, end_of(r)), goodput_train_end(r)));
	goodput_nodes_take(r);
	if (is_over(r))
		return;
	if (r->now >= r->next.at)
		meet_fault(r);
	else if (r->now >= slow)
		leave_slow_node(r);
	else if (goodput_nodes_regrow(r))
		move(r, GOODPUT_RESTART, r->s->costs.end + r->s->costs.replace);
}

void goodput_run(const struct goodput_setup *s, uint64_t seed, struct goodput_result *out)
{
	struct run *r = calloc(1, sizeof *r);
	*out = (struct goodput_result){ .endless = !r };
	if (!r)
		return;
	*r = (struct run){ .s = s, .out = out, .free = s->spares, .exposed = -1 };
	simulate_random_init(&r->dice, seed, STREAM_FAULTS);
	draw_fault(r);
	pass(r, GOODPUT_START, s->costs.start + s->costs.respawn);
	while (!is_over(r))
		go_on(r);
	out->seconds = r->now;
	out->steps = r->step;
	free(r);
}
