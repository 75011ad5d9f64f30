/*
 * machine — how fast a device does what training asks of it.
 *
 * Each class of operations has a curve: the rate over the size of one operation. A small operation
 * pays for its launch, its edges and its packing; a large one does not fit into the caches. An
 * operation takes
 *
 *     seconds = work / rate(work) + op
 *
 * A product additionally takes the bytes of its weights at the rate `packing`, because a library
 * that packs them reads and writes them first. The curves of GPUs are constants with their sources
 * (devices.c), unless the chip was measured (chip.h); those of CPUs are measured (topo/measured.h). Work and rate are FLOPs and FLOP/s, or
 * bytes and bytes/s, read and written together.
 *
 * A GPU computes a product in tiles of the result, one tile on each of its `units` at a time. The
 * last wave of tiles is rarely full. Each wave begins with fetching operands and ends with writing
 * results, which takes `wave` whatever the depth:
 *
 *     seconds = least over the shapes of tiles of  waves × (2 m n depth / (share × rate / units) +
 *                                                  wave × m n / (256 × 128))
 *
 * and at least the time that its matrices take through memory. If there are fewer tiles than units,
 * the depth is split over the idle units.
 */
#ifndef MUSTER_PLAN_COST_MACHINE_H
#define MUSTER_PLAN_COST_MACHINE_H

#include "plan/cost/attention.h"
#include "plan/place/group_links.h"
#include "topo/measured.h"

/* Measured seconds over those of this model, over the size of an operation, on a GPU that was
 * measured (plan/cost/chip.h). n 0: not measured, and the model counts. */
enum { CHIP_DIMS = 2 };
struct cost_ratios {
	struct rate_curve product[RATE_PRODUCT_WEIGHT + 1]; /* over FLOPs */
	struct rate_curve eight[RATE_PRODUCT_WEIGHT + 1];   /* of 8-bit numbers */
	struct rate_curve attention[2][CHIP_DIMS]; /* forward, backward; over keys; cost_chip_dim */
};

struct cost_machine {
	/* as in struct machine_rates */
	struct rate_curve rates[RATE_CLASSES];
	double packing[RATE_PRODUCT_WEIGHT + 1];
	struct cost_ratios ratios;
	double op;
	/* the rate of products in fp32, for a step in 2-byte types whose optimizer computes in
	 * fp32; n 0: the rate of RATE_PRODUCT_FWD */
	struct rate_curve fp32_products;
	/* FLOP/s: GPUs only: what the shares of attention.h refer to; 0: attention has a curve */
	double attention;
	enum gpu_generation generation;
	bool listed; /* GPUs only: devices.c has a row for it; otherwise ordinary figures count */
	/* the rate of products of 8-bit numbers over that of 2-byte ones; 0: the device has
	 * none, or is not listed */
	double eight;
	int units;   /* units that compute tiles; 0: products are not split into tiles */
	double wave; /* seconds */
	/* the share of a link's data sheet bandwidth that transfers reach, inside a node and across
	 * nodes; 0: all of it */
	double link_share, net_share;
	/* the share of a transfer's time that is hidden if products run at the same time; the
	 * transfer takes the rest from them in units, memory and cores */
	double hides;
	/* bytes/s between the device's memory and its host's; 0: they are the same memory, and a
	 * copy is RATE_MOVED */
	double host;
	double sync;   /* seconds that a device idles after its host has waited for it */
	double spread; /* standard deviation over mean of the replicas' times of a step */
	/* Processors only: the number of agents on the node, and their threads over its cores.
	 * agents 0: each agent has a device of its own. */
	int agents;
	double crowd;
	/* exchanges among these agents; borrowed from the kind of node; NULL: the links count */
	const struct measured *measured;
};

double cost_curve_at(const struct rate_curve *c, double x);
/* The curve of CHIP_DIMS that counts for heads of this size. */
int cost_chip_dim(double dim);

/* Seconds of one operation; 0 if work is 0. */
double cost_machine_seconds(const struct cost_machine *m, enum rate_class class, double work);
/* Seconds of a product in fp32, whatever the type of the training's products. */
double cost_machine_fp32_product(const struct cost_machine *m, double flops);
/* flops: of the forward or backward pass. keys, dim: of one head. kernel: on GPUs. */
double cost_machine_attention(const struct cost_machine *m, enum attention_kernel kernel,
			      enum rate_class form, double flops, double keys, double dim);
/* y[n,out] = x[n,in] · w[out,in]ᵀ, or a backward form of it. width: bytes of an element; with 1 the
 * product is one of 8-bit numbers, at the rate of 2-byte ones where the device has none. */
double cost_machine_product(const struct cost_machine *m, enum rate_class form, double n, double in,
			    double out, double width);
/* `batch` equal products in one operation: y[batch] [rows, columns] of the given depth. */
double cost_machine_products(const struct cost_machine *m, enum rate_class form, double batch,
			     double rows, double columns, double depth, double width);

/* Reduces the bandwidths to what transfers reach. */
void cost_machine_links(const struct cost_machine *m, struct group_links group_links[GROUP_KINDS]);
/* Seconds to copy bytes from the device's memory to the host's, or back. */
double cost_machine_offload(const struct cost_machine *m, double bytes);
#endif
