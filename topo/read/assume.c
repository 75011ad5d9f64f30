#include "topo/read/assume.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BOARD = 8, QUAD = 4 };

static void __attribute__((format(printf, 2, 3)))
assumed(struct found_node *m, const char *fmt, ...)
{
	char phrase[200];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(phrase, sizeof phrase, fmt, ap);
	va_end(ap);
	topo_found_add_unknown(m, phrase);
}

/* --- Which GPUs --- */

void topo_assume_models(struct found_node *m)
{
	/* The boards of 8 GPUs that clouds rent out, by their PCIe of 16 lanes. */
	static const struct {
		const char *pcie, *model;
		double raw; /* bytes/s */
	} boards[] = {
		{ "3.0", "V100-SXM2-32GB", 15.75e9 },
		{ "4.0", "A100-SXM4-40GB", 31.5e9 },
		{ "5.0", "H100-SXM5-80GB", 63e9 },
	};
	bool equal = true, unknown = false;
	for (int i = 0; i < m->n_gpus; i++) {
		equal &= m->gpus[i].pcie == m->gpus[0].pcie;
		unknown |= !m->gpus[i].model;
		if (m->gpus[i].model || m->gpus[i].label[0])
			equal = false;
	}
	if (!unknown)
		return;
	double pcie = m->gpus[0].pcie;
	if (m->pcie_3)
		pcie = fmin(pcie, topo_found_payload(boards[0].raw));
	for (size_t b = 0; b < sizeof boards / sizeof *boards; b++) {
		double payload = topo_found_payload(boards[b].raw);
		if (!equal || m->n_gpus != BOARD || fabs(pcie / payload - 1) > 0.05)
			continue;
		for (int i = 0; i < m->n_gpus; i++)
			m->gpus[i].model = topo_gpu_of_name(boards[b].model);
		assumed(m, "which GPUs these are: 8 with PCIe %s are taken for %s", boards[b].pcie,
			boards[b].model);
		return;
	}
	assumed(m, "which GPUs these are, their memory and rates");
}

/* --- How they are joined --- */

static int add_both(struct found_node *m, int a, int b, int lanes, struct err *e)
{
	const struct gpu_model *g = m->gpus[a].model;
	const struct found_link l = { a, b, g->link, lanes, lanes * g->lane },
				back = { b, a, g->link, lanes, lanes * g->lane };
	return topo_found_add_link(m, &l, e) < 0 || topo_found_add_link(m, &back, e) < 0 ? -1 : 0;
}

static void join_by_switch(struct found_node *m)
{
	const struct gpu_model *g = m->gpus[0].model;
	for (int i = 0; i < m->n_gpus; i++) {
		m->gpus[i].port_lanes = g->lanes;
		m->gpus[i].port = g->lanes * g->lane;
		m->gpus[i].fabric = 0;
	}
	assumed(m, "NVLink: it is taken to run through NVSwitches, as on boards of %s", g->name);
}

/* A mesh of the board's GPUs, of which the machine may have fewer. */
static int join_by_mesh(struct found_node *m, int board, struct err *e)
{
	const struct gpu_model *g = m->gpus[0].model;
	int lanes = g->lanes / (board - 1);
	for (int i = 0; i < m->n_gpus; i++)
		for (int j = i + 1; j < m->n_gpus; j++)
			if (add_both(m, i, j, lanes, e))
				return -1;
	assumed(m, "%s: %d link%s between any two GPUs %s taken, as on boards of %s",
		g->link == LINK_XGMI ? "xGMI" : "NVLink", lanes, lanes == 1 ? "" : "s",
		lanes == 1 ? "is" : "are", g->name);
	return 0;
}

/* The hybrid cube mesh of a DGX-1: two meshes of 4, and a link to the opposite GPU. With six
 * lanes per GPU some of these links are double, as in the preset dgx-1 (topo/presets.c). */
static int join_by_cube(struct found_node *m, struct err *e)
{
	static const char twice[QUAD][QUAD + 1] = { "0001", "0010", "0101", "1010" };
	const struct gpu_model *g = m->gpus[0].model;
	bool more = g->lanes >= 6;
	for (int i = 0; i < BOARD; i++)
		for (int j = i + 1; j < BOARD; j++) {
			int x = i % QUAD, y = j % QUAD;
			bool same = i / QUAD == j / QUAD;
			if (!same && x != y)
				continue;
			bool wide = same ? twice[x][y] == '1' : x == 0 || x == 1;
			if (add_both(m, i, j, more && wide ? 2 : 1, e))
				return -1;
		}
	assumed(m, "NVLink: it is taken for the hybrid cube mesh of boards of 8 %s", g->name);
	return 0;
}

static int join_by_bridges(struct found_node *m, struct err *e)
{
	const struct gpu_model *g = m->gpus[0].model;
	for (int i = 0; i + 1 < m->n_gpus; i += 2)
		if (add_both(m, i, i + 1, g->lanes, e))
			return -1;
	assumed(m, "NVLink: bridges of %d links are taken to join the GPUs in pairs, 0 and 1 first",
		g->lanes);
	return 0;
}

int topo_assume_links(struct found_node *m, bool bridged, struct err *e)
{
	const struct gpu_model *g = m->gpus[0].model;
	int n = m->n_gpus;
	for (int i = 1; i < n; i++)
		if (m->gpus[i].model != g)
			g = NULL;
	if (n == 1 || (g && g->link == LINK_UNKNOWN))
		return 1;
	if (!g)
		return 0;
	int rc = 0;
	if (g->join == JOIN_ALWAYS_SWITCH || (g->join == JOIN_SWITCH && n > QUAD && n <= 2 * BOARD))
		join_by_switch(m);
	else if (g->join == JOIN_MESH && n <= BOARD && g->lanes >= BOARD - 1)
		rc = join_by_mesh(m, BOARD, e);
	else if (g->join != JOIN_BRIDGE && n <= QUAD)
		rc = join_by_mesh(m, QUAD, e);
	else if (g->join == JOIN_CUBE && n == BOARD)
		rc = join_by_cube(m, e);
	else if (g->join == JOIN_BRIDGE && bridged && n % 2 == 0)
		rc = join_by_bridges(m, e);
	else
		return 0;
	return rc ? -1 : 1;
}
