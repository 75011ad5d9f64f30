#include "agent/place.h"

#include <jansson.h>
#include <stdlib.h>

/* Reads a list of ranks; -1: it is not one. `least`: of an element. */
static int read_ranks(const json_t *list, int least, int world, int most, int *out)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > (size_t)most)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i);
		json_int_t rank = json_integer_value(item);
		if (!json_is_integer(item) || rank < least || rank >= world)
			return -1;
		out[i] = (int)rank;
	}
	return (int)n;
}

/* The list begins with the parent; -1: it has none. */
static bool read_near(const json_t *list, int world, struct comm_place *p)
{
	int near[COMM_NEAR];
	int n = read_ranks(list, -1, world, COMM_NEAR, near);
	if (n < 1)
		return false;
	p->has_parent = near[0] >= 0;
	for (int i = !p->has_parent; i < n; i++)
		p->near[p->n_near++] = near[i];
	return true;
}

/* Rank i has the parent (i - 1) / 2. */
static void place_apart(const struct msg_welcome *w, struct agent_place *out)
{
	struct comm_place *p = &out->comm;
	p->leader = out->here[0] = w->rank;
	p->n_here = 1;
	p->has_parent = w->rank > 0;
	if (p->has_parent)
		p->near[p->n_near++] = (w->rank - 1) / 2;
	for (int64_t child = 2 * (int64_t)w->rank + 1; child <= 2 * (int64_t)w->rank + 2; child++)
		if (child < w->world)
			p->near[p->n_near++] = (int)child;
}

static bool place_on_node(const struct msg_welcome *w, struct agent_place *out)
{
	struct comm_place *p = &out->comm;
	p->leader = w->leader;
	if (w->leader != w->rank)
		return true;
	p->n_here = read_ranks(w->here, 0, w->world, w->world, out->here);
	return p->n_here > 0 && read_near(w->near, w->world, p);
}

static void collect_wants(struct agent_place *out)
{
	const struct comm_place *p = &out->comm;
	if (!p->n_here)
		out->wants[out->n_wants++] = p->leader;
	for (int i = 0; i < p->n_here; i++)
		out->wants[out->n_wants++] = p->here[i];
	for (int i = 0; i < p->n_near; i++)
		out->wants[out->n_wants++] = p->near[i];
}

int agent_place_read(const struct msg_welcome *w, bool apart, struct agent_place *out,
		     struct err *e)
{
	size_t here = w->has_here ? json_array_size(w->here) : 0;
	struct agent_place p = { .here = calloc(here + 1, sizeof *p.here),
				 .wants = calloc(here + 1 + COMM_NEAR, sizeof *p.wants) };
	bool valid = true;
	p.comm.here = p.here;
	if (!p.here || !p.wants) {
		agent_place_fini(&p);
		return err_set(e, ERR_NOMEM, "no memory for the ranks of this node");
	}
	if (apart)
		place_apart(w, &p);
	else
		valid = place_on_node(w, &p);
	if (!valid) {
		agent_place_fini(&p);
		return err_set(
			e, ERR_PROTO,
			"message welcome: its lists of the ranks next to this one are invalid");
	}
	collect_wants(&p);
	*out = p;
	return 0;
}

void agent_place_fini(struct agent_place *p)
{
	free(p->here);
	free(p->wants);
	*p = (struct agent_place){ .here = NULL };
}
