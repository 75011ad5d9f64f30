/* recover: a loss, after which a simulated run goes on from an earlier step. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

/* The copies of a node's state are on itself and on the next one. */
static void lose_copies(struct run *r, int node)
{
	int nodes = r->s->nodes, last = r->exposed;
	bool both = last >= 0 && (node == (last + 1) % nodes || (node + 1) % nodes == last);
	if (nodes < 2 || both)
		r->copied = 0;
	r->exposed = node;
}

void goodput_start_supervisor(struct run *r)
{
	r->losses = r->futile = r->best_step = r->best_saved = 0;
	goodput_blame_forget(r);
}

/* Excluded nodes are better than none. False: there are none. */
static bool use_again(struct run *r)
{
	bool any = r->excluded > 0;
	r->free += r->excluded;
	r->excluded = 0;
	return any;
}

/* No node is there: the run waits for one, which returns or which Slurm gives to the requeued job. */
static void wait_for_node(struct run *r, int place, struct recovery *pending)
{
	const struct goodput_rules *rules = &r->s->rules;
	double wait = goodput_node_returns(r) - r->now;
	bool patient = wait <= rules->patience, requeued = !patient && rules->requeues;
	r->out->waited++;
	if (requeued) {
		goodput_pass(r, GOODPUT_WAIT, rules->patience + r->s->costs.queue);
		goodput_node_forget(r); /* another one takes its place */
		goodput_slow_forget(r, place);
		goodput_start_supervisor(r);
		pending->all = true;
		return;
	}
	pending->by_hand |= !patient;
	goodput_pass(r, GOODPUT_WAIT, wait);
	goodput_nodes_take(r);
	use_again(r);
	pending->elsewhere |= goodput_node_replace(r, place) > 0;
}

bool goodput_replace_node(struct run *r, int place, bool here, struct recovery *pending)
{
	int how = goodput_node_choice(r);
	if (how < 0 && use_again(r)) {
		if (here) { /* it stays */
			r->free--;
			return false;
		}
		how = goodput_node_choice(r);
	}
	if (how < 0) {
		wait_for_node(r, place, pending);
		return false;
	}
	pending->elsewhere |= how > 0;
	goodput_node_replace(r, place);
	return true;
}

/* A node that works again at once, or after the wait for a node, is not excluded. */
static void leave_node(struct run *r, int place, double seconds, bool excluded,
		       struct recovery *pending)
{
	double until = r->now + seconds;
	goodput_node_leaves(r, place, seconds, excluded);
	bool left = goodput_replace_node(r, place, seconds <= 0, pending) || r->now < until;
	r->out->excluded += excluded && left;
}

/* As supervise_restart_decide(). */
static void count_loss(struct run *r, struct recovery *pending)
{
	const struct goodput_rules *rules = &r->s->rules;
	r->out->restarts++;
	r->losses++;
	r->futile = r->progress ? 0 : r->futile + (r->losses > 1);
	r->progress = false;
	r->ending = true;
	bool futile = rules->futile > 0 && r->futile >= rules->futile;
	r->out->futile += futile;
	pending->by_hand |= futile || (rules->restarts >= 0 && r->losses > rules->restarts);
}

static void lose(struct run *r, struct recovery *pending)
{
	const struct goodput_fault *f = goodput_next_fault(r);
	int node = r->next.node %
		   goodput_nodes_used(r); /* it may have been left out since it was drawn */
	goodput_take_fault(r, true);
	pending->shows = f->shows;
	r->saving.step = 0;
	lose_copies(r, node);
	if (f->shows == SHOWS_NUMBERS) /* they may hold wrong numbers, too */
		r->copied = 0;
	if (!r->ending)
		count_loss(r, pending);
	goodput_nodes_take(r);
	bool excluded = f->blames && goodput_blame(r, node);
	if (f->node_out > 0 || excluded)
		leave_node(r, node, f->node_out, excluded, pending);
}

static double detection(const struct goodput_costs *c, enum goodput_shows shows)
{
	return shows == SHOWS_SILENT    ? c->silent
	       : shows == SHOWS_HANG    ? c->hang
	       : shows == SHOWS_NUMBERS ? c->numbers
					: c->closed;
}

static void call_person(struct run *r, struct recovery *pending)
{
	if (goodput_is_over(r))
		return;
	goodput_pass(r, GOODPUT_PERSON, r->s->costs.person);
	r->out->people++;
	goodput_start_supervisor(r);
	pending->by_hand = false;
	pending->all = true;
}

/* Seconds that the supervisor waits after restarts without progress. */
static double wait_of(const struct run *r)
{
	return r->futile ? fmin(r->s->rules.backoff * exp2((double)(r->futile - 1)),
				GOODPUT_WAIT_MOST)
			 : 0;
}

/* False: another fault has come meanwhile. */
static bool restart(struct run *r, struct recovery *pending)
{
	const struct goodput_costs *c = &r->s->costs;
	/* What is computed until wrong numbers are found counts for nothing. */
	if (!goodput_spend(r, pending->shows == SHOWS_NUMBERS ? GOODPUT_LOST : GOODPUT_DETECT,
			   detection(c, pending->shows)))
		return false;
	if (pending->by_hand)
		call_person(r, pending);
	pending->all |= !r->s->rules.warm;
	if (pending->all && !r->s->rules.keeps)
		r->copied = 0;
	if (!goodput_spend(r, GOODPUT_RESTART, c->end + wait_of(r)))
		return false;
	r->ending = false;
	return goodput_spend(r, GOODPUT_RESTART,
			     c->respawn + (r->copied > r->saved ? c->recall : c->load) +
				     (pending->elsewhere ? c->replace : 0) +
				     (pending->all ? c->start : 0));
}

void goodput_recover(struct run *r)
{
	struct recovery pending = { 0 };
	double since = r->now;
	do {
		lose(r, &pending);
	} while (!restart(r, &pending) && !goodput_is_over(r));
	bool copies = r->copied > r->saved;
	r->out->from_copies += copies;
	r->out->longest = fmax(r->out->longest, r->now - since);
	goodput_go_back(r, copies ? r->copied : r->saved);
}
