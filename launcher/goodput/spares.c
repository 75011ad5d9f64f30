/* spares: the nodes of a simulated run: those that work, those that are free, and those that are away. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

/* Replicas that stop if one node is missing, and nodes that they have. */
static int replicas_at_once(const struct goodput_setup *s)
{
	return s->replicas > s->nodes ? (s->replicas + s->nodes - 1) / s->nodes : 1;
}

static int nodes_at_once(const struct goodput_setup *s)
{
	return s->replicas > s->nodes ? 1 : s->nodes / s->replicas;
}

static int groups_left_out(const struct run *r)
{
	return r->left_out / replicas_at_once(r->s);
}

int goodput_nodes_used(const struct run *r)
{
	return r->s->nodes - groups_left_out(r) * nodes_at_once(r->s);
}

double goodput_fewer(const struct run *r, int more)
{
	int left = r->s->replicas - r->left_out - more * replicas_at_once(r->s);
	return left > 0 ? (double)r->s->replicas / left : INFINITY;
}

/* More of them than fit do not return. */
void goodput_node_leaves(struct run *r, int place, double seconds, bool excluded)
{
	struct blame b = goodput_blame_take(r, place);
	b.excluded = excluded;
	if (excluded && seconds <= 0)
		r->excluded++;
	else if (r->n_away < AWAY_MOST)
		r->away[r->n_away++] = (struct away_node){ r->now + seconds, b };
}

double goodput_node_returns(const struct run *r)
{
	double first = INFINITY;
	for (int i = 0; i < r->n_away; i++)
		first = fmin(first, r->away[i].until);
	return first;
}

void goodput_node_forget(struct run *r)
{
	int first = 0;
	for (int i = 1; i < r->n_away; i++)
		first = r->away[i].until < r->away[first].until ? i : first;
	if (r->n_away)
		r->away[first] = r->away[--r->n_away];
}

void goodput_nodes_take(struct run *r)
{
	int left = 0;
	for (int i = 0; i < r->n_away; i++) {
		const struct away_node *node = &r->away[i];
		if (node->until > r->now) {
			r->away[left++] = *node;
		} else if (node->blame.excluded) {
			r->excluded++;
		} else {
			r->free++;
			goodput_blame_rest(r, node->blame);
		}
	}
	r->n_away = left;
}

int goodput_node_choice(const struct run *r)
{
	bool shrinks = r->s->rules.shrinks && r->left_out + replicas_at_once(r->s) < r->s->replicas;
	return r->free > 0 ? 1 : shrinks ? 0 : -1;
}

int goodput_node_replace(struct run *r, int place)
{
	int how = goodput_node_choice(r), nodes = nodes_at_once(r->s);
	if (how > 0) {
		goodput_blame_place(r, place);
		goodput_slow_forget(r, place);
		r->free--;
		r->out->replaced++;
	} else if (!how) {
		/* The last replica takes the place of the one that is left out. */
		goodput_blame_shrink(r, place / nodes * nodes, goodput_nodes_used(r) - nodes,
				     nodes);
		r->left_out += replicas_at_once(r->s);
		r->free += nodes - 1;
		r->out->shrunk++;
	}
	return how;
}

bool goodput_nodes_regrow(struct run *r)
{
	int need = nodes_at_once(r->s);
	bool any = false;
	while (r->left_out && r->free >= need) {
		int from = goodput_nodes_used(r);
		r->left_out -= replicas_at_once(r->s);
		for (int i = 0; i < need; i++, r->free--)
			goodput_blame_place(r, from + i);
		any = true;
	}
	return any;
}
