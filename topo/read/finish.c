#include "topo/internal.h"
#include "topo/read/found.h"
#include "topo/read/near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(const struct found_node *m, struct err *e)
{
	return err_set(e, ERR_NOMEM, "%s: no memory for its parts", m->file);
}

static int fill_nics(const struct found_node *m, struct node_kind *k, struct err *e)
{
	if (!m->n_nics)
		return 0;
	k->nics = calloc((size_t)m->n_nics, sizeof *k->nics);
	if (!k->nics)
		return no_memory(m, e);
	k->n_nics = m->n_nics;
	for (int i = 0; i < m->n_nics; i++) {
		struct topo_nic *n = &k->nics[i];
		if (m->nics[i].name[0])
			memcpy(n->name, m->nics[i].name, sizeof n->name);
		else
			snprintf(n->name, sizeof n->name, "NIC%d", i);
		memcpy(n->bus, m->nics[i].bus, sizeof n->bus);
		n->numa = m->nics[i].numa;
		n->bandwidth = m->nics[i].bandwidth;
	}
	return 0;
}

/* Only NICs that are the nearest of some device carry the traffic between nodes. */
static void fill_net(const struct found_node *m, struct node_kind *k)
{
	for (int i = 0; i < m->n_nics; i++) {
		bool used = false;
		for (int d = 0; d < k->devices && !used; d++)
			used = k->parts[d].nic == i;
		if (used)
			k->net_bandwidth += m->nics[i].bandwidth / k->devices;
		if (used && m->nics[i].latency > k->net_latency)
			k->net_latency = m->nics[i].latency;
	}
}

static const char *vendor_name(int vendor)
{
	return vendor == PCI_NVIDIA ? "NVIDIA" : vendor == PCI_AMD ? "AMD" : "other";
}

struct fleet {
	int vendor, n;
	double flops;
};

static bool is_larger(const struct fleet *a, const struct fleet *b)
{
	return a->flops != b->flops ? a->flops > b->flops
	       : a->n != b->n       ? a->n > b->n
				    : a->vendor == PCI_NVIDIA;
}

/* A job runs on GPUs of one vendor, so a kind of node has those of one: of the vendor with the highest
 * rate here, otherwise with the most GPUs. 0: the file names one vendor at most. */
static int main_vendor(const struct found_node *m)
{
	struct fleet best = { 0, 0, 0 };
	bool several = false;
	for (int i = 0; i < m->n_gpus; i++) {
		struct fleet f = { m->gpus[i].vendor, 0, 0 };
		for (int j = 0; f.vendor && j < m->n_gpus; j++)
			if (m->gpus[j].vendor == f.vendor) {
				f.n++;
				f.flops += m->gpus[j].model ? m->gpus[j].model->flops : 0;
			}
		several |= f.n && best.n && f.vendor != best.vendor;
		if (f.n && (!best.n || is_larger(&f, &best)))
			best = f;
	}
	return several ? best.vendor : 0;
}

/* Whether a GPU of the file becomes a device. */
static bool is_kept(const struct found_node *m, int vendor, int gpu)
{
	return !vendor || m->gpus[gpu].vendor == vendor;
}

static void say_left_out(const struct found_node *m, int vendor, struct node_kind *k)
{
	size_t used = strlen(k->unsaid);
	int n = 0, other = 0;
	for (int i = 0; i < m->n_gpus; i++)
		if (!is_kept(m, vendor, i)) {
			n++;
			other = m->gpus[i].vendor;
		}
	if (n)
		snprintf(
			k->unsaid + used, sizeof k->unsaid - used,
			"%s%d %s GPU%s, which %s left out because a job runs on GPUs of one vendor",
			used ? "; " : "", n, vendor_name(other), n == 1 ? "" : "s",
			n == 1 ? "is" : "are");
}

struct rank {
	int order, gpu;
};

static int compare_orders(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;
	return x->order != y->order ? (x->order > y->order) - (x->order < y->order)
				    : x->gpu - y->gpu;
}

/* order[i]: the GPU that is device i, *n of them. It is the file's order if the file numbers all
 * GPUs. */
static int *order_of(const struct found_node *m, int vendor, int *n)
{
	struct rank *ranks = calloc((size_t)m->n_gpus, sizeof *ranks);
	int *order = calloc((size_t)m->n_gpus, sizeof *order);
	bool numbered = true;
	*n = 0;
	for (int i = 0; i < m->n_gpus; i++)
		numbered = numbered && (m->gpus[i].order >= 0 || !is_kept(m, vendor, i));
	if (ranks && order) {
		for (int i = 0; i < m->n_gpus; i++)
			if (is_kept(m, vendor, i))
				ranks[(*n)++] = (struct rank){ numbered ? m->gpus[i].order : i, i };
		qsort(ranks, (size_t)*n, sizeof *ranks, compare_orders);
		for (int i = 0; i < *n; i++)
			order[i] = ranks[i].gpu;
	}
	free(ranks);
	if (!ranks) {
		free(order);
		return NULL;
	}
	return order;
}

/* Describes the device by the first GPU. If models differ, the lowest values hold for all. */
static void fill_device(const struct found_node *m, const int *order, struct node_kind *k)
{
	const struct found_gpu *g = &m->gpus[order[0]];
	if (g->model)
		topo_gpu_fill(g->model, k);
	else
		snprintf(k->device, sizeof k->device, "%s", g->label[0] ? g->label : "GPU");
	if (!g->model)
		k->device_memory = g->memory;
	for (int i = 1; i < k->devices; i++) {
		const struct gpu_model *other = m->gpus[order[i]].model;
		if (!other || !g->model || other == g->model)
			continue;
		k->device_flops = other->flops < k->device_flops ? other->flops : k->device_flops;
		k->device_memory = other->memory < k->device_memory ? other->memory
								    : k->device_memory;
		k->device_bandwidth = other->bandwidth < k->device_bandwidth ? other->bandwidth
									     : k->device_bandwidth;
	}
}

static void fill_devices(const struct found_node *m, const int *order, struct node_kind *k)
{
	for (int i = 0; i < k->devices; i++) {
		const struct found_gpu *g = &m->gpus[order[i]];
		struct topo_device *d = &k->parts[i];
		if (g->name[0])
			memcpy(d->name, g->name, sizeof d->name);
		else
			snprintf(d->name, sizeof d->name, "GPU%d", i);
		memcpy(d->bus, g->bus, sizeof d->bus);
		memcpy(d->cpus, g->cpus, sizeof d->cpus);
		d->numa = g->numa;
		d->nic = -1;
	}
}

static struct topo_link over_switch(const struct found_gpu *a, const struct found_gpu *b)
{
	const struct found_gpu *least = a->port < b->port ? a : b;
	return (struct topo_link){ .kind = LINK_NVSWITCH,
				   .lanes = least->port_lanes,
				   .bandwidth = least->port,
				   .latency = topo_link_latency(LINK_NVSWITCH) };
}

/* Sets the links: first PCIe, or a switch fabric that both devices have a port to; then the direct
 * links of the file, which replace them. */
static void fill_links(const struct found_node *m, const int *order, const int *device,
		       struct node_kind *k)
{
	int n = k->devices;
	for (int x = 0; x < n; x++)
		for (int y = 0; y < n; y++) {
			const struct found_gpu *a = &m->gpus[order[x]], *b = &m->gpus[order[y]];
			struct topo_link *l = &k->links[(size_t)x * (size_t)n + (size_t)y];
			if (x == y)
				*l = (struct topo_link){ .kind = LINK_SELF };
			else if (a->port_lanes && b->port_lanes && a->fabric == b->fabric)
				*l = over_switch(a, b);
			else
				*l = topo_near_gpus(m, order[x], order[y]);
		}
	for (int i = 0; i < m->n_links; i++) {
		const struct found_link *f = &m->links[i];
		if (f->from == f->to || device[f->from] < 0 || device[f->to] < 0)
			continue;
		struct topo_link *l =
			&k->links[(size_t)device[f->from] * (size_t)n + (size_t)device[f->to]];
		/* Several direct links to the same peer add up. */
		bool more = l->kind == f->kind;
		*l = (struct topo_link){ .kind = f->kind,
					 .lanes = f->lanes + (more ? l->lanes : 0),
					 .bandwidth = f->bandwidth + (more ? l->bandwidth : 0),
					 .latency = topo_link_latency(f->kind) };
	}
}

static void fill_totals(struct node_kind *k)
{
	size_t n = (size_t)k->devices;
	k->switched = n > 1;
	for (size_t i = 0; i < n * n; i++) {
		const struct topo_link *l = &k->links[i];
		if (l->kind != LINK_SELF && l->kind != LINK_NVSWITCH)
			k->switched = false;
		if (l->bandwidth > k->link_bandwidth) {
			k->link_bandwidth = l->bandwidth;
			k->link_latency = l->latency;
		}
	}
}

static int finish_gpus(const struct found_node *m, struct node_kind *k, struct err *e)
{
	int vendor = main_vendor(m);
	int *order = order_of(m, vendor, &k->devices),
	    *device = calloc((size_t)m->n_gpus, sizeof *device);
	size_t n = (size_t)k->devices;
	int result = -1;
	k->parts = calloc(n, sizeof *k->parts);
	k->links = calloc(n * n, sizeof *k->links);
	if (!order || !device || !k->parts || !k->links) {
		no_memory(m, e);
	} else {
		memset(device, -1, (size_t)m->n_gpus * sizeof *device);
		for (int i = 0; i < k->devices; i++)
			device[order[i]] = i;
		say_left_out(m, vendor, k);
		fill_device(m, order, k);
		fill_devices(m, order, k);
		fill_links(m, order, device, k);
		fill_totals(k);
		result = topo_near_assign(m, order, k->devices, k->parts, e);
	}
	free(order);
	free(device);
	return result;
}

/* Makes CPU slots: slot i is on share i of the cores. Slots communicate through memory. Their NIC
 * is chosen by NUMA domain. */
static int finish_cores(const struct found_node *m, int devices, struct node_kind *k, struct err *e)
{
	k->devices = devices > 0 ? devices : m->n_cores;
	snprintf(k->device, sizeof k->device, "cpu");
	k->device_memory = m->memory / k->devices;
	k->parts = calloc((size_t)k->devices, sizeof *k->parts);
	if (!k->parts)
		return no_memory(m, e);
	for (int i = 0; i < k->devices; i++) {
		struct topo_device *d = &k->parts[i];
		*d = m->cores[(long)i * m->n_cores / k->devices];
		snprintf(d->name, sizeof d->name, "CPU%d", i);
		d->nic = -1;
		for (int n = 0; n < m->n_nics; n++) {
			enum link_kind kind = m->nics[n].numa >= 0 && m->nics[n].numa == d->numa
						      ? LINK_NODE
						      : LINK_SYS;
			if (d->nic < 0 || kind > d->nic_link) {
				d->nic = n;
				d->nic_link = kind;
			}
		}
	}
	return 0;
}

int topo_found_finish(const struct found_node *m, int devices, struct node_kind *out, struct err *e)
{
	struct node_kind k = { .cores = m->n_cores,
			       .numa = m->numa > 0 ? m->numa : 1,
			       .memory = m->memory };
	memcpy(k.name, m->name, sizeof k.name);
	memcpy(k.unsaid, m->unsaid, sizeof k.unsaid);
	if (!m->n_gpus && !m->n_cores)
		return err_set(e, ERR_USAGE,
			       "%s: it names neither a GPU nor a core; is it the description of a "
			       "machine?",
			       m->file);
	if (fill_nics(m, &k, e) ||
	    (m->n_gpus ? finish_gpus(m, &k, e) : finish_cores(m, devices, &k, e))) {
		topo_kind_free(&k);
		return -1;
	}
	fill_net(m, &k);
	*out = k;
	return 0;
}
