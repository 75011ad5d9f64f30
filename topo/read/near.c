#include "topo/read/near.h"

#include "topo/internal.h"

#include <stdlib.h>

static double lower_bandwidth(double a, double b)
{
	return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* Goes one place up; counts the bridges on the way and keeps the lowest bandwidth of their
 * links. */
static int put_step(const struct found_node *m, int at, int *passed, double *bandwidth)
{
	const struct found_place *p = &m->places[at];
	*passed += p->kind == FOUND_SWITCH || p->kind == FOUND_PORT;
	*bandwidth = lower_bandwidth(p->bandwidth, *bandwidth);
	return p->parent;
}

/* Classifies the path between two places by its worst bridge; *bandwidth is that of its slowest
 * link (0: unknown). */
static enum link_kind near_places(const struct found_node *m, int a, int b, double *bandwidth)
{
	int from_a = 0, from_b = 0;
	*bandwidth = 0;
	if (a < 0 || b < 0)
		return LINK_UNKNOWN;
	while (a != b && a >= 0 && b >= 0) {
		int deep_a = m->places[a].depth, deep_b = m->places[b].depth;
		if (deep_a >= deep_b)
			a = put_step(m, a, &from_a, bandwidth);
		if (deep_b >= deep_a)
			b = put_step(m, b, &from_b, bandwidth);
	}
	if (a < 0 || a != b)
		return LINK_SYS;
	switch (m->places[a].kind) {
	case FOUND_SWITCH:
		return from_a || from_b ? LINK_PXB : LINK_PIX;
	case FOUND_PORT:
		return from_a > 1 || from_b > 1 ? LINK_PXB : LINK_PIX;
	case FOUND_HOST:
		return LINK_PHB;
	case FOUND_NUMA:
		return LINK_NODE;
	case FOUND_MACHINE:
		break;
	}
	return LINK_SYS;
}

struct topo_link topo_near_gpus(const struct found_node *m, int a, int b)
{
	const struct found_gpu *x = &m->gpus[a], *y = &m->gpus[b];
	struct topo_link l = { .kind = LINK_UNKNOWN };
	if (m->near)
		l.kind = m->near[(size_t)a * (size_t)(m->n_gpus + m->n_nics) + (size_t)b];
	else
		l.kind = near_places(m, x->place, y->place, &l.bandwidth);
	l.bandwidth = lower_bandwidth(lower_bandwidth(x->pcie, y->pcie), l.bandwidth);
	if (l.kind == LINK_SYS && l.bandwidth > SYS_BANDWIDTH)
		l.bandwidth = SYS_BANDWIDTH;
	l.latency = topo_link_latency(l.kind);
	return l;
}

static enum link_kind near_nic(const struct found_node *m, int gpu, int nic)
{
	double unused;
	if (m->near)
		return m->near[(size_t)gpu * (size_t)(m->n_gpus + m->n_nics) +
			       (size_t)(m->n_gpus + nic)];
	return near_places(m, m->gpus[gpu].place, m->nics[nic].place, &unused);
}

int topo_near_assign(const struct found_node *m, const int *order, int devices,
		     struct topo_device *parts, struct err *e)
{
	int *users = calloc((size_t)m->n_nics + 1, sizeof *users);
	double fastest = 0;
	if (!users)
		return err_set(e, ERR_NOMEM, "%s: no memory for its adapters", m->file);
	for (int i = 0; i < m->n_nics; i++)
		fastest = m->nics[i].bandwidth > fastest ? m->nics[i].bandwidth : fastest;
	for (int d = 0; d < devices; d++) {
		int best = -1;
		enum link_kind nearest = LINK_UNKNOWN;
		for (int i = 0; i < m->n_nics; i++) {
			/* A NIC that is known to be far slower is for management. */
			if (m->nics[i].bandwidth > 0 && m->nics[i].bandwidth < fastest / 8)
				continue;
			enum link_kind kind = near_nic(m, order[d], i);
			if (best < 0 || kind > nearest ||
			    (kind == nearest && users[i] < users[best])) {
				best = i;
				nearest = kind;
			}
		}
		parts[d].nic = best;
		parts[d].nic_link = nearest;
		if (best >= 0)
			users[best]++;
	}
	free(users);
	return 0;
}
