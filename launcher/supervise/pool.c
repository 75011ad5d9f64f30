#include "launcher/supervise/pool.h"

#include "base/human.h"

#include <stdlib.h>
#include <string.h>

int supervise_pool_open(struct pool *p, const struct cluster *machines, int64_t exclude_after,
			struct err *e)
{
	*p = (struct pool){ .machines = machines, .exclude_after = exclude_after };
	p->nodes = calloc((size_t)machines->n_nodes, sizeof *p->nodes);
	if (!p->nodes)
		return err_set(e, ERR_NOMEM, "no memory for the states of %d nodes",
			       machines->n_nodes);
	for (int i = 0; i < machines->n_nodes; i++)
		p->nodes[i].state = NODE_UP;
	return 0;
}

void supervise_pool_close(struct pool *p)
{
	free(p->nodes);
	free(p->gone);
	*p = (struct pool){ 0 };
}

int supervise_pool_find_near(const struct pool *p, const char *name, int near)
{
	int n = p->machines->n_nodes;
	for (int i = 0; i < n; i++) {
		int node = (near + i) % n;
		if (!strcmp(p->machines->nodes[node].name, name))
			return node;
	}
	return -1;
}

int supervise_pool_find(const struct pool *p, const char *name)
{
	return supervise_pool_find_near(p, name, 0);
}

bool supervise_pool_usable(const struct pool *p, int node)
{
	const struct pool_node *n = &p->nodes[node];
	return n->state == NODE_UP && !n->excluded && !n->unfit && !n->slow;
}

bool supervise_pool_is_dead(const struct pool *p, int node)
{
	enum node_state state = p->nodes[node].state;
	return state == NODE_DOWN || state == NODE_LEFT || state == NODE_UNREACHABLE;
}

static int count_gone(const struct pool *p, int node)
{
	int n = 0;
	for (int i = 0; i < p->n_gone; i++)
		n += p->gone[i].node == node;
	return n;
}

static bool device_is_gone(const struct pool *p, int node, int device)
{
	for (int i = 0; i < p->n_gone; i++)
		if (p->gone[i].node == node && p->gone[i].device == device)
			return true;
	return false;
}

/* Devices without a name are interchangeable, so their number is enough. */
static bool covers_device(const struct pool *p, int node, const struct node_kind *used,
			  const struct plan_rank *rank)
{
	const struct node_kind *all = topo_cluster_kind(p->machines, node);
	if (!used->parts || !all->parts)
		return rank->node_ranks <= all->devices - count_gone(p, node);
	for (int d = 0; d < all->devices; d++)
		if (!strcmp(used->parts[rank->slot].name, all->parts[d].name))
			return !device_is_gone(p, node, d);
	return false;
}

bool supervise_pool_covers(const struct pool *p, const struct deployment *used)
{
	const struct cluster *c = &used->cluster;
	int node = 0;
	for (int r = 0; r < used->plan.world; r++) {
		const struct plan_rank *rank = &used->plan.ranks[r];
		node = supervise_pool_find_near(p, c->nodes[rank->node].name, node);
		if (node < 0 || !supervise_pool_usable(p, node) ||
		    !covers_device(p, node, topo_cluster_kind(c, rank->node), rank))
			return false;
	}
	return true;
}

bool supervise_pool_may_return(const struct pool *p)
{
	for (int i = 0; i < p->machines->n_nodes; i++)
		if (p->nodes[i].state != NODE_UP && p->nodes[i].state != NODE_LEFT &&
		    !p->nodes[i].excluded && !p->nodes[i].slow)
			return true;
	return false;
}

void supervise_pool_survey(struct pool *p, const struct survey *s)
{
	for (int i = 0; i < p->machines->n_nodes && i < s->n_nodes; i++) {
		if (s->nodes[i] == NODE_UNKNOWN)
			continue;
		if (p->nodes[i].state != NODE_UP && s->nodes[i] == NODE_UP)
			p->nodes[i].returned = true;
		if (s->nodes[i] != NODE_UP)
			p->nodes[i].passed = p->nodes[i].unfit = false;
		p->nodes[i].state = s->nodes[i];
	}
}

int supervise_pool_count(const struct pool *p)
{
	int n = 0;
	for (int i = 0; i < p->machines->n_nodes; i++)
		n += supervise_pool_usable(p, i);
	return n;
}

void supervise_pool_blame(struct pool *p, int node, double now)
{
	struct pool_node *n = &p->nodes[node];
	if (now - n->fault_at >= POOL_FAULT_MEMORY)
		n->faults = 0;
	n->faults++;
	n->fault_at = now;
	bool bad = n->returned || n->suspect ||
		   (p->exclude_after > 0 && n->faults >= p->exclude_after);
	if (bad && supervise_pool_count(p) > supervise_pool_usable(p, node))
		n->excluded = true;
}

void supervise_pool_leave(struct pool *p, int node, bool leave)
{
	p->nodes[node].slow = p->nodes[node].was_slow = leave;
}

void supervise_pool_check(struct pool *p, int node, bool passed)
{
	p->nodes[node].passed = passed;
	p->nodes[node].unfit = !passed;
}

void supervise_pool_return_all(struct pool *p)
{
	for (int i = 0; i < p->machines->n_nodes; i++)
		p->nodes[i].returned = true;
}

void supervise_pool_check_again(struct pool *p, int node)
{
	p->nodes[node].unfit = false;
	p->nodes[node].returned = true;
}

bool supervise_pool_use_again(struct pool *p)
{
	bool any = p->n_gone > 0;
	p->n_gone = 0;
	for (int i = 0; i < p->machines->n_nodes; i++) {
		struct pool_node *n = &p->nodes[i];
		bool unfit = n->unfit && n->returned;
		if (n->state == NODE_UP && (unfit || ((n->excluded || n->slow) && !n->unfit))) {
			n->excluded = n->unfit = n->returned = n->slow = false;
			n->faults = 0;
			any = true;
		}
	}
	return any;
}

void supervise_pool_confirm(struct pool *p)
{
	for (int i = 0; i < p->machines->n_nodes; i++)
		p->nodes[i].returned = false;
}

int supervise_pool_lose_device(struct pool *p, int node, const char *name, struct err *e)
{
	const struct node_kind *k = topo_cluster_kind(p->machines, node);
	int device = -1;
	for (int d = k->devices - 1; d >= 0 && device < 0; d--)
		if (!device_is_gone(p, node, d) &&
		    (!*name || (k->parts && !strcmp(k->parts[d].name, name))))
			device = d;
	if (device < 0)
		return 0; /* it is gone already */
	struct cluster_slot *gone = realloc(p->gone, (size_t)(p->n_gone + 1) * sizeof *gone);
	if (!gone)
		return err_set(e, ERR_NOMEM, "no memory for the devices that are gone");
	p->gone = gone;
	p->gone[p->n_gone++] = (struct cluster_slot){ node, device };
	return 0;
}

int supervise_pool_cluster(const struct pool *p, struct cluster *out, struct err *e)
{
	int n = p->n_gone, nodes = p->machines->n_nodes;
	struct cluster_slot *without = calloc((size_t)(n + nodes), sizeof *without);
	if (!without)
		return err_set(e, ERR_NOMEM, "no memory for the nodes that are left");
	if (n)
		memcpy(without, p->gone, (size_t)n * sizeof *without);
	for (int i = 0; i < nodes; i++)
		if (!supervise_pool_usable(p, i))
			without[n++] = (struct cluster_slot){ i, -1 };
	int rc = topo_cluster_without(p->machines, without, n, out, e);
	free(without);
	return rc;
}

int supervise_pool_describe(const struct pool *p, struct buf *out)
{
	int n = 0;
	for (int i = 0; i < p->machines->n_nodes; i++) {
		const struct pool_node *node = &p->nodes[i];
		int gone = count_gone(p, i);
		if (supervise_pool_usable(p, i) && !gone)
			continue;
		buf_printf(out, "%s%s ", n++ ? ", " : "", p->machines->nodes[i].name);
		if (node->state != NODE_UP)
			buf_puts(out, launcher_node_state_text(node->state));
		else if (node->excluded)
			buf_printf(out, "was excluded after %lld fault%s", (long long)node->faults,
				   human_s(node->faults));
		else if (node->unfit)
			buf_puts(out, "failed its check");
		else if (node->slow)
			buf_puts(out, "is slow");
		else
			buf_printf(out, "has lost %d device%s", gone, human_s(gone));
	}
	return n;
}

void supervise_pool_lost_names(const struct pool *p, struct buf *out)
{
	int n = 0;
	for (int i = 0; i < p->machines->n_nodes; i++)
		if (!supervise_pool_usable(p, i) && p->nodes[i].state != NODE_LEFT)
			buf_printf(out, "%s%s", n++ ? "," : "", p->machines->nodes[i].name);
}
