#include "topo/read/smi.h"

static int lanes_of(const struct smi_table *t, int a, int b)
{
	return t->lanes[(size_t)a * (size_t)t->gpus + (size_t)b];
}

static double lane_of(const struct smi_table *t)
{
	return t->model && t->model->lane > 0 ? t->model->lane : NVLINK_LANE;
}

static int root_of(struct found_node *m, int i)
{
	while (m->gpus[i].fabric != i)
		i = m->gpus[i].fabric = m->gpus[m->gpus[i].fabric].fabric;
	return i;
}

/* Finds the GPUs that NVLinks join, directly or through other GPUs. One GPU represents each
 * fabric. */
static void find_fabrics(const struct smi_table *t, struct found_node *m)
{
	for (int i = 0; i < t->gpus; i++)
		m->gpus[i].fabric = i;
	for (int i = 0; i < t->gpus; i++)
		for (int j = 0; j < t->gpus; j++)
			if (lanes_of(t, i, j))
				m->gpus[root_of(m, j)].fabric = root_of(m, i);
	for (int i = 0; i < t->gpus; i++)
		m->gpus[i].fabric = root_of(m, i);
}

/* Whether the NVLinks of a fabric are ports to a switch: they join all pairs of its GPUs, and the
 * lanes to all peers add up to more than a GPU has. */
static bool is_switched(const struct smi_table *t, const struct found_node *m, int fabric)
{
	long most = 0;
	for (int i = 0; i < t->gpus; i++) {
		long sum = 0;
		for (int j = 0; j < t->gpus && m->gpus[i].fabric == fabric; j++) {
			if (i != j && m->gpus[j].fabric == fabric && !lanes_of(t, i, j))
				return false;
			sum += lanes_of(t, i, j);
		}
		most = sum > most ? sum : most;
	}
	return most > SMI_LANES;
}

static void take_ports(const struct smi_table *t, struct found_node *m)
{
	find_fabrics(t, m);
	for (int f = 0; f < t->gpus; f++) {
		if (m->gpus[f].fabric != f || !is_switched(t, m, f))
			continue;
		for (int i = 0; i < t->gpus; i++)
			for (int j = 0; j < t->gpus && m->gpus[i].fabric == f; j++)
				if (lanes_of(t, i, j) > m->gpus[i].port_lanes) {
					m->gpus[i].port_lanes = lanes_of(t, i, j);
					m->gpus[i].port = m->gpus[i].port_lanes * lane_of(t);
				}
	}
}

int topo_smi_links(const struct smi_table *t, struct found_node *m)
{
	bool any = false;
	take_ports(t, m);
	for (int i = 0; i < t->gpus; i++)
		for (int j = 0; j < t->gpus; j++) {
			int lanes = lanes_of(t, i, j);
			const struct found_link l = { i, j, LINK_NVLINK, lanes,
						      lanes * lane_of(t) };
			any = any || lanes;
			if (lanes && !m->gpus[i].port_lanes && topo_found_add_link(m, &l, t->e) < 0)
				return -1;
		}
	if (any && !t->model)
		topo_found_add_unknown(m,
				       "NVLink's generation: a link is counted as 25 GB/s, as in "
				       "the second to the fourth");
	return 0;
}
