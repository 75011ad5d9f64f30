/* blame: the faults of a simulated run's nodes, for which the run stops using them, and the places of the nodes
 * when replicas are left out. */
#include "launcher/goodput/run_inner.h"

static bool is_old(const struct run *r, const struct blame *b)
{
	return r->now - b->at >= GOODPUT_FAULT_MEMORY;
}

static int find(const struct run *r, int place)
{
	int i = 0;
	while (i < r->n_blamed && r->blamed[i].place != place)
		i++;
	return i;
}

/* Makes room for one: those whose faults do not count any more go first, then the oldest one. */
static void make_room(struct run *r)
{
	int oldest = 0;
	for (int i = 0; i < r->n_blamed; i++)
		if (is_old(r, &r->blamed[i].of))
			r->blamed[i--] = r->blamed[--r->n_blamed];
	if (r->n_blamed < BLAMED_MOST)
		return;
	for (int i = 1; i < r->n_blamed; i++)
		oldest = r->blamed[i].of.at < r->blamed[oldest].of.at ? i : oldest;
	r->blamed[oldest] = r->blamed[--r->n_blamed];
}

static void put(struct run *r, int place, struct blame b)
{
	make_room(r);
	r->blamed[r->n_blamed].place = place;
	r->blamed[r->n_blamed++].of = b;
}

bool goodput_blame(struct run *r, int place)
{
	int64_t most = r->s->rules.exclude_after;
	struct blame b = goodput_blame_take(r, place);
	if (most <= 0)
		return false;
	b.faults = is_old(r, &b) ? 1 : b.faults + 1;
	b.at = r->now;
	put(r, place, b);
	bool last = goodput_nodes_used(r) + r->free <= 1;
	return b.faults >= most && !last;
}

struct blame goodput_blame_take(struct run *r, int place)
{
	struct blame none = { 0 };
	int i = find(r, place);
	if (i == r->n_blamed)
		return none;
	struct blame b = r->blamed[i].of;
	r->blamed[i] = r->blamed[--r->n_blamed];
	return b;
}

void goodput_blame_rest(struct run *r, struct blame b)
{
	if (b.faults && !is_old(r, &b) && r->n_rested < BLAMED_MOST)
		r->rested[r->n_rested++] = b;
}

void goodput_blame_place(struct run *r, int place)
{
	if (r->n_rested && r->n_rested >= r->free)
		put(r, place, r->rested[--r->n_rested]);
}

/* No rank waits any more for the slow nodes of the places that are left out. */
static void shrink_slow(struct run *r, int to, int from, int places)
{
	int left = 0;
	for (int i = 0; i < r->n_slow; i++) {
		struct slow_node node = r->slow[i];
		if (node.place >= to && node.place < to + places)
			continue;
		node.place += node.place >= from ? to - from : 0;
		r->slow[left++] = node;
	}
	r->n_slow = left;
}

void goodput_blame_shrink(struct run *r, int to, int from, int places)
{
	for (int i = 0; i < places; i++)
		goodput_blame_rest(r, goodput_blame_take(r, to + i));
	for (int i = 0; i < r->n_blamed; i++)
		if (r->blamed[i].place >= from)
			r->blamed[i].place += to - from;
	shrink_slow(r, to, from, places);
}

void goodput_blame_forget(struct run *r)
{
	r->n_blamed = r->n_rested = 0;
	for (int i = 0; i < r->n_away; i++)
		r->away[i].blame = (struct blame){ 0 };
	r->free += r->excluded;
	r->excluded = 0;
}
