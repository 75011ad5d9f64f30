#include "plan/place/place.h"

#include "plan/place/exact.h"
#include "plan/place/fold.h"
#include "plan/place/device_order.h"
#include "plan/place/links.h"
#include "plan/place/refine.h"

#include <stdlib.h>
#include <string.h>

enum {
	SIZES_MAX = 4,           /* different sizes of nodes */
	FOLDS_MAX = 24,          /* weighed exactly if the world is small */
	RANKS_TRIED = 1 << 18,   /* most ranks of all weighed maps, if it is large */
	REFINED_MAX = 128,       /* the largest world whose single ranks are exchanged */
	REFINED_BUDGET = 1 << 18 /* limit on the ranks of all maps weighed for that */
};

/* How the ranks of a node's box are assigned to its devices. */
struct box_devices {
	struct rank_box box;
	int **order; /* [kinds] the devices of each kind; the box's come first */
};

/* State of placing one job. */
struct map_search {
	const struct cluster *c;
	const struct layout *l;
	const struct traffic *t;
	struct group_costs *w;
	struct device_order *homes;
	/* [world] the current map; the devices in the order of boxes */
	struct cluster_slot *slots, *boxes;
	struct cluster_slot *best; /* [world] the best map; memory of the caller */
	struct box_devices *tried; /* one entry for each box that was tried */
	int n_tried;
	int world, devices;
	bool *used; /* [nodes] scratch */
	int *leaf;  /* [switches] scratch */
	int broken; /* leaves of which the best map uses only some nodes */
	struct placement *out;
};

/* --- The best map --- */

/* The number of leaves of which only some nodes are used. Whole leaves are worth more to other
 * jobs. */
static int broken_leaves(struct map_search *m)
{
	const struct cluster *c = m->c;
	int broken = 0;
	if (!c->switches || m->world == m->devices)
		return 0;
	memset(m->used, 0, (size_t)c->n_nodes * sizeof *m->used);
	memset(m->leaf, 0, (size_t)c->n_switches * sizeof *m->leaf);
	for (int r = 0; r < m->world; r++)
		m->used[m->slots[r].node] = true;
	for (int i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].leaf >= 0)
			m->leaf[c->nodes[i].leaf] |= m->used[i] ? 1 : 2;
	for (int i = 0; i < c->n_switches; i++)
		broken += m->leaf[i] == 3;
	return broken;
}

/* Weighs the current map. */
static void weigh_current(struct map_search *m)
{
	struct place_cost cost;
	struct placement *p = m->out;
	int broken = broken_leaves(m);
	place_map_cost(m->w, m->slots, m->t, &cost);
	if (!p->tried || place_better(&p->worst, &cost))
		p->worst = cost;
	if (!p->tried)
		p->block = cost;
	if (!p->tried || place_better(&cost, &p->cost) ||
	    (broken < m->broken && !place_better(&p->cost, &cost))) {
		p->cost = cost;
		m->broken = broken;
		memcpy(m->best, m->slots, (size_t)m->world * sizeof *m->best);
	}
	p->tried++;
}

/* Block order: rank r is the r-th device. */
static void fill_block(struct map_search *m)
{
	for (int r = 0, node = 0, device = 0; r < m->world; r++) {
		for (; device == topo_cluster_kind(m->c, node)->devices; node++)
			device = 0;
		m->slots[r] = (struct cluster_slot){ node, device++ };
	}
}

/* Tensor-parallel groups stay inside nodes; the last devices of a node stay free. Groups for which
 * there is no room in a node share the free devices. */
void place_in_order(const struct cluster *c, const struct layout *l, struct cluster_slot *slots)
{
	int tp = l->tp, world = layout_world(l), r = 0;
	for (int node = 0; node < c->n_nodes; node++)
		for (int device = 0;
		     device + tp <= topo_cluster_kind(c, node)->devices && r < world; device += tp)
			for (int i = 0; i < tp; i++)
				slots[r++] = (struct cluster_slot){ node, device + i };
	for (int node = 0; node < c->n_nodes && r < world; node++) {
		int devices = topo_cluster_kind(c, node)->devices;
		for (int device = devices / tp * tp; device < devices && r < world; device++)
			slots[r++] = (struct cluster_slot){ node, device };
	}
}

/* Slurm's --distribution=cyclic: one rank on each node in turn. */
static void fill_cyclic(struct map_search *m)
{
	for (int r = 0, round = 0; r < m->world; round++)
		for (int node = 0; node < m->c->n_nodes && r < m->world; node++)
			if (round < topo_cluster_kind(m->c, node)->devices)
				m->slots[r++] = (struct cluster_slot){ node, round };
}

/* --- Inside a node --- */

/* Describes a node's box as a job on that node alone. Several boxes on one node count as stages
 * that exchange nothing. */
static bool inner_layout(const struct layout *l, const struct fold *f, int boxes,
			 const struct traffic *t, struct layout *in, struct traffic *said)
{
	const struct rank_box *b = &f->node;
	*in = (struct layout){ .tp = b->tp,
			       .cp = b->cp,
			       .dp = b->dp,
			       .pp = b->pp,
			       .ep = 1,
			       .chunks = b->pp == l->pp ? l->chunks : 1,
			       .vee = l->vee };
	*said = *t;
	if (b->dp > 1)
		in->ep = b->dp < l->ep ? b->dp : l->ep;
	if (b->dp % in->ep)
		in->ep = 1;
	if (boxes > 1 && b->pp == 1) {
		in->pp = boxes;
		memset(said->ops[GROUP_PP], 0, sizeof said->ops[GROUP_PP]);
	}
	if (b->pp != l->pp || boxes > 1)
		memset(said->ops[GROUP_TIE], 0, sizeof said->ops[GROUP_TIE]);
	return boxes == 1 || b->pp == 1;
}

static void take_order(int devices, const struct cluster_slot *slots, int n, int *order)
{
	for (int i = 0; i < n; i++)
		order[i] = slots[i].device;
	for (int d = 0, at = n; d < devices; d++) {
		bool used = false;
		for (int i = 0; i < n; i++)
			used |= order[i] == d;
		if (!used)
			order[at++] = d;
	}
}

/* Sets `order` to the devices of a node of this kind, in the order in which a box's ranks use them.
 * The remaining devices follow. */
static int order_devices(const struct map_search *m, int kind, const struct fold *f, int *order,
			 struct err *e)
{
	struct node_kind *k = &m->c->kinds[kind];
	struct cluster_node node = { .kind = 0, .leaf = -1, .domain = -1 };
	const struct cluster one = { .kinds = k, .n_kinds = 1, .nodes = &node, .n_nodes = 1 };
	int box = place_box_ranks(&f->node), boxes = box <= k->devices ? k->devices / box : 0, n,
	    rc = 0;
	struct layout in;
	struct traffic said;
	struct placement p;
	for (int i = 0; i < k->devices; i++)
		order[i] = i;
	if (m->c->n_nodes == 1 || !k->links || k->switched || !boxes ||
	    !inner_layout(m->l, f, boxes, m->t, &in, &said) || (n = layout_world(&in)) < 2)
		return 0;
	struct cluster_slot *slots = calloc((size_t)n, sizeof *slots);
	if (!slots)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       n);
	rc = place_ranks(&one, &in, &said, false, slots, &p, e);
	if (!rc) {
		take_order(k->devices, slots, n, order);
		place_placement_free(&p);
	}
	free(slots);
	return rc;
}

static int **new_order(const struct cluster *c)
{
	int **order = calloc((size_t)c->n_kinds + 1, sizeof *order);
	for (int k = 0; order && k < c->n_kinds; k++)
		if (!(order[k] = calloc((size_t)c->kinds[k].devices + 1, sizeof **order)))
			return order; /* the caller frees the entries that were made */
	return order;
}

/* Returns NULL if memory is lacking or the devices of a node cannot be ordered. */
static int **order_of(struct map_search *m, const struct fold *f, struct err *e)
{
	int i = 0;
	while (i < m->n_tried && memcmp(&m->tried[i].box, &f->node, sizeof f->node))
		i++;
	if (i < m->n_tried)
		return m->tried[i].order;
	m->tried[i] = (struct box_devices){ f->node, new_order(m->c) };
	m->n_tried++;
	for (int k = 0; k < m->c->n_kinds; k++) {
		if (!m->tried[i].order || !m->tried[i].order[k]) {
			err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
				m->world);
			return NULL;
		}
		if (order_devices(m, k, f, m->tried[i].order[k], e))
			return NULL;
	}
	return m->tried[i].order;
}

static int consider_fold(struct map_search *m, const struct fold *f, struct err *e)
{
	int box = place_box_ranks(&f->node),
	    together = f->levels ? place_box_ranks(&f->below[0]) / box : 1;
	int **order = order_of(m, f, e);
	if (!order)
		return -1;
	for (enum node_order how = NODE_ORDER_GIVEN; how < NODE_ORDERS; how++) {
		if (!place_device_order_fill(m->homes, how, box, m->world / box, together, order,
					     m->boxes))
			continue;
		for (int r = 0; r < m->world; r++)
			m->slots[r] = m->boxes[place_fold_position(m->l, f, r)];
		weigh_current(m);
	}
	return 0;
}

/* Adds the folds for nodes with so many devices to out[n]. Returns their number, -1 if memory is
 * lacking. */
static int list_folds(const struct map_search *m, const struct regular_cluster *regular,
		      int devices, int most, struct fold *out, int n)
{
	bool *fits = calloc((size_t)devices + 1, sizeof *fits);
	if (!fits)
		return -1;
	for (int box = 1; box <= devices; box++)
		fits[box] = place_device_order_fits(m->homes, box, m->world);
	n = place_fold_best(regular, m->l, m->t, devices, fits, most, out, n);
	free(fits);
	return n;
}

static int consider_folds(struct map_search *m, struct err *e)
{
	struct regular_cluster *regular = malloc(sizeof *regular);
	struct fold folds[FOLDS_MAX];
	int sizes[SIZES_MAX], n_sizes = place_device_order_node_sizes(m->homes, sizes, SIZES_MAX),
			      n = 0, rc;
	int each = RANKS_TRIED / m->world;
	each = each < 3 ? 3 : each > FOLDS_MAX ? FOLDS_MAX : each;
	if (!regular)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       m->world);
	rc = place_regular_cluster_of(m->c, regular, e);
	for (int i = 0; !rc && i < n_sizes; i++) {
		int most = n + each / n_sizes + 1;
		n = list_folds(m, regular, sizes[i], most < FOLDS_MAX ? most : FOLDS_MAX, folds, n);
		if (n < 0)
			rc = err_set(e, ERR_NOMEM,
				     "no memory to place %d ranks; close other programs", m->world);
	}
	for (int i = 0; !rc && i < n; i++)
		rc = consider_fold(m, &folds[i], e);
	free(regular);
	return rc;
}

/* Whether it may help to move single ranks: not if all devices are equal and all are used. */
static bool is_irregular(const struct map_search *m)
{
	for (int i = 0; i < m->c->n_kinds; i++)
		if (m->c->n_kinds > 1 || (m->c->kinds[i].links && !m->c->kinds[i].switched))
			return true;
	return m->world < m->devices || m->c->switches;
}

static int refine_best(struct map_search *m, struct err *e)
{
	struct placement *p = m->out;
	if (m->devices <= PLACE_EXACT) {
		p->proven = true;
		return place_exact_best(m->c, m->l, m->t, m->w, m->best, &p->cost, &p->bounds, e);
	}
	if (m->world > REFINED_MAX || !is_irregular(m))
		return 0;
	int tried = place_refine_map(m->c, m->l, m->t, m->w, REFINED_BUDGET / m->world, m->best,
				     &p->cost, e);
	p->tried += tried > 0 ? tried : 0;
	return tried < 0 ? -1 : 0;
}

static int place_all(struct map_search *m, struct err *e)
{
	fill_block(m);
	weigh_current(m);
	place_in_order(m->c, m->l, m->slots);
	weigh_current(m);
	fill_cyclic(m);
	weigh_current(m);
	if (consider_folds(m, e))
		return -1;
	return refine_best(m, e);
}

static void place_fixed(struct map_search *m)
{
	fill_block(m);
	weigh_current(m);
	fill_cyclic(m);
	weigh_current(m);
	place_in_order(m->c, m->l, m->slots);
	weigh_current(m);
	memcpy(m->best, m->slots, (size_t)m->world * sizeof *m->best);
	place_map_cost(m->w, m->slots, m->t, &m->out->cost);
	m->out->fixed = true;
}

/* --- Unused nodes and devices --- */

static int list_spares(struct map_search *m, struct err *e)
{
	struct placement *p = m->out;
	p->spares = calloc((size_t)m->c->n_nodes + 1, sizeof *p->spares);
	if (!p->spares)
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       m->c->n_nodes);
	memset(m->used, 0, (size_t)m->c->n_nodes * sizeof *m->used);
	for (int r = 0; r < m->world; r++)
		m->used[m->best[r].node] = true;
	p->idle = m->devices - m->world;
	for (int i = 0; i < m->c->n_nodes; i++) {
		int devices = topo_cluster_kind(m->c, i)->devices;
		if (m->used[i] || devices == 0)
			continue;
		p->spares[p->n_spares++] = i;
		p->idle -= devices;
	}
	fill_block(m);
	p->is_block = !memcmp(m->slots, m->best, (size_t)m->world * sizeof *m->slots);
	return 0;
}

/* --- The whole search --- */

static int map_search_open(struct map_search *m, struct err *e)
{
	size_t world = (size_t)m->world;
	m->slots = calloc(world, sizeof *m->slots);
	m->boxes = calloc(world, sizeof *m->boxes);
	m->tried = calloc(FOLDS_MAX, sizeof *m->tried);
	m->used = calloc((size_t)m->c->n_nodes + 1, sizeof *m->used);
	m->leaf = calloc((size_t)m->c->n_switches + 1, sizeof *m->leaf);
	if (!m->slots || !m->boxes || !m->tried || !m->used || !m->leaf)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       m->world);
	return place_group_costs_open(m->c, m->l, &m->w, e) ||
			       place_device_order_open(m->c, &m->homes, e)
		       ? -1
		       : 0;
}

static void map_search_close(struct map_search *m)
{
	for (int i = 0; i < m->n_tried; i++) {
		for (int k = 0; m->tried[i].order && k < m->c->n_kinds; k++)
			free(m->tried[i].order[k]);
		free(m->tried[i].order);
	}
	free(m->tried);
	free(m->used);
	free(m->leaf);
	free(m->slots);
	free(m->boxes);
	place_group_costs_close(m->w);
	place_device_order_close(m->homes);
}

int place_ranks(const struct cluster *c, const struct layout *l, const struct traffic *t,
		bool fixed, struct cluster_slot *slots, struct placement *out, struct err *e)
{
	struct placement p = { 0 };
	struct map_search m = { .c = c,
				.l = l,
				.t = t,
				.world = layout_world(l),
				.devices = topo_cluster_devices(c),
				.best = slots,
				.out = &p };
	int rc = map_search_open(&m, e);
	if (!rc && fixed)
		place_fixed(&m);
	else if (!rc)
		rc = place_all(&m, e);
	if (!rc)
		rc = list_spares(&m, e);
	if (!rc)
		place_links_of(c, l, t, m.w, slots, p.links);
	map_search_close(&m);
	if (rc)
		place_placement_free(&p);
	else
		*out = p;
	return rc;
}

void place_placement_free(struct placement *p)
{
	free(p->spares);
	*p = (struct placement){ 0 };
}
