#include "plan/place/place.h"

#include "plan/place/exact.h"
#include "plan/place/fold.h"
#include "plan/place/homes.h"
#include "plan/place/links.h"
#include "plan/place/refine.h"

#include <stdlib.h>
#include <string.h>

enum {
	SIZES_MOST = 4,          /* different sizes of nodes */
	FOLDS_MOST = 24,         /* weighed exactly if the world is small */
	RANKS_WEIGHED = 1 << 18, /* most ranks of all weighed maps, if it is large */
	REFINED_MOST = 128,      /* the largest world whose single ranks are exchanged */
	REFINED_BUDGET = 1 << 18 /* limit on the ranks of all maps weighed for that */
};

/* How the ranks of a node's box are assigned to its devices. */
struct dealt {
	struct rank_box box;
	int **order; /* [kinds] the devices of each kind; the box's come first */
};

/* State of placing one job. */
struct yard {
	const struct cluster *c;
	const struct layout *l;
	const struct traffic *t;
	struct weigh *w;
	struct homes *homes;
	/* [world] the current map; the devices in the order of boxes */
	struct cluster_slot *slots, *boxes;
	struct cluster_slot *best; /* [world] the best map; memory of the caller */
	struct dealt *dealt;       /* one entry for each box that was tried */
	int n_dealt;
	int world, devices;
	bool *used; /* [nodes] scratch */
	int *leaf;  /* [switches] scratch */
	int broken; /* leaves of which the best map uses only some nodes */
	struct placement *out;
};

/* --- The best map --- */

/* The number of leaves of which only some nodes are used. Whole leaves are worth more to other
 * jobs. */
static int broken_leaves(struct yard *y)
{
	const struct cluster *c = y->c;
	int broken = 0;
	if (!c->switches || y->world == y->devices)
		return 0;
	memset(y->used, 0, (size_t)c->n_nodes * sizeof *y->used);
	memset(y->leaf, 0, (size_t)c->n_switches * sizeof *y->leaf);
	for (int r = 0; r < y->world; r++)
		y->used[y->slots[r].node] = true;
	for (int i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].leaf >= 0)
			y->leaf[c->nodes[i].leaf] |= y->used[i] ? 1 : 2;
	for (int i = 0; i < c->n_switches; i++)
		broken += y->leaf[i] == 3;
	return broken;
}

/* Weighs the current map. */
static void consider(struct yard *y)
{
	struct place_cost cost;
	struct placement *p = y->out;
	int broken = broken_leaves(y);
	place_weigh(y->w, y->slots, y->t, &cost);
	if (!p->weighed || place_better(&p->worst, &cost))
		p->worst = cost;
	if (!p->weighed)
		p->block = cost;
	if (!p->weighed || place_better(&cost, &p->cost) ||
	    (broken < y->broken && !place_better(&p->cost, &cost))) {
		p->cost = cost;
		y->broken = broken;
		memcpy(y->best, y->slots, (size_t)y->world * sizeof *y->best);
	}
	p->weighed++;
}

/* Block order: rank r is the r-th device. */
static void fill_block(struct yard *y)
{
	for (int r = 0, node = 0, device = 0; r < y->world; r++) {
		for (; device == topo_cluster_kind(y->c, node)->devices; node++)
			device = 0;
		y->slots[r] = (struct cluster_slot){ node, device++ };
	}
}

/* Block order in which tensor-parallel groups stay inside nodes; the last devices of a node stay
 * free. Groups for which there is no room in a node share the free devices. */
static void fill_whole(struct yard *y)
{
	int tp = y->l->tp, r = 0;
	for (int node = 0; node < y->c->n_nodes; node++)
		for (int device = 0;
		     device + tp <= topo_cluster_kind(y->c, node)->devices && r < y->world;
		     device += tp)
			for (int i = 0; i < tp; i++)
				y->slots[r++] = (struct cluster_slot){ node, device + i };
	for (int node = 0; node < y->c->n_nodes && r < y->world; node++) {
		int devices = topo_cluster_kind(y->c, node)->devices;
		for (int device = devices / tp * tp; device < devices && r < y->world; device++)
			y->slots[r++] = (struct cluster_slot){ node, device };
	}
}

/* Slurm's --distribution=cyclic: one rank on each node in turn. */
static void fill_cyclic(struct yard *y)
{
	for (int r = 0, round = 0; r < y->world; round++)
		for (int node = 0; node < y->c->n_nodes && r < y->world; node++)
			if (round < topo_cluster_kind(y->c, node)->devices)
				y->slots[r++] = (struct cluster_slot){ node, round };
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
static int order_devices(const struct yard *y, int kind, const struct fold *f, int *order,
			 struct err *e)
{
	struct node_kind *k = &y->c->kinds[kind];
	struct cluster_node node = { .kind = 0, .leaf = -1, .domain = -1 };
	const struct cluster one = { .kinds = k, .n_kinds = 1, .nodes = &node, .n_nodes = 1 };
	int box = place_fold_box(&f->node), boxes = box <= k->devices ? k->devices / box : 0, n,
	    rc = 0;
	struct layout in;
	struct traffic said;
	struct placement p;
	for (int i = 0; i < k->devices; i++)
		order[i] = i;
	if (y->c->n_nodes == 1 || !k->links || k->switched || !boxes ||
	    !inner_layout(y->l, f, boxes, y->t, &in, &said) || (n = layout_world(&in)) < 2)
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
static int **order_of(struct yard *y, const struct fold *f, struct err *e)
{
	int i = 0;
	while (i < y->n_dealt && memcmp(&y->dealt[i].box, &f->node, sizeof f->node))
		i++;
	if (i < y->n_dealt)
		return y->dealt[i].order;
	y->dealt[i] = (struct dealt){ f->node, new_order(y->c) };
	y->n_dealt++;
	for (int k = 0; k < y->c->n_kinds; k++) {
		if (!y->dealt[i].order || !y->dealt[i].order[k]) {
			err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
				y->world);
			return NULL;
		}
		if (order_devices(y, k, f, y->dealt[i].order[k], e))
			return NULL;
	}
	return y->dealt[i].order;
}

static int consider_fold(struct yard *y, const struct fold *f, struct err *e)
{
	int box = place_fold_box(&f->node),
	    together = f->levels ? place_fold_box(&f->below[0]) / box : 1;
	int **order = order_of(y, f, e);
	if (!order)
		return -1;
	for (enum homes_order how = HOMES_GIVEN; how < HOMES_ORDERS; how++) {
		if (!place_homes_fill(y->homes, how, box, y->world / box, together, order,
				      y->boxes))
			continue;
		for (int r = 0; r < y->world; r++)
			y->slots[r] = y->boxes[place_fold_place(y->l, f, r)];
		consider(y);
	}
	return 0;
}

/* Adds the folds for nodes with so many devices to out[n]. Returns their number, -1 if memory is
 * lacking. */
static int list_folds(const struct yard *y, const struct regular_cluster *regular, int devices,
		      int most, struct fold *out, int n)
{
	bool *fits = calloc((size_t)devices + 1, sizeof *fits);
	if (!fits)
		return -1;
	for (int box = 1; box <= devices; box++)
		fits[box] = place_homes_fit(y->homes, box, y->world);
	n = place_fold_best(regular, y->l, y->t, devices, fits, most, out, n);
	free(fits);
	return n;
}

static int consider_folds(struct yard *y, struct err *e)
{
	struct regular_cluster *regular = malloc(sizeof *regular);
	struct fold folds[FOLDS_MOST];
	int sizes[SIZES_MOST], n_sizes = place_homes_sizes(y->homes, sizes, SIZES_MOST), n = 0, rc;
	int each = RANKS_WEIGHED / y->world;
	each = each < 3 ? 3 : each > FOLDS_MOST ? FOLDS_MOST : each;
	if (!regular)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       y->world);
	rc = place_regular_cluster_of(y->c, regular, e);
	for (int i = 0; !rc && i < n_sizes; i++) {
		int most = n + each / n_sizes + 1;
		n = list_folds(y, regular, sizes[i], most < FOLDS_MOST ? most : FOLDS_MOST, folds,
			       n);
		if (n < 0)
			rc = err_set(e, ERR_NOMEM,
				     "no memory to place %d ranks; close other programs", y->world);
	}
	for (int i = 0; !rc && i < n; i++)
		rc = consider_fold(y, &folds[i], e);
	free(regular);
	return rc;
}

/* Whether it may help to move single ranks: not if all devices are equal and all are used. */
static bool irregular(const struct yard *y)
{
	for (int i = 0; i < y->c->n_kinds; i++)
		if (y->c->n_kinds > 1 || (y->c->kinds[i].links && !y->c->kinds[i].switched))
			return true;
	return y->world < y->devices || y->c->switches;
}

static int refine(struct yard *y, struct err *e)
{
	struct placement *p = y->out;
	if (y->devices <= PLACE_EXACT) {
		p->proven = true;
		return place_exact_best(y->c, y->l, y->t, y->w, y->best, &p->cost, e);
	}
	if (y->world > REFINED_MOST || !irregular(y))
		return 0;
	int weighed = place_refine_map(y->c, y->l, y->t, y->w, REFINED_BUDGET / y->world, y->best,
				       &p->cost, e);
	p->weighed += weighed > 0 ? weighed : 0;
	return weighed < 0 ? -1 : 0;
}

static int place_all(struct yard *y, struct err *e)
{
	fill_block(y);
	consider(y);
	fill_whole(y);
	consider(y);
	fill_cyclic(y);
	consider(y);
	if (consider_folds(y, e))
		return -1;
	return refine(y, e);
}

static void place_fixed(struct yard *y)
{
	fill_block(y);
	consider(y);
	fill_cyclic(y);
	consider(y);
	fill_whole(y);
	consider(y);
	memcpy(y->best, y->slots, (size_t)y->world * sizeof *y->best);
	place_weigh(y->w, y->slots, y->t, &y->out->cost);
	y->out->fixed = true;
}

/* --- Unused nodes and devices --- */

static int list_spares(struct yard *y, struct err *e)
{
	struct placement *p = y->out;
	p->spares = calloc((size_t)y->c->n_nodes + 1, sizeof *p->spares);
	if (!p->spares)
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       y->c->n_nodes);
	memset(y->used, 0, (size_t)y->c->n_nodes * sizeof *y->used);
	for (int r = 0; r < y->world; r++)
		y->used[y->best[r].node] = true;
	p->idle = y->devices - y->world;
	for (int i = 0; i < y->c->n_nodes; i++) {
		int devices = topo_cluster_kind(y->c, i)->devices;
		if (y->used[i] || devices == 0)
			continue;
		p->spares[p->n_spares++] = i;
		p->idle -= devices;
	}
	fill_block(y);
	p->is_block = !memcmp(y->slots, y->best, (size_t)y->world * sizeof *y->slots);
	return 0;
}

/* --- The whole search --- */

static int yard_open(struct yard *y, struct err *e)
{
	size_t world = (size_t)y->world;
	y->slots = calloc(world, sizeof *y->slots);
	y->boxes = calloc(world, sizeof *y->boxes);
	y->dealt = calloc(FOLDS_MOST, sizeof *y->dealt);
	y->used = calloc((size_t)y->c->n_nodes + 1, sizeof *y->used);
	y->leaf = calloc((size_t)y->c->n_switches + 1, sizeof *y->leaf);
	if (!y->slots || !y->boxes || !y->dealt || !y->used || !y->leaf)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       y->world);
	return place_weigh_open(y->c, y->l, &y->w, e) || place_homes_open(y->c, &y->homes, e) ? -1
											      : 0;
}

static void yard_close(struct yard *y)
{
	for (int i = 0; i < y->n_dealt; i++) {
		for (int k = 0; y->dealt[i].order && k < y->c->n_kinds; k++)
			free(y->dealt[i].order[k]);
		free(y->dealt[i].order);
	}
	free(y->dealt);
	free(y->used);
	free(y->leaf);
	free(y->slots);
	free(y->boxes);
	place_weigh_close(y->w);
	place_homes_close(y->homes);
}

int place_ranks(const struct cluster *c, const struct layout *l, const struct traffic *t,
		bool fixed, struct cluster_slot *slots, struct placement *out, struct err *e)
{
	struct placement p = { 0 };
	struct yard y = { .c = c,
			  .l = l,
			  .t = t,
			  .world = layout_world(l),
			  .devices = topo_cluster_devices(c),
			  .best = slots,
			  .out = &p };
	int rc = yard_open(&y, e);
	if (!rc && fixed)
		place_fixed(&y);
	else if (!rc)
		rc = place_all(&y, e);
	if (!rc)
		rc = list_spares(&y, e);
	if (!rc)
		place_links_of(c, l, t, y.w, slots, p.links);
	yard_close(&y);
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
