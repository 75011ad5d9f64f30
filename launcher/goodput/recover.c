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

/* No node is there: the run waits for one, which returns or which Slurm gives to the requeued job. */
static void wait_for_node(struct run *r, struct recovery *todo)
{
	const struct goodput_rules *rules = &r->s->rules;
	double wait = goodput_node_returns(r) - r->now;
	bool patient = wait <= rules->patience, requeued = !patient && rules->requeues;
	r->out->waited++;
	if (requeued) {
		goodput_pass(r, GOODPUT_WAIT, rules->patience + r->s->costs.queue);
		goodput_node_forget(r); /* another one takes its place */
		todo->all = true;
		return;
	}
	todo->by_hand |= !patient;
	goodput_pass(r, GOODPUT_WAIT, wait);
	goodput_nodes_take(r);
	todo->elsewhere |= goodput_node_replace(r) > 0;
}

void goodput_replace_node(struct run *r, struct recovery *todo)
{
	int how = goodput_node_replace(r);
	todo->elsewhere |= how > 0;
	if (how < 0)
		wait_for_node(r, todo);
}

static void lose(struct run *r, struct recovery *todo)
{
	const struct goodput_fault *f = goodput_next_fault(r);
	const struct goodput_rules *rules = &r->s->rules;
	int node = r->next.node;
	goodput_take_fault(r, true);
	todo->shows = f->shows;
	r->saving.step = 0;
	lose_copies(r, node);
	if (f->shows == SHOWS_NUMBERS) /* they may hold wrong numbers, too */
		r->copied = 0;
	r->out->restarts++;
	r->losses++;
	todo->by_hand |= rules->restarts >= 0 && r->losses > rules->restarts;
	goodput_nodes_take(r);
	if (f->node_out > 0) {
		goodput_node_leaves(r, f->node_out);
		goodput_replace_node(r, todo);
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
	if (goodput_is_over(r))
		return;
	goodput_pass(r, GOODPUT_PERSON, r->s->costs.person);
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
	if (!goodput_spend(r, todo->shows == SHOWS_NUMBERS ? GOODPUT_LOST : GOODPUT_DETECT,
			   detection(c, todo->shows)))
		return false;
	if (todo->by_hand)
		call_person(r, todo);
	todo->all |= !r->s->rules.warm;
	if (todo->all && !r->s->rules.keeps)
		r->copied = 0;
	return goodput_spend(r, GOODPUT_RESTART,
			     c->end + c->respawn + (r->copied > r->saved ? c->recall : c->load) +
				     (todo->elsewhere ? c->replace : 0) +
				     (todo->all ? c->start : 0));
}

void goodput_recover(struct run *r)
{
	struct recovery todo = { 0 };
	double since = r->now;
	do {
		lose(r, &todo);
	} while (!restart(r, &todo) && !goodput_is_over(r));
	bool copies = r->copied > r->saved;
	r->out->from_copies += copies;
	r->out->longest = fmax(r->out->longest, r->now - since);
	goodput_go_back(r, copies ? r->copied : r->saved);
}
