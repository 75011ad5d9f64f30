/*
 * nvml — the NVIDIA GPUs of this host and the NVLinks between them, from NVIDIA's management
 * library.
 *
 * The library comes with the driver and is loaded on first use; without it there are no GPUs. Its
 * answers are checked like untrusted input: counts, indices, unterminated names, errors of single
 * calls. An unknown figure is 0, and an unknown link does not exist.
 */
#ifndef MUSTER_TOPO_DISCOVER_NVML_H
#define MUSTER_TOPO_DISCOVER_NVML_H

#include "base/err.h"
#include "topo/cluster.h"
#include "topo/discover/visible.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"
enum {
	NVML_GPUS_MAX = 64,
	NVML_LINKS_MAX = 64,
	NVML_INSTANCES_MAX = 16,
	PCIE_MAX = 9,
	PCIE_WIDTH_MAX = 64
};

struct nvml_gpu {
	int index;            /* the driver's number for it */
	char name[TOPO_NAME]; /* "NVIDIA H100 80GB HBM3" */
	char uuid[96];        /* "GPU-…", or "" */
	char bus[16];         /* "0000:1b:00.0" */
	int vendor, id;       /* PCI */
	int arch;             /* compute capability × 10; 0 is unknown */
	double memory;        /* bytes */
	int ports;            /* NVLinks to NVSwitches that are up */
	int down;             /* NVLinks that exist and are not up */
	int nvlink;           /* their generation; 0: unknown */
	/* highest generation and width of the GPU and its slot (an idle GPU uses less); 0:
	 * unknown */
	int pcie, pcie_width;
	bool mig; /* partitioned: each program gets one instance */
	struct nvml_instance instances[NVML_INSTANCES_MAX];
	int n_instances;
};

/* Identifies the multi-node NVLink fabric of this node (GB200 NVL72). Nodes with equal texts are in
 * the same fabric. */
enum { NVML_FABRIC = 48 };

struct nvml_host {
	struct nvml_gpu *gpus;
	int n;
	int *lanes;        /* [n × n]: direct NVLinks between two GPUs */
	int lost;          /* GPUs that exist and do not answer */
	char trouble[200]; /* the error of the first of them */
	int cut;           /* pairs without peer access, if known */
	/* UUID of the cluster and clique; "": none, or the GPUs are not all in the same one */
	char fabric[NVML_FABRIC];
};

/* ERR_NOTFOUND: there is no such library or no GPU. Other errors: there is a driver, and it or
 * every GPU fails. */
int topo_nvml_read(const char *library, struct nvml_host *out, struct err *e);
void topo_nvml_free(struct nvml_host *h);

/* Keeps the GPUs that `visible` selects, in its order (visible.h), so that index i is CUDA's device
 * i. If an instance is selected, the memory becomes that of the instance. NULL keeps all. Returns
 * -1 if no GPU remains. */
int topo_nvml_keep(struct nvml_host *h, const char *visible);

#endif
