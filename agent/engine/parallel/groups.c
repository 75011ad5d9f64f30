#include "agent/engine/parallel/groups.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* This rank and its layout, for the splits below. */
struct rank_view {
	const struct groups_options *o;
	struct layout l;
	struct coords at;
	int kv_copies; /* tp ranks that hold the same kv head */
	bool two_ends; /* two ranks hold the tied table */
};

static struct rank_view view_of_rank(const struct groups_options *o)
{
	struct rank_view p = { .o = o, .l = *o->layout, .at = o->at };
	int last_pp, chunk;
	layout_holder(&p.l, layout_n_stages(&p.l) - 1, &last_pp, &chunk);
	p.kv_copies = o->shape->kv_heads < p.l.tp ? p.l.tp / (int)o->shape->kv_heads : 1;
	p.two_ends = o->shape->tied && last_pp != 0;
	return p;
}

/* exists: whether any rank is in such a group; the result is the same on all ranks. color: this
 * rank's group; < 0: none. */
struct split {
	const char *name;
	bool (*exists)(const struct rank_view *p);
	int (*color)(const struct rank_view *p);
	size_t member;
};

static bool tp_exists(const struct rank_view *p)
{
	return p->l.tp > 1;
}
static bool kv_exists(const struct rank_view *p)
{
	return p->kv_copies > 1;
}
static bool cp_exists(const struct rank_view *p)
{
	return p->l.cp > 1;
}
static bool ep_exists(const struct rank_view *p)
{
	return p->l.ep > 1;
}
static bool tied_exists(const struct rank_view *p)
{
	return p->two_ends;
}

static int tp_color(const struct rank_view *p)
{
	return (p->at.pp * p->l.dp + p->at.dp) * p->l.cp + p->at.cp;
}
static int kv_color(const struct rank_view *p)
{
	return tp_color(p) * p->l.tp + p->at.tp / p->kv_copies;
}
static int cp_color(const struct rank_view *p)
{
	return (p->at.pp * p->l.dp + p->at.dp) * p->l.tp + p->at.tp;
}

static int ep_color(const struct rank_view *p)
{
	return ((p->at.pp * p->l.dp + p->at.dp / p->l.ep) * p->l.cp + p->at.cp) * p->l.tp +
	       p->at.tp;
}

static int tied_color(const struct rank_view *p)
{
	int last_pp, chunk;
	layout_holder(&p->l, layout_n_stages(&p->l) - 1, &last_pp, &chunk);
	bool end = p->at.pp == 0 || p->at.pp == last_pp;
	return end ? (p->at.dp * p->l.cp + p->at.cp) * p->l.tp + p->at.tp : -1;
}

static const struct split splits[] = {
	{ "tp", tp_exists, tp_color, offsetof(struct groups, tp) },
	{ "kv", kv_exists, kv_color, offsetof(struct groups, store.kv) },
	{ "cp", cp_exists, cp_color, offsetof(struct groups, cp) },
	{ "ep", ep_exists, ep_color, offsetof(struct groups, ep) },
	{ "tied", tied_exists, tied_color, offsetof(struct groups, store.tied) },
};

static struct comm **member(struct groups *g, size_t offset)
{
	return (struct comm **)((char *)g + offset);
}

/* --- Replicas --- */

/* The replicas of dense parameters, or of experts. */
struct replica_split {
	const char *shard, *copies; /* the groups' names */
	int count, color;           /* replicas; the color of this rank's set of replicas */
};

/* Sharding inside nodes: a shard group has the replicas of one node, and a copies group has the
 * replicas with the same index in their nodes. */
static int split_by_node(struct groups *g, const struct rank_view *p, const struct replica_split *r,
			 struct comm **shard, struct comm **copies, struct err *e)
{
	int world = comm_size(g->world);
	if (comm_split(g->root, r->color * world + p->o->node, comm_rank(g->world), r->shard, shard,
		       e))
		return -1;
	int64_t sizes[2] = { comm_size(*shard), -comm_size(*shard) };
	if (comm_all_reduce(g->world, sizes, sizes, 2, COMM_I64, COMM_MAX, e))
		return -1;
	if (sizes[0] != -sizes[1])
		return err_set(e, ERR_USAGE,
			       "parallel.zero_shard = node: some nodes hold %lld replicas of a "
			       "parameter and others %lld; use zero_shard = all, or a dp that "
			       "divides evenly over the nodes",
			       (long long)sizes[0], (long long)-sizes[1]);
	return comm_split(g->root, r->color * world + comm_rank(*shard), comm_rank(g->world),
			  r->copies, copies, e);
}

static int split_replicas(struct groups *g, const struct rank_view *p,
			  const struct replica_split *r, struct comm **shard, struct comm **copies,
			  struct err *e)
{
	if (r->count == 1)
		return 0;
	if (p->o->zero == 0)
		return comm_split(g->root, r->color, comm_rank(g->world), r->copies, copies, e);
	if (p->o->shard == ZERO_SHARD_ALL)
		return comm_split(g->root, r->color, comm_rank(g->world), r->shard, shard, e);
	return split_by_node(g, p, r, shard, copies, e);
}

static int split_store(struct groups *g, const struct rank_view *p, struct err *e)
{
	int same = p->at.pp * p->l.tp + p->at.tp;
	const struct replica_split dense = { "zero shards", "dp", p->l.dp * p->l.cp, same };
	const struct replica_split experts = { "zero shards of experts", "expert dp",
					       p->l.dp / p->l.ep * p->l.cp,
					       same * p->l.ep + p->at.dp % p->l.ep };
	if (p->o->apart)
		return 0;
	if (split_replicas(g, p, &dense, &g->store.shard, &g->store.copies, e))
		return -1;
	return p->o->shape->experts ? split_replicas(g, p, &experts, &g->store.expert_shard,
						     &g->store.expert_copies, e)
				    : 0;
}

/* --- The pipeline --- */

/* Edge i of the ring leads from pipeline rank i to the next one. Activations follow it, and gradients
 * travel against it. The second chunk of a V uses both in the opposite direction too. */
struct edge {
	int at, from, to;
};

static bool edge_exists(const struct rank_view *p, int edge)
{
	bool ring = p->l.chunks > 1 && !p->l.vee;
	return p->l.pp > 1 && edge >= 0 && edge < (ring ? p->l.pp : p->l.pp - 1);
}

/* Edges of one class have no rank in common, so that one split makes all pairs of a class. */
static int edge_class(const struct rank_view *p, int edge)
{
	return edge == p->l.pp - 1 && p->l.pp % 2 ? 2 : edge % 2;
}

/* Sets *out to this rank's edge of the class. Returns false if it has none. */
static bool edge_of(const struct rank_view *p, int class, struct edge *out)
{
	const int edges[] = { p->at.pp, (p->at.pp + p->l.pp - 1) % p->l.pp };
	for (int i = 0; i < 2; i++)
		if (edge_exists(p, edges[i]) && edge_class(p, edges[i]) == class) {
			*out = (struct edge){ edges[i], edges[i], (edges[i] + 1) % p->l.pp };
			return true;
		}
	return false;
}

/* The member of this rank's struct groups that holds a channel of the edge. */
static struct comm **channel(struct groups *g, const struct rank_view *p, const struct edge *edge,
			     enum pipe_kind kind, bool back)
{
	bool first = p->at.pp == edge->from;
	/* activations follow the edge, gradients travel against it */
	bool sends = first == ((kind == PIPE_ACT) != back);
	enum pipe_side side = first ? PIPE_NEXT : PIPE_PREV;
	return sends ? &g->out[kind][side] : &g->in[kind][side];
}

static void channel_name(const struct edge *edge, enum pipe_kind kind, bool back, char *name,
			 size_t size)
{
	bool along = (kind == PIPE_ACT) != back;
	snprintf(name, size, "pp %s %d to %d", kind == PIPE_ACT ? "activations" : "gradients",
		 along ? edge->from : edge->to, along ? edge->to : edge->from);
}

/* Splits the pair's first channel from the root, and its other channels from that. */
static int split_class(struct groups *g, const struct rank_view *p, int class, struct err *e)
{
	struct edge edge = { 0 };
	struct comm *pair = NULL;
	char name[48];
	bool mine = edge_of(p, class, &edge);
	int color = mine ? ((edge.at * p->l.dp + p->at.dp) * p->l.cp + p->at.cp) * p->l.tp +
				    p->at.tp
			 : -1;
	channel_name(&edge, PIPE_ACT, false, name, sizeof name);
	if (comm_split(g->root, color, p->at.pp == edge.from ? 0 : 1, name, &pair, e))
		return -1;
	if (!mine)
		return 0;
	*channel(g, p, &edge, PIPE_ACT, false) = pair;
	for (int i = 1; i < (p->l.vee ? 4 : 2); i++) {
		enum pipe_kind kind = i % 2 ? PIPE_GRAD : PIPE_ACT;
		bool back = i >= 2;
		channel_name(&edge, kind, back, name, sizeof name);
		if (comm_split(pair, 0, comm_rank(pair), name, channel(g, p, &edge, kind, back), e))
			return -1;
	}
	return 0;
}

/* One split of the world for each class that has an edge on any rank. */
static int split_pipeline(struct groups *g, const struct rank_view *p, struct err *e)
{
	for (int class = 0; class < 3; class ++) {
		bool any = false;
		for (int edge = 0; edge < p->l.pp; edge++)
			any |= edge_exists(p, edge) && edge_class(p, edge) == class;
		if (any && split_class(g, p, class, e))
			return -1;
	}
	return 0;
}

/* --- The host and the device --- */

static int open_root(struct groups *g, const struct groups_options *opt, struct err *e)
{
	g->root = g->world;
	if (!opt->device || comm_size(g->world) == 1)
		return 0;
	g->root = NULL;
	if (comm_on_device(g->world, opt->device, "device", &g->root, e))
		return -1;
	comm_stream(g->root, opt->stream);
	return 0;
}

static int split_values(struct groups *g, const struct rank_view *p, struct err *e)
{
	int rank = comm_rank(g->world);
	if (g->root == g->world) {
		g->cp_values = g->cp;
		g->ep_values = g->ep;
		return 0;
	}
	return (cp_exists(p) &&
		comm_split(g->world, cp_color(p), rank, "cp's numbers", &g->cp_values, e)) ||
			       (ep_exists(p) && comm_split(g->world, ep_color(p), rank,
							   "ep's numbers", &g->ep_values, e))
		       ? -1
		       : 0;
}

int parallel_groups_open(struct comm *world, const struct groups_options *opt, struct groups *out,
			 struct err *e)
{
	struct rank_view p = view_of_rank(opt);
	struct groups g = { .world = world };

	if (comm_size(world) != layout_world(&p.l) || comm_rank(world) != layout_rank(&p.l, p.at))
		return err_set(
			e, ERR_INTERNAL,
			"layout tp %d cp %d dp %d pp %d: this is rank %d of %d in the world, "
			"and rank %d of %d in the layout",
			p.l.tp, p.l.cp, p.l.dp, p.l.pp, comm_rank(world), comm_size(world),
			layout_rank(&p.l, p.at), layout_world(&p.l));
	if (open_root(&g, opt, e))
		return -1;
	for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
		const struct split *s = &splits[i];
		if (s->exists(&p) && comm_split(g.root, s->color(&p), comm_rank(world), s->name,
						member(&g, s->member), e))
			goto fail;
	}
	g.store.tp = g.tp;
	if (split_values(&g, &p, e) || split_store(&g, &p, e) || split_pipeline(&g, &p, e))
		goto fail;
	*out = g;
	return 0;
fail:
	parallel_groups_close(&g);
	return -1;
}

void parallel_groups_close(struct groups *g)
{
	for (int kind = 0; kind < PIPE_KINDS; kind++)
		for (int side = 0; side < PIPE_SIDES; side++) {
			comm_close(g->in[kind][side]);
			comm_close(g->out[kind][side]);
		}
	struct comm *all[] = { g->store.tied,
			       g->store.kv,
			       g->store.shard,
			       g->store.copies,
			       g->store.expert_shard,
			       g->store.expert_copies,
			       g->ep,
			       g->cp,
			       g->tp };
	bool apart = g->root != g->world;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		comm_close(all[i]);
	if (apart) {
		comm_close(g->cp_values);
		comm_close(g->ep_values);
		comm_close(g->root);
	}
	memset(g, 0, sizeof *g);
}
