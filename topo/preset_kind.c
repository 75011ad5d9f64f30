#include "topo/gpus.h"
#include "topo/internal.h"
#include "topo/presets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit(char c)
{
	return c >= 'a' ? c - 'a' + 10 : c - '0';
}

static struct topo_link over_pcie(const struct topo_preset *b, int x, int y)
{
	bool same = b->homes[x] == b->homes[y];
	enum link_kind kind = same ? LINK_NODE : LINK_SYS;
	return (struct topo_link){ .kind = kind,
				   .bandwidth = same ? b->pcie : b->cross,
				   .latency = topo_link_latency(kind) };
}

static struct topo_link link_of(const struct topo_preset *b, const struct gpu_model *m, int x,
				int y)
{
	if (x == y)
		return (struct topo_link){ .kind = LINK_SELF };
	int lanes = b->join == LINK_UNKNOWN    ? 0
		    : b->join == LINK_NVSWITCH ? m->lanes
		    : b->lanes                 ? digit(b->lanes[x * b->devices + y])
					       : 1;
	if (!lanes)
		return over_pcie(b, x, y);
	return (struct topo_link){ .kind = b->join,
				   .lanes = lanes,
				   .bandwidth = lanes * m->lane,
				   .latency = topo_link_latency(b->join) };
}

/* The CPUs of a NUMA domain: its cores and their second threads, which are numbered after all
 * cores. */
static void cpus_of(const struct topo_preset *b, int numa, char out[TOPO_CPUS])
{
	int n = b->cores / b->numa, first = numa * n;
	if (b->threads == 1)
		snprintf(out, TOPO_CPUS, "%d-%d", first, first + n - 1);
	else
		snprintf(out, TOPO_CPUS, "%d-%d,%d-%d", first, first + n - 1, b->cores + first,
			 b->cores + first + n - 1);
}

static void fill_nics(const struct topo_preset *b, struct node_kind *k)
{
	const char *at = b->nics;
	for (int i = 0; i < k->n_nics; i++) {
		size_t len = strcspn(at, " ");
		snprintf(k->nics[i].name, sizeof k->nics[i].name, "%.*s", (int)len, at);
		k->nics[i].bandwidth = b->nic_bandwidth;
		k->nics[i].numa = -1;
		at += len + (at[len] == ' ');
	}
}

/* Sets the devices. A NIC that devices share is in the domain of the first of them. */
static void fill_parts(const struct topo_preset *b, struct node_kind *k)
{
	for (int i = 0; i < b->devices; i++) {
		struct topo_device *d = &k->parts[i];
		snprintf(d->name, sizeof d->name, "GPU%d", i);
		d->numa = digit(b->homes[i]);
		cpus_of(b, d->numa, d->cpus);
		d->nic = digit(b->nearest[i]);
		if (k->nics[d->nic].numa < 0)
			k->nics[d->nic].numa = d->numa;
		d->nic_link = k->nics[d->nic].numa == d->numa ? b->nic_link : LINK_SYS;
	}
}

static void fill_links(const struct topo_preset *b, const struct gpu_model *m, struct node_kind *k)
{
	for (int x = 0; x < b->devices; x++)
		for (int y = 0; y < b->devices; y++) {
			struct topo_link l = link_of(b, m, x, y);
			k->links[x * b->devices + y] = l;
			if (l.bandwidth > k->link_bandwidth) {
				k->link_bandwidth = l.bandwidth;
				k->link_latency = l.latency;
			}
		}
}

static int words_in(const char *text)
{
	int n = 1;
	for (; *text; text++)
		n += *text == ' ';
	return n;
}

int topo_preset_kind(const struct topo_preset *b, struct node_kind *out, struct err *e)
{
	const struct gpu_model *m = topo_gpu_of_name(b->gpu);
	if (!m)
		return err_set(e, ERR_INTERNAL, "preset %s: no device model %s", b->name, b->gpu);
	struct node_kind k = { .devices = b->devices,
			       .cores = b->cores,
			       .numa = b->numa,
			       .memory = b->memory,
			       .n_nics = words_in(b->nics),
			       .net_latency = b->nic_latency,
			       .switched = b->join == LINK_NVSWITCH };
	snprintf(k.name, sizeof k.name, "%s", b->name);
	topo_gpu_fill(m, &k);
	k.net_bandwidth = k.n_nics * b->nic_bandwidth / b->devices;
	k.parts = calloc((size_t)b->devices, sizeof *k.parts);
	k.nics = calloc((size_t)k.n_nics, sizeof *k.nics);
	k.links = calloc((size_t)b->devices * (size_t)b->devices, sizeof *k.links);
	if (!k.parts || !k.nics || !k.links) {
		free(k.parts);
		free(k.nics);
		free(k.links);
		return err_set(e, ERR_NOMEM, "preset %s: no memory for its parts", b->name);
	}
	fill_nics(b, &k);
	fill_parts(b, &k);
	fill_links(b, m, &k);
	*out = k;
	return 0;
}
