#include "agent/parallel/groups.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What the splits below read: where this rank is. */
struct place {
	struct layout l;
	struct coords at;
	bool tied;
};

/* color < 0: this rank is in no such group. exists: whether any rank is in one, which is the same answer on all. */
struct split {
	const char *name;
	bool (*exists)(const struct place *p);
	int (*color)(const struct place *p);
	size_t member;
};

static bool tp_exists(const struct place *p) { return p->l.tp > 1; }
static bool dp_exists(const struct place *p) { return p->l.dp > 1; }
static bool model_exists(const struct place *p) { return p->l.tp * p->l.pp > 1; }
static bool embed_exists(const struct place *p) { return p->tied && p->l.pp > 1; }

static int tp_color(const struct place *p) { return p->at.pp * p->l.dp + p->at.dp; }
static int dp_color(const struct place *p) { return p->at.pp * p->l.tp + p->at.tp; }
static int model_color(const struct place *p) { return p->at.dp; }

static int embed_color(const struct place *p)
{
	bool end = p->at.pp == 0 || p->at.pp == p->l.pp - 1;
	return end ? p->at.dp * p->l.tp + p->at.tp : -1;
}

static const struct split splits[] = {
	{ "tp", tp_exists, tp_color, offsetof(struct groups, tp) },
	{ "dp", dp_exists, dp_color, offsetof(struct groups, dp) },
	{ "model", model_exists, model_color, offsetof(struct groups, model) },
	{ "embed", embed_exists, embed_color, offsetof(struct groups, embed) },
};

static struct comm **member(struct groups *g, size_t offset)
{
	return (struct comm **)((char *)g + offset);
}

/* The pair groups over boundaries of one parity: a stage is in one even and one odd boundary at most, so two
 * splits make them all. */
static int split_boundaries(struct groups *g, const struct place *p, int parity, struct err *e)
{
	int lower = p->at.pp % 2 == parity ? p->at.pp : p->at.pp - 1; /* the stage before the boundary */
	bool mine = lower >= 0 && lower + 1 < p->l.pp;
	int color = mine ? (lower * p->l.dp + p->at.dp) * p->l.tp + p->at.tp : -1;
	struct comm *none = NULL;
	struct comm **act = !mine ? &none : lower == p->at.pp ? &g->act_out : &g->act_in;
	struct comm **grad = !mine ? &none : lower == p->at.pp ? &g->grad_in : &g->grad_out;
	char name[48];

	snprintf(name, sizeof name, "pp activations %d to %d", lower, lower + 1);
	if (comm_split(g->world, color, p->at.pp, name, act, e))
		return -1;
	snprintf(name, sizeof name, "pp gradients %d to %d", lower + 1, lower);
	return comm_split(g->world, color, p->at.pp, name, grad, e);
}

int groups_open(struct comm *world, const struct layout *l, struct coords at, bool tied,
		struct groups *out, struct err *e)
{
	struct place p = { *l, at, tied };
	struct groups g = { .world = world };

	if (comm_size(world) != layout_world(l) || comm_rank(world) != layout_rank(l, at))
		return err_set(e, ERR_INTERNAL, "layout tp %d dp %d pp %d: the world is rank %d of %d, the layout says %d of %d",
			       l->tp, l->dp, l->pp, comm_rank(world), comm_size(world), layout_rank(l, at), layout_world(l));
	for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
		const struct split *s = &splits[i];
		if (s->exists(&p) && comm_split(world, s->color(&p), comm_rank(world), s->name, member(&g, s->member), e))
			goto fail;
	}
	for (int parity = 0; parity < 2 && parity < l->pp - 1; parity++)
		if (split_boundaries(&g, &p, parity, e))
			goto fail;
	*out = g;
	return 0;
fail:
	groups_close(&g);
	return -1;
}

void groups_close(struct groups *g)
{
	struct comm *all[] = { g->act_in, g->grad_out, g->act_out, g->grad_in, g->embed, g->model, g->dp, g->tp };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		comm_close(all[i]);
	memset(g, 0, sizeof *g);
}
