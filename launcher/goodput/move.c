/* move: what a simulated run does with its nodes without a loss: it goes on from a checkpoint of the step that it
 * is at. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

static void move(struct run *r, enum goodput_part part, double seconds)
{
	const struct goodput_costs *c = &r->s->costs;
	r->progress = false;
	r->saved = r->step;
	r->saving.step = r->copied = 0;
	r->exposed = -1;
	if (!goodput_spend(r, part, seconds + c->respawn + c->load))
		goodput_recover(r);
}

void goodput_stop_as_planned(struct run *r)
{
	const struct goodput_costs *c = &r->s->costs;
	goodput_take_fault(r, true);
	goodput_start_supervisor(r);
	move(r, GOODPUT_START, c->snapshot + c->write + c->start);
}

bool goodput_regrow(struct run *r)
{
	if (!r->s->rules.regrows || !goodput_nodes_regrow(r))
		return false;
	move(r, GOODPUT_RESTART, r->s->costs.end + r->s->costs.replace);
	return true;
}

/* --- Slow nodes ------------------------------------------------------------------------------ */

/* Whether the run is faster without the node. */
static bool is_worth_leaving(const struct run *r, double slowdown)
{
	int how = goodput_node_choice(r);
	double then = how > 0 ? goodput_fewer(r, 0) : goodput_fewer(r, 1);
	return how >= 0 && then < slowdown * goodput_fewer(r, 0);
}

void goodput_become_slow(struct run *r)
{
	const struct goodput_fault *f = goodput_next_fault(r);
	const struct goodput_rules *rules = &r->s->rules;
	bool found = rules->leaves_slow && f->slowdown > rules->finds;
	/* Its place may have been left out since it was drawn. */
	int place = r->next.node % goodput_nodes_used(r);
	goodput_take_fault(r, true);
	if (r->n_slow < SLOW_MOST)
		r->slow[r->n_slow++] = (struct slow_node){
			.until = r->now +
				 (found ? fmin(r->s->costs.slow, f->node_out) : f->node_out),
			.repaired = r->now + f->node_out,
			.slowdown = f->slowdown,
			.out = f->node_out,
			.place = place,
		};
}

void goodput_slow_forget(struct run *r, int place)
{
	for (int i = r->n_slow; i-- > 0;)
		if (r->slow[i].place == place)
			r->slow[i] = r->slow[--r->n_slow];
}

static int first_slow(const struct run *r)
{
	int first = 0;
	for (int i = 1; i < r->n_slow; i++)
		first = r->slow[i].until < r->slow[first].until ? i : first;
	return first;
}

double goodput_slow_until(const struct run *r)
{
	return r->n_slow ? r->slow[first_slow(r)].until : INFINITY;
}

void goodput_leave_slow_node(struct run *r)
{
	struct recovery pending = { 0 };
	int at = first_slow(r);
	struct slow_node node = r->slow[at];
	if (r->now < node.repaired && !is_worth_leaving(r, node.slowdown)) {
		r->slow[at].until = node.repaired;
		return;
	}
	r->slow[at] = r->slow[--r->n_slow];
	if (r->now >= node.repaired)
		return;
	int place = node.place % goodput_nodes_used(r);
	goodput_node_leaves(r, place, node.out, false);
	goodput_replace_node(r, place, false, &pending);
	move(r, GOODPUT_RESTART, r->s->costs.end + r->s->costs.replace);
}
