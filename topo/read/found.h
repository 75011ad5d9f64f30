/*
 * found — one node as a reader finds it in a file: the PCI devices, their positions in the PCIe tree,
 * and the direct links. topo_found_finish turns it into a node_kind in the same way for every
 * format: it computes the path between any two devices, each device's nearest adapter, whether a
 * switch connects all devices, and the totals.
 *
 * Places form the tree of the file: machine, NUMA domain, PCIe host bridge, PCIe bridge. A GPU or an
 * adapter is attached to a place. The path between two of them follows from their lowest common
 * place, in the words of nvidia-smi: one bridge (or one switch, which has an upstream port and a
 * downstream port on each side) is PIX, several are PXB, a host bridge is PHB, a NUMA domain is
 * NODE, and anything else is SYS.
 */
#ifndef MUSTER_TOPO_READ_FOUND_H
#define MUSTER_TOPO_READ_FOUND_H

#include "topo/gpus.h"

#include <stddef.h>
#include <stdint.h>

/* Upper limits for one node. Files that exceed them are refused. */
enum {
	MACHINE_DEVICES = 1024,
	MACHINE_NICS = 1024,
	MACHINE_NUMA = 1024,
	MACHINE_CORES = 65536,
	MACHINE_PLACES = 1000000
};

/* Bytes/s of an NVLink of unknown generation: the value of generations 2 to 4. */
#define NVLINK_LANE 25e9

enum found_place_kind { FOUND_MACHINE, FOUND_NUMA, FOUND_HOST, FOUND_SWITCH, FOUND_PORT };

struct found_place {
	enum found_place_kind kind; /* SWITCH: a whole switch; PORT: one of its bridges */
	int parent;                 /* -1: none */
	int depth;
	double bandwidth; /* payload of the link to the parent; 0: unknown or unlimited */
};

struct found_gpu {
	char name[TOPO_NAME]; /* "": "GPU" and its number */
	char bus[16], cpus[TOPO_CPUS];
	char label[TOPO_NAME];         /* its name in the file, for a GPU without a known model */
	const struct gpu_model *model; /* or NULL */
	int vendor;                    /* PCI; 0: unknown */
	int place;                     /* -1: unknown */
	int numa;
	/* its number in the file, -1: none; if all GPUs have one, devices are numbered by it */
	int order;
	double pcie;    /* payload; 0: unknown */
	double memory;  /* from the file; 0: unknown */
	int port_lanes; /* NVLinks to NVSwitches */
	double port;    /* their bandwidth */
	int fabric;     /* index of the fabric that the port belongs to; 0 if there is one fabric */
};

struct found_nic {
	char name[TOPO_NAME], bus[16];
	int place, numa;
	double bandwidth; /* 0: unknown */
	double latency;   /* 0: unknown */
};

struct found_link {
	int from, to; /* GPUs in the order in which they were added */
	enum link_kind kind;
	int lanes;
	double bandwidth;
};

struct found_node {
	const char *file;
	char name[TOPO_NAME];
	struct found_place *places;
	struct found_gpu *gpus;
	struct found_nic *nics;
	struct found_link *links;
	int n_places, n_gpus, n_nics, n_links;
	int cap_places, cap_gpus, cap_nics, cap_links;
	/* near[from × (n_gpus + n_nics) + to]: the paths between devices and adapters, if the file
	 * contains them; otherwise NULL */
	enum link_kind *near;
	/* the cores of a machine without GPUs (numa and cpus are set); NULL: unknown */
	struct topo_device *cores;
	int n_cores, numa;
	double memory;
	bool pcie_3; /* the processor has no faster PCIe, whatever the file says of its links */
	char unsaid[512];
};

/* The node gets the name of the file, without folder and extension. */
void topo_found_init(struct found_node *m, const char *file);
void topo_found_fini(struct found_node *m);

/* Each returns the index of the new element, or -1: no memory, or a limit above is exceeded. */
int topo_found_add_place(struct found_node *m, enum found_place_kind kind, int parent,
			 struct err *e);
int topo_found_add_gpu(struct found_node *m, const struct found_gpu *g, struct err *e);
int topo_found_add_nic(struct found_node *m, const struct found_nic *n, struct err *e);
int topo_found_add_link(struct found_node *m, const struct found_link *l, struct err *e);

/* Adds a phrase to the list of what the file does not contain, unless the list has it already. */
void topo_found_add_unknown(struct found_node *m, const char *phrase);

/* devices: slots of a machine without GPUs; 0: one per core. m stays the caller's. */
int topo_found_finish(const struct found_node *m, int devices, struct node_kind *out,
		      struct err *e);

/* Helpers for readers. */

/* The payload of a PCIe link with this raw bandwidth, in bytes/s: the ratio that NCCL assumes, 12 of
 * 15.75 GB/s in generation 3. */
double topo_found_payload(double bandwidth);
/* Copies a name from outside, truncated to `size`; every byte that is not printable ASCII becomes
 * '_'. */
void topo_found_text(char *out, size_t size, const char *text);
/* The name of a file without folder and extension. */
void topo_found_file_name(char out[TOPO_NAME], const char *file);
/* Converts a mask to a kernel CPU list. A mask consists of 32-bit words in hexadecimal, the highest
 * first, separated by commas ("000000ff,ffff0000", "0xff,,0x0"). The result is "" if the text is not
 * a mask or the list does not fit. */
void topo_found_mask(const char *mask, char out[TOPO_CPUS]);
/* Iterates over the set bits of such a mask, lowest first. topo_mask_next returns each bit and then
 * -1; it stops at text that is not a 32-bit word. */
struct mask_bits {
	const char *mask, *end; /* end of the next word; NULL: none remains */
	uint32_t word;
	long base;
	bool broken;
};
struct mask_bits topo_mask_bits(const char *mask);
long topo_mask_next(struct mask_bits *b);
/* Normalizes a PCI address to "0000:1b:00.0": lower case, at least four digits of domain. "" if the
 * text is not an address. */
void topo_found_bus(const char *text, char out[16]);

#endif
