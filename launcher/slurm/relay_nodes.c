#include "launcher/slurm/relay_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers the nodes that have ranks. */
static void number_nodes(struct relay_nodes *all, const struct launch_request *r, int *number)
{
	const struct cluster *c = r->cluster;
	for (int i = 0; i < c->n_nodes; i++)
		number[i] = -1;
	for (int rank = 0; rank < all->world; rank++)
		number[r->plan->ranks[rank].node] = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		if (number[i] < 0)
			continue;
		number[i] = all->n;
		snprintf(all->list[all->n++].name, TOPO_NAME, "%s", c->nodes[i].name);
	}
	for (int rank = 0; rank < all->world; rank++) {
		const struct plan_rank *p = &r->plan->ranks[rank];
		all->node_of[rank] = number[p->node];
		all->threads[rank] = p->threads > 0 ? p->threads : 1;
		all->list[number[p->node]].left++;
	}
}

int slurm_relay_nodes_open(struct relay_nodes *all, const struct launch_request *r, struct err *e)
{
	size_t world = (size_t)r->plan->world, nodes = (size_t)r->cluster->n_nodes;
	int *number = calloc(nodes, sizeof *number);
	*all = (struct relay_nodes){ .world = r->plan->world };
	all->list = calloc(nodes, sizeof *all->list);
	all->node_of = calloc(world, sizeof *all->node_of);
	all->threads = calloc(world, sizeof *all->threads);
	all->ended = calloc(world, sizeof *all->ended);
	bool there = number && all->list && all->node_of && all->threads && all->ended;
	if (there)
		number_nodes(all, r, number);
	free(number);
	if (there)
		return 0;
	slurm_relay_nodes_close(all);
	return err_set(e, ERR_NOMEM, "no memory for the helpers of %zu nodes", nodes);
}

void slurm_relay_nodes_close(struct relay_nodes *all)
{
	for (int i = 0; i < all->n; i++)
		parts_fini(&all->list[i].put);
	free(all->list);
	free(all->node_of);
	free(all->threads);
	free(all->ended);
	*all = (struct relay_nodes){ 0 };
}

int slurm_relay_nodes_find(const struct relay_nodes *all, const char *name)
{
	int i = all->n - 1;
	while (i >= 0 && strcmp(all->list[i].name, name) != 0)
		i--;
	return i;
}

json_t *slurm_relay_nodes_map(const struct relay_nodes *all)
{
	json_t *list = json_array();
	for (int r = 0; list && r < all->world; r++)
		json_array_append_new(list, json_integer(all->node_of[r]));
	return list;
}

json_t *slurm_relay_nodes_start(const struct relay_nodes *all, int node, json_t *start)
{
	json_t *body = json_copy(start), *threads = json_array();
	for (int r = 0; threads && r < all->world; r++)
		if (all->node_of[r] == node)
			json_array_append_new(threads, json_integer(all->threads[r]));
	json_object_set_new(body, "node", json_integer(node));
	json_object_set_new(body, "threads", threads);
	return body;
}

int slurm_relay_nodes_put(struct relay_nodes *all, struct relay_node *n,
			  const struct msg_helper_part *m, struct err *e)
{
	if (n->complete)
		return err_set(e, ERR_PROTO,
			       "the helper has sent a part of a fence that is not "
			       "open");
	int got = parts_add(&n->put, m, e);
	if (got != 1)
		return got;
	n->complete = true;
	return ++all->complete == all->n;
}

int slurm_relay_nodes_collect(struct relay_nodes *all, struct buf *out, struct err *e)
{
	buf_clear(out);
	for (int i = 0; i < all->n; i++) {
		struct relay_node *n = &all->list[i];
		buf_add(out, n->put.data.data, n->put.data.len);
		parts_renew(&n->put);
		n->complete = false;
	}
	all->complete = 0;
	if (buf_failed(out))
		return err_set(e, ERR_NOMEM, "no memory for what the ranks have published");
	return parts_count(out->len) < 0
		       ? err_set(e, ERR_UNSUPPORTED,
				 "the ranks have published %zu bytes, which is too much", out->len)
		       : 0;
}
