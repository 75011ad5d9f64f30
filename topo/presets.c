/*
 * presets — well-known machines, so that a job can be planned before there is
 * an allocation. Dense bf16 rates, without sparsity; link and network figures
 * are for one direction and one device.
 */
#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

enum { NODES_MOST = 65536 };

static const struct node_kind presets[] = {
	{
		/* NVIDIA "DGX A100 System" data sheet: 8 A100 80 GB, 2 × EPYC 7742 (64 cores, NPS4), 2 TB,
		 * 8 × 200 Gb/s InfiniBand. "A100 Tensor Core GPU" data sheet: 312 TFLOPS bf16, 2039 GB/s,
		 * NVLink 600 GB/s both ways together. Latencies: NCCL's tuning tables, rounded. */
		.name = "dgx-a100", .device = "A100-SXM4-80GB", .devices = 8, .cores = 128, .numa = 8,
		.memory = 2048 * GIB, .device_memory = 80 * GIB,
		.device_flops = 312e12, .device_bandwidth = 2039e9,
		.link_bandwidth = 300e9, .link_latency = 2e-6,
		.net_bandwidth = 25e9, .net_latency = 5e-6,
	},
	{
		/* "DGX H100" data sheet: 8 H100 SXM5, 2 × Xeon 8480C (56 cores), 2 TB, 8 × 400 Gb/s.
		 * "H100 Tensor Core GPU" data sheet: 1979 TFLOPS bf16 with sparsity, half of it dense;
		 * 3.35 TB/s; NVLink 900 GB/s both ways together. */
		.name = "dgx-h100", .device = "H100-SXM5-80GB", .devices = 8, .cores = 112, .numa = 2,
		.memory = 2048 * GIB, .device_memory = 80 * GIB,
		.device_flops = 989e12, .device_bandwidth = 3350e9,
		.link_bandwidth = 450e9, .link_latency = 2e-6,
		.net_bandwidth = 50e9, .net_latency = 5e-6,
	},
	{
		/* "DGX H200" data sheet: as the DGX H100 with H200s. "H200 Tensor Core GPU" data sheet:
		 * 141 GB (the driver shows 140 GiB, the runtime keeps about one), 4.8 TB/s. */
		.name = "dgx-h200", .device = "H200-SXM-141GB", .devices = 8, .cores = 112, .numa = 2,
		.memory = 2048 * GIB, .device_memory = 139 * GIB,
		.device_flops = 989e12, .device_bandwidth = 4800e9,
		.link_bandwidth = 450e9, .link_latency = 2e-6,
		.net_bandwidth = 50e9, .net_latency = 5e-6,
	},
	{
		/* A rented machine with one H200: the GPU as above, an ordinary host beside it
		 * (16 cores, 128 GiB), 25 Gb/s Ethernet. */
		.name = "h200", .device = "H200-SXM-141GB", .devices = 1, .cores = 16, .numa = 1,
		.memory = 128 * GIB, .device_memory = 139 * GIB,
		.device_flops = 989e12, .device_bandwidth = 4800e9,
		.link_bandwidth = 0, .link_latency = 0,
		.net_bandwidth = 3.125e9, .net_latency = 30e-6,
	},
	{
		/* "A100 Tensor Core GPU" data sheet, PCIe column: 312 TFLOPS bf16, 1935 GB/s, 80 GB. Four
		 * of them behind PCIe 4.0 ×16: 31.5 GB/s by the specification, about 25 GB/s of payload
		 * from peer to peer; one 200 Gb/s adapter for all four. */
		.name = "pcie-a100", .device = "A100-PCIe-80GB", .devices = 4, .cores = 64, .numa = 2,
		.memory = 512 * GIB, .device_memory = 80 * GIB,
		.device_flops = 312e12, .device_bandwidth = 1935e9,
		.link_bandwidth = 25e9, .link_latency = 8e-6,
		.net_bandwidth = 6.25e9, .net_latency = 6e-6,
	},
	{
		/* "L40S" data sheet: 362 TFLOPS bf16 dense, 48 GB GDDR6, 864 GB/s, PCIe 4.0 ×16. Eight of
		 * them, no NVLink (through the host: about 20 GB/s), two 200 Gb/s adapters for all. */
		.name = "pcie-l40s", .device = "L40S", .devices = 8, .cores = 64, .numa = 2,
		.memory = 1024 * GIB, .device_memory = 48 * GIB,
		.device_flops = 362e12, .device_bandwidth = 864e9,
		.link_bandwidth = 20e9, .link_latency = 10e-6,
		.net_bandwidth = 6.25e9, .net_latency = 6e-6,
	},
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

static int no_preset(const char *spec, struct err *e)
{
	char names[256] = "";
	size_t used = 0;
	for (int i = 0; i < PRESETS; i++)
		used += (size_t)snprintf(names + used, sizeof names - used, ", %s", presets[i].name);
	return err_set(e, ERR_USAGE, "cluster \"%.100s\": no such machine; use auto, local, slurm, or NAME:NODES "
		       "with NAME one of %s", spec, names + 2);
}

/* NODES of NAME:NODES; 1 without a colon, -1 when it is no number from 1 to NODES_MOST. */
static long read_nodes(const char *colon)
{
	if (!colon)
		return 1;
	char *end;
	long n = colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
	return n < 1 || n > NODES_MOST || *end ? -1 : n;
}

int cluster_preset(const char *spec, struct cluster *out, struct err *e)
{
	const char *colon = strchr(spec, ':');
	size_t len = colon ? (size_t)(colon - spec) : strlen(spec);
	const struct node_kind *kind = NULL;
	for (int i = 0; i < PRESETS; i++)
		if (strlen(presets[i].name) == len && !memcmp(presets[i].name, spec, len))
			kind = &presets[i];
	if (!kind)
		return no_preset(spec, e);
	long nodes = read_nodes(colon);
	if (nodes < 0)
		return err_set(e, ERR_USAGE, "cluster \"%.100s\": \"%.100s\" is no number of nodes; "
			       "give one from 1 to %d", spec, colon + 1, NODES_MOST);
	struct cluster c;
	if (cluster_alloc(spec, 1, (int)nodes, &c, e))
		return -1;
	c.kinds[0] = *kind;
	for (int i = 0; i < c.n_nodes; i++)
		snprintf(c.nodes[i].name, sizeof c.nodes[i].name, "node%d", i);
	*out = c;
	return 0;
}
