/*
 * slurm: the allocation that this process runs in, as a cluster.
 *
 * The environment that Slurm sets has the names of the nodes, and the agents and CPUs of each. The
 * controller knows the switches. The hardware of every node is assumed to be this node's, because
 * Slurm reports counts and no rates. examined.c examines the nodes themselves.
 */
#include "topo/discover/internal.h"
#include "topo/discover/command.h"
#include "topo/discover/scontrol.h"
#include "topo/hostlist.h"
#include "topo/internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_allocation_free(struct allocation *a)
{
	topo_hostlist_free(&a->nodes);
	free(a->devices);
	free(a->cpus);
}

/*
 * One agent per task if the user requested tasks, otherwise one per GPU, otherwise as many as the
 * tasks that Slurm assumed. SLURM_GPUS_PER_NODE is what the user requested, SLURM_GPUS_ON_NODE what
 * this node has.
 */
static int read_devices(struct allocation *a, struct err *e)
{
	const char *tasks = getenv("SLURM_TASKS_PER_NODE");
	bool asked = getenv("SLURM_NTASKS_PER_NODE") || getenv("SLURM_NTASKS");
	int gpus = topo_scontrol_gpus(getenv("SLURM_GPUS_PER_NODE"), false, NULL);
	if (!gpus)
		gpus = topo_scontrol_gpus(getenv("SLURM_GPUS_ON_NODE"), false, NULL);
	if ((asked || !gpus) && tasks)
		return topo_hostlist_counts(tasks, a->devices, a->nodes.n, e);
	for (int i = 0; i < a->nodes.n; i++)
		a->devices[i] = gpus ? gpus : 1;
	return 0;
}

static int read_lists(struct allocation *a, struct err *e)
{
	const char *list = getenv("SLURM_JOB_NODELIST");
	const char *cpus = getenv("SLURM_JOB_CPUS_PER_NODE");
	if (!list || !*list)
		return err_set(e, ERR_NOTFOUND,
			       "slurm: SLURM_JOB_NODELIST is not set, so this process is not in an "
			       "allocation; "
			       "start through `muster submit`, sbatch or salloc");
	if (topo_hostlist_expand(list, &a->nodes, e))
		return err_prefix(e, "SLURM_JOB_NODELIST");
	a->devices = calloc((size_t)a->nodes.n, sizeof *a->devices);
	a->cpus = calloc((size_t)a->nodes.n, sizeof *a->cpus);
	if (!a->devices || !a->cpus)
		return err_set(e, ERR_NOMEM, "slurm: no memory for %d nodes", a->nodes.n);
	if (read_devices(a, e))
		return err_prefix(e, "SLURM_TASKS_PER_NODE");
	if (cpus && topo_hostlist_counts(cpus, a->cpus, a->nodes.n, e))
		return err_prefix(e, "SLURM_JOB_CPUS_PER_NODE");
	return 0;
}

int topo_allocation_read(struct allocation *a, struct err *e)
{
	*a = (struct allocation){ .devices = NULL };
	if (!read_lists(a, e))
		return 0;
	topo_allocation_free(a);
	return -1;
}

/* Sets *out to this host's kind with node i's number of devices and cores. */
int topo_allocation_kind(const struct allocation *a, int i, struct node_kind *out, struct err *e)
{
	struct node_kind k;
	int devices = a->devices[i] > 0 ? a->devices[i] : 1;
	if (topo_kind_of_host(devices, &k, e))
		return -1;
	snprintf(k.name, sizeof k.name, "slurm");
	k.devices = a->devices[i];
	if (a->cpus[i] > 0 && a->cpus[i] != k.cores) {
		k.device_flops *= (double)a->cpus[i] / k.cores;
		k.cores = a->cpus[i];
	}
	*out = k;
	return 0;
}

/* Nodes with equal counts share one kind. */
static int fill_nodes(const struct allocation *a, struct cluster *c, struct err *e)
{
	c->n_kinds = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		int first = 0;
		while (a->devices[first] != a->devices[i] || a->cpus[first] != a->cpus[i])
			first++;
		snprintf(c->nodes[i].name, sizeof c->nodes[i].name, "%s", a->nodes.names[i]);
		c->nodes[i].kind = first == i ? c->n_kinds : c->nodes[first].kind;
		if (first == i && topo_allocation_kind(a, i, &c->kinds[c->n_kinds++], e))
			return -1;
	}
	return 0;
}

/* The distance between nodes matters if there are at least three. If the controller does not
 * answer, all pairs of nodes count as equally distant, and nobody waits. */
static void ask_topology(struct cluster *c)
{
	static const char *const argv[] = { "scontrol", "show", "topology", NULL };
	struct command command = { .argv = (char *const *)argv,
				   .timeout = 3,
				   .most = TOPOLOGY_MAX };
	struct buf text = BUF_INIT;
	if (c->n_nodes > 2 && getenv("SLURM_JOB_ID") && !topo_command_run(&command, &text, NULL))
		topo_scontrol_topology(buf_str(&text), NULL, c, NULL);
	buf_fini(&text);
}

int topo_cluster_slurm(struct cluster *out, struct err *e)
{
	struct allocation a;
	struct cluster c = { .n_nodes = 0 };
	if (topo_allocation_read(&a, e))
		return -1;
	int rc = topo_cluster_alloc("slurm", a.nodes.n, a.nodes.n, &c, e);
	if (!rc && fill_nodes(&a, &c, e)) {
		topo_cluster_free(&c);
		rc = -1;
	}
	topo_allocation_free(&a);
	if (rc)
		return -1;
	ask_topology(&c);
	*out = c;
	return 0;
}
