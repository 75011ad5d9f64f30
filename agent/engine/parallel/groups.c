#include "agent/engine/parallel/groups.h"

#include "plan/spec/processors.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of tp ranks that hold the same kv head. */
static int kv_copies(const struct rank_view *v)
{
	return v->shape.kv_heads < v->layout.tp ? v->layout.tp / (int)v->shape.kv_heads : 1;
}

/* The pipeline rank that has the model's last stage. */
static int last_pipeline_rank(const struct rank_view *v)
{
	int pp, chunk;
	layout_holder(&v->layout, layout_n_stages(&v->layout) - 1, &pp, &chunk);
	return pp;
}

/* exists: whether any rank is in such a group; the result is the same on all ranks. color: this
 * rank's group; < 0: none. */
struct split {
	const char *name;
	bool (*exists)(const struct rank_view *v);
	int (*color)(const struct rank_view *v);
	size_t member;
};

static bool tp_exists(const struct rank_view *v)
{
	return v->layout.tp > 1;
}
static bool kv_exists(const struct rank_view *v)
{
	return kv_copies(v) > 1;
}
static bool cp_exists(const struct rank_view *v)
{
	return v->layout.cp > 1;
}
static bool ep_exists(const struct rank_view *v)
{
	return v->layout.ep > 1;
}
static bool tied_exists(const struct rank_view *v)
{
	return v->shape.tied && last_pipeline_rank(v) != 0;
}

static int tp_color(const struct rank_view *v)
{
	return (v->at.pp * v->layout.dp + v->at.dp) * v->layout.cp + v->at.cp;
}
static int kv_color(const struct rank_view *v)
{
	return tp_color(v) * v->layout.tp + v->at.tp / kv_copies(v);
}
static int cp_color(const struct rank_view *v)
{
	return (v->at.pp * v->layout.dp + v->at.dp) * v->layout.tp + v->at.tp;
}

static int ep_color(const struct rank_view *v)
{
	return ((v->at.pp * v->layout.dp + v->at.dp / v->layout.ep) * v->layout.cp + v->at.cp) *
		       v->layout.tp +
	       v->at.tp;
}

static int tied_color(const struct rank_view *v)
{
	bool end = v->at.pp == 0 || v->at.pp == last_pipeline_rank(v);
	return end ? (v->at.dp * v->layout.cp + v->at.cp) * v->layout.tp + v->at.tp : -1;
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
static int split_by_node(struct groups *g, const struct groups_options *opt,
			 const struct replica_split *r, struct comm **shard, struct comm **copies,
			 struct err *e)
{
	int world = comm_size(g->world);
	if (comm_split(g->root, r->color * world + opt->node, comm_rank(g->world), r->shard, shard,
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

static int split_replicas(struct groups *g, const struct groups_options *opt,
			  const struct replica_split *r, struct comm **shard, struct comm **copies,
			  struct err *e)
{
	const struct job *job = opt->view->job;
	if (r->count == 1)
		return 0;
	if (job->parallel.zero == 0)
		return comm_split(g->root, r->color, comm_rank(g->world), r->copies, copies, e);
	if (job->parallel.zero_shard == ZERO_SHARD_ALL)
		return comm_split(g->root, r->color, comm_rank(g->world), r->shard, shard, e);
	return split_by_node(g, opt, r, shard, copies, e);
}

static int split_all_replicas(struct groups *g, const struct groups_options *opt, struct err *e)
{
	const struct rank_view *v = opt->view;
	int same = v->at.pp * v->layout.tp + v->at.tp;
	const struct replica_split dense = { "zero shards", "dp", v->layout.dp * v->layout.cp,
					     same };
	const struct replica_split experts = { "zero shards of experts", "expert dp",
					       v->layout.dp / v->layout.ep * v->layout.cp,
					       same * v->layout.ep + v->at.dp % v->layout.ep };
	if (v->job->parallel.sync == SYNC_SERVER)
		return 0;
	if (split_replicas(g, opt, &dense, &g->store.shard, &g->store.copies, e))
		return -1;
	return v->shape.experts ? split_replicas(g, opt, &experts, &g->store.expert_shard,
						 &g->store.expert_copies, e)
				: 0;
}

static int split_store(struct groups *g, const struct groups_options *opt, struct err *e)
{
	comm_processors(g->root, opt->view->job->parallel.overlap ? PROCESSORS_BEHIND : 0);
	int rc = split_all_replicas(g, opt, e);
	comm_processors(g->root, 0);
	return rc;
}

/* --- The pipeline --- */

/* Edge i of the ring leads from pipeline rank i to the next one. Activations follow it, and
 * gradients travel against it. The second chunk of a V uses both in the opposite direction too. */
struct edge {
	int at, from, to;
};

static bool edge_exists(const struct rank_view *v, int edge)
{
	bool ring = v->layout.chunks > 1 && !v->layout.vee;
	return v->layout.pp > 1 && edge >= 0 && edge < (ring ? v->layout.pp : v->layout.pp - 1);
}

/* Edges of one class have no rank in common, so that one split makes all pairs of a class. */
static int edge_class(const struct rank_view *v, int edge)
{
	return edge == v->layout.pp - 1 && v->layout.pp % 2 ? 2 : edge % 2;
}

/* Sets *out to this rank's edge of the class. Returns false if it has none. */
static bool edge_of(const struct rank_view *v, int class, struct edge *out)
{
	const int edges[] = { v->at.pp, (v->at.pp + v->layout.pp - 1) % v->layout.pp };
	for (int i = 0; i < 2; i++)
		if (edge_exists(v, edges[i]) && edge_class(v, edges[i]) == class) {
			*out = (struct edge){ edges[i], edges[i], (edges[i] + 1) % v->layout.pp };
			return true;
		}
	return false;
}

/* The member of this rank's struct groups that holds a channel of the edge. */
static struct comm **channel(struct groups *g, const struct rank_view *v, const struct edge *edge,
			     enum pp_message kind, bool back)
{
	bool first = v->at.pp == edge->from;
	/* activations follow the edge, gradients travel against it */
	bool sends = first == ((kind == PP_ACT) != back);
	enum pp_side side = first ? PP_NEXT : PP_PREV;
	return sends ? &g->out[kind][side] : &g->in[kind][side];
}

static void channel_name(const struct edge *edge, enum pp_message kind, bool back, char *name,
			 size_t size)
{
	bool along = (kind == PP_ACT) != back;
	snprintf(name, size, "pp %s %d to %d", kind == PP_ACT ? "activations" : "gradients",
		 along ? edge->from : edge->to, along ? edge->to : edge->from);
}

/* Splits the pair's first channel from the root, and its other channels from that. */
static int split_class(struct groups *g, const struct rank_view *v, int class, struct err *e)
{
	struct edge edge = { 0 };
	struct comm *pair = NULL;
	char name[48];
	bool mine = edge_of(v, class, &edge);
	int color = mine ? ((edge.at * v->layout.dp + v->at.dp) * v->layout.cp + v->at.cp) *
					    v->layout.tp +
				    v->at.tp
			 : -1;
	channel_name(&edge, PP_ACT, false, name, sizeof name);
	if (comm_split(g->root, color, v->at.pp == edge.from ? 0 : 1, name, &pair, e))
		return -1;
	if (!mine)
		return 0;
	*channel(g, v, &edge, PP_ACT, false) = pair;
	for (int i = 1; i < (v->layout.vee ? 4 : 2); i++) {
		enum pp_message kind = i % 2 ? PP_GRAD : PP_ACT;
		bool back = i >= 2;
		channel_name(&edge, kind, back, name, sizeof name);
		if (comm_split(pair, 0, comm_rank(pair), name, channel(g, v, &edge, kind, back), e))
			return -1;
	}
	return 0;
}

/* One split of the world for each class that has an edge on any rank. */
static int split_channels(struct groups *g, const struct rank_view *v, struct err *e)
{
	for (int class = 0; class < 3; class ++) {
		bool any = false;
		for (int edge = 0; edge < v->layout.pp; edge++)
			any |= edge_exists(v, edge) && edge_class(v, edge) == class;
		if (any && split_class(g, v, class, e))
			return -1;
	}
	return 0;
}

static int split_pipeline(struct groups *g, const struct rank_view *v, struct err *e)
{
	bool by_library = g->root != g->world && strcmp(comm_backend(g->root), "staged");
	int color = (v->at.dp * v->layout.cp + v->at.cp) * v->layout.tp + v->at.tp;
	if (v->layout.pp == 1)
		return 0;
	if (!by_library)
		return split_channels(g, v, e);
	comm_processors(g->root, PROCESSORS_OF_MESSAGES);
	int rc = comm_split(g->root, color, v->at.pp, "pp", &g->pipe, e);
	comm_processors(g->root, 0);
	return rc;
}

/* --- The host and the device --- */

static int open_root(struct groups *g, const struct groups_options *opt, struct err *e)
{
	g->root = g->world;
	if (!opt->device || comm_size(g->world) == 1)
		return 0;
	struct comm_device_options device = *opt->device;
	device.processors = PROCESSORS_OF_ALL_RANKS;
	g->root = NULL;
	if (comm_on_device(g->world, &device, "device", &g->root, e))
		return -1;
	comm_stream(g->root, opt->stream);
	return 0;
}

static int split_values(struct groups *g, const struct rank_view *v, struct err *e)
{
	int rank = comm_rank(g->world);
	if (g->root == g->world) {
		g->cp_values = g->cp;
		g->ep_values = g->ep;
		return 0;
	}
	return (cp_exists(v) &&
		comm_split(g->world, cp_color(v), rank, "cp's numbers", &g->cp_values, e)) ||
			       (ep_exists(v) && comm_split(g->world, ep_color(v), rank,
							   "ep's numbers", &g->ep_values, e))
		       ? -1
		       : 0;
}

int parallel_groups_open(struct comm *world, const struct groups_options *opt, struct groups *out,
			 struct err *e)
{
	const struct rank_view *v = opt->view;
	struct groups g = { .world = world };

	if (comm_size(world) != layout_world(&v->layout) ||
	    comm_rank(world) != layout_rank(&v->layout, v->at))
		return err_set(
			e, ERR_INTERNAL,
			"layout tp %d cp %d dp %d pp %d: this is rank %d of %d in the world, "
			"and rank %d of %d in the layout",
			v->layout.tp, v->layout.cp, v->layout.dp, v->layout.pp, comm_rank(world),
			comm_size(world), layout_rank(&v->layout, v->at), layout_world(&v->layout));
	if (open_root(&g, opt, e))
		return -1;
	for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
		const struct split *s = &splits[i];
		if (s->exists(v) && comm_split(g.root, s->color(v), comm_rank(world), s->name,
					       member(&g, s->member), e))
			goto fail;
	}
	g.store.tp = g.tp;
	if (split_values(&g, v, e) || split_store(&g, opt, e) || split_pipeline(&g, v, e))
		goto fail;
	*out = g;
	return 0;
fail:
	parallel_groups_close(&g);
	return -1;
}

void parallel_groups_close(struct groups *g)
{
	for (int kind = 0; kind < PP_MESSAGES; kind++)
		for (int side = 0; side < PP_SIDES; side++) {
			comm_close(g->in[kind][side]);
			comm_close(g->out[kind][side]);
		}
	struct comm *all[] = { g->pipe,
			       g->store.tied,
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

int parallel_largest(struct comm *all, int32_t *words, size_t n, struct err *e)
{
	return comm_size(all) == 1 ? 0
				   : comm_all_reduce(all, words, words, n, COMM_I32, COMM_MAX, e);
}

bool parallel_is_first(const struct comm *all)
{
	return comm_rank(all) == 0;
}
