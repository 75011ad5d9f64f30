/*
 * machine — one node as a reader finds it, before it is a node_kind: where each PCI device hangs,
 * what it is, which direct links there are. topo_machine_finish draws the conclusions, the same for
 * every format: how near any two devices are, each device's nearest adapter, whether a switch joins
 * them all, totals.
 *
 * Places are the file's tree: machine, NUMA domain, PCIe host bridge, PCIe bridge; a GPU or an
 * adapter hangs below one. How near two are is told in nvidia-smi's words by their lowest common
 * place: one bridge (or one switch, which is an upstream port and a downstream port on each side)
 * PIX, several PXB, a host bridge PHB, a NUMA domain NODE, else SYS.
 */
#ifndef MUSTER_TOPO_READ_MACHINE_H
#define MUSTER_TOPO_READ_MACHINE_H

#include "topo/gpus.h"

#include <stddef.h>
#include <stdint.h>

/* The most that a node may have of each: files that claim more are refused. */
enum {
	MACHINE_DEVICES = 1024,
	MACHINE_NICS = 1024,
	MACHINE_NUMA = 1024,
	MACHINE_CORES = 65536,
	MACHINE_PLACES = 1000000
};

/* Of an NVLink whose generation the file does not tell: that of the second to the fourth. */
#define NVLINK_LANE 25e9

enum place_kind { PLACE_MACHINE, PLACE_NUMA, PLACE_HOST, PLACE_SWITCH, PLACE_PORT };

struct place {
	enum place_kind kind; /* SWITCH: a whole switch; PORT: one of its bridges */
	int parent;           /* -1: none */
	int depth;
	double bandwidth; /* of the link up, payload; 0: not told or not limited */
};

struct found_gpu {
	char name[TOPO_NAME]; /* "" : GPU and its number */
	char bus[16], cpus[TOPO_CPUS];
	char label[TOPO_NAME];         /* what the file calls it, for one that has no model */
	const struct gpu_model *model; /* or NULL */
	int place;                     /* -1: not told */
	int numa;
	/* the file's own number, -1: none; devices are numbered in this order where all have one */
	int order;
	double pcie;    /* payload; 0: not told */
	double memory;  /* as the file tells it; 0: not */
	int port_lanes; /* to switches of NVLink */
	double port;    /* their bandwidth */
	int fabric;     /* which of several fabrics the port is on; 0 where there is one */
};

struct found_nic {
	char name[TOPO_NAME], bus[16];
	int place, numa;
	double bandwidth; /* 0: not told */
	double latency;   /* 0: not told */
};

struct found_link {
	int from, to; /* GPUs as they were added */
	enum link_kind kind;
	int lanes;
	double bandwidth;
};

struct machine {
	const char *file;
	char name[TOPO_NAME];
	struct place *places;
	struct found_gpu *gpus;
	struct found_nic *nics;
	struct found_link *links;
	int n_places, n_gpus, n_nics, n_links;
	int cap_places, cap_gpus, cap_nics, cap_links;
	/* Near[from × (n_gpus + n_nics) + to], where the file itself tells how near devices and
	 * adapters are, else NULL. */
	enum link_kind *near;
	/* place of each core, for machines without GPUs: numa and cpus; NULL: not told */
	struct topo_device *cores;
	int n_cores, numa;
	double memory;
	char unsaid[256];
};

/* The file's name without folder and ending names the machine. */
void topo_machine_init(struct machine *m, const char *file);
void topo_machine_fini(struct machine *m);

/* Each returns the index, or -1 and an error: out of memory, or more than a machine has. */
int topo_machine_place(struct machine *m, enum place_kind kind, int parent, struct err *e);
int topo_machine_gpu(struct machine *m, const struct found_gpu *g, struct err *e);
int topo_machine_nic(struct machine *m, const struct found_nic *n, struct err *e);
int topo_machine_link(struct machine *m, const struct found_link *l, struct err *e);

/* Adds a phrase to what the file does not say; one that is there already is not repeated. */
void topo_machine_unsaid(struct machine *m, const char *phrase);

/* `devices`: how many slots a machine without GPUs gives; 0: one a core. Takes nothing from m. */
int topo_machine_finish(const struct machine *m, int devices, struct node_kind *out, struct err *e);

/* Helpers for readers. */

/* Payload of a PCIe link of so many bytes/s: what NCCL counts on, 12 of 15.75 GB/s in generation
 * 3. */
double topo_machine_payload(double bandwidth);
/* A name that came from outside, cut to fit; '_' for all that is no printable ASCII. */
void topo_machine_text(char *out, size_t size, const char *text);
/* A file's name without folder and ending. */
void topo_machine_file_name(char out[TOPO_NAME], const char *file);
/* Words of 32 bits in hex, the highest first, parted by commas ("000000ff,ffff0000", "0xff,,0x0"),
 * as a kernel cpu list; "" when it is no such mask or the list does not fit. */
void topo_machine_mask(const char *mask, char out[TOPO_CPUS]);
/* The bits of such a mask, lowest first: topo_mask_next answers with each, then with -1; at what
 * is no word of 32 bits it ends. */
struct mask_bits {
	const char *mask, *end; /* end: of the next word; NULL: none is left */
	uint32_t word;
	long base;
	bool broken;
};
struct mask_bits topo_mask_bits(const char *mask);
long topo_mask_next(struct mask_bits *b);
/* A bus address as "0000:1b:00.0": lower case, four digits of domain at least. "" for what is
 * none. */
void topo_machine_bus(const char *text, char out[16]);

#endif
