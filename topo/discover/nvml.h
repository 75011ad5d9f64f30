/*
 * nvml — NVIDIA's GPUs of this host and the NVLinks between them, as its management library tells
 * them.
 *
 * The library comes with the driver and is loaded when it is first asked for; without it, or
 * without a GPU, there are none. What it says is checked as if it came from a stranger: counts,
 * indices, names without an end, errors of single calls. A figure that it does not give is 0, a
 * link that it does not give is not there.
 */
#ifndef MUSTER_TOPO_DISCOVER_NVML_H
#define MUSTER_TOPO_DISCOVER_NVML_H

#include "base/err.h"
#include "topo/cluster.h"
#include "topo/discover/visible.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"
enum {
	NVML_GPUS_MOST = 64,
	NVML_LINKS_MOST = 64,
	NVML_INSTANCES_MOST = 16,
	PCIE_MOST = 9,
	PCIE_WIDTH_MOST = 64
};

struct nvml_gpu {
	int index;            /* the driver's number for it */
	char name[TOPO_NAME]; /* "NVIDIA H100 80GB HBM3" */
	char uuid[96];        /* "GPU-…", or "" */
	char bus[16];         /* "0000:1b:00.0" */
	int vendor, id;       /* PCI */
	int arch;             /* compute capability × 10; 0 is unknown */
	double memory;        /* bytes */
	int ports;            /* NVLinks into NVSwitches that are up */
	int down;             /* NVLinks that are there and not up */
	int nvlink;           /* their generation; 0: unknown */
	/* generation and lanes that it and its slot can, an idle GPU does less; 0: unknown */
	int pcie, pcie_width;
	bool mig; /* parted: programs get instances of it, each one */
	struct nvml_instance instances[NVML_INSTANCES_MOST];
	int n_instances;
};

/* The NVLink fabric of several nodes that this one has joined (GB200 NVL72). Nodes of equal
 * texts reach each other. */
enum { NVML_FABRIC = 48 };

struct nvml_host {
	struct nvml_gpu *gpus;
	int n;
	int *lanes;        /* [n × n]: NVLinks that lead straight from one to the other */
	int lost;          /* GPUs that are there and do not answer */
	char trouble[200]; /* what the first of them says */
	int cut;           /* pairs without peer access, where that was told */
	/* cluster's UUID and clique, "" : none, or not all GPUs in the same */
	char fabric[NVML_FABRIC];
};

/* ERR_NOTFOUND: no such library here, or no GPU; another error: there is a driver and it, or
 * every GPU, fails. */
int topo_nvml_read(const char *library, struct nvml_host *out, struct err *e);
void topo_nvml_free(struct nvml_host *h);

/* Keeps those that `visible` names, in its order (visible.h), so that place i is CUDA's device i.
 * Of one that is named by an instance the memory is that instance's. NULL keeps all. 0, or -1 when
 * none is left. */
int topo_nvml_keep(struct nvml_host *h, const char *visible);

#endif
