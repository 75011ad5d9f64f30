#include "placed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct layout placed_layout(int tp, int cp, int dp, int ep, int pp)
{
	return (struct layout){ .tp = tp, .cp = cp, .dp = dp, .ep = ep, .pp = pp, .chunks = 1 };
}

struct traffic placed_traffic(void)
{
	struct traffic t = { 0 };
	t.ops[GROUP_TP][0] = (struct traffic_op){ 64e6, 200 };
	t.ops[GROUP_CP][0] = (struct traffic_op){ 16e6, 200 };
	t.ops[GROUP_EP][0] = (struct traffic_op){ 32e6, 200 };
	t.ops[GROUP_DP][0] = (struct traffic_op){ 1e9, 1 };
	t.ops[GROUP_EDP][0] = (struct traffic_op){ 1e9, 1 };
	t.ops[GROUP_PP][0] = (struct traffic_op){ 8e6, 32 };
	t.ops[GROUP_TIE][0] = (struct traffic_op){ 1e8, 1 };
	t.hidden[GROUP_DP] = 0.5;
	return t;
}

void place_by_traffic(const struct cluster *c, struct layout l, struct placed_ranks *s)
{
	struct traffic t = placed_traffic();
	struct err e = ERR_INIT;
	assert_true(layout_world(&l) <= PLACED_MAX);
	if (place_ranks(c, &l, &t, false, s->slots, &s->p, &e))
		fail_msg("%s", e.text);
}

void must_be_a_map(const struct cluster *c, const struct cluster_slot *slots, int world)
{
	bool *used = calloc((size_t)topo_cluster_devices(c) * (size_t)c->n_nodes + 1, sizeof *used);
	for (int r = 0; r < world; r++) {
		assert_in_range(slots[r].node, 0, c->n_nodes - 1);
		assert_in_range(slots[r].device, 0,
				topo_cluster_kind(c, slots[r].node)->devices - 1);
		bool *u = &used[slots[r].node * topo_cluster_devices(c) + slots[r].device];
		assert_false(*u);
		*u = true;
	}
	free(used);
}
