/*
 * machine — how fast a device does what training asks of it.
 *
 * Each class of operations has a curve: the rate that is reached over the size of one operation,
 * since a small one pays for its launch, its edges and its packing, and a large one leaves the
 * caches. An operation takes
 *
 *     seconds = work / rate(work) + op
 *
 * and a product besides the bytes of its weights at `packing`, as a library that lays them out anew
 * reads and writes them first. GPUs' curves are constants with their sources (devices.h); CPUs' are
 * measured (calibration.h). Work and rate are FLOPs and FLOP/s, or bytes and bytes/s, read and
 * written together.
 *
 * A GPU computes a product in tiles of the result, one on each of its `units` at a time. The last
 * wave of tiles is rarely full, and each wave begins by fetching operands and ends by writing
 * results, which takes `wave` whatever the depth:
 *
 *     seconds = least over the shapes of tiles of  waves × (2 m n depth / (share × rate / units) +
 *                                                  wave × m n / (256 × 128))
 *
 * and no less than its matrices take through memory. Where there are fewer tiles than units, the
 * depth is split over the idle ones.
 */
#ifndef MUSTER_PLAN_COST_MACHINE_H
#define MUSTER_PLAN_COST_MACHINE_H

#include "plan/place/span.h"

enum { RATE_POINTS = 16 };

/* x ascends. Between two points the rate is linear in log x, beyond the ends it is the end's. */
struct rate_curve {
	int n; /* 0: not known */
	double x[RATE_POINTS], rate[RATE_POINTS];
};

enum rate_class {
	/* FLOPs: 2 n in out. */
	RATE_PRODUCT_FWD,
	RATE_PRODUCT_INPUT,
	RATE_PRODUCT_WEIGHT,
	/* FLOPs of what is not masked: forward 4 × (visible query-key pairs) × heads × dim,
	 * backward 2.5 times that. The curve is over the elements of a head's keys: their number ×
	 * dim. */
	RATE_ATTENTION_FWD,
	RATE_ATTENTION_BWD,
	/* Bytes. */
	RATE_NORM_FWD,
	RATE_NORM_BWD,
	RATE_GELU_FWD,
	RATE_GELU_BWD,
	RATE_SWIGLU_FWD,
	RATE_SWIGLU_BWD,
	RATE_ROPE,
	RATE_XENT,     /* its three passes together: read, read and written, read and written */
	RATE_SUM_ROWS, /* gradients of biases */
	RATE_MOVED,    /* copies, sums, embedding, rows of experts */
	/* AdamW's seven words a parameter; what else a step does to each (zeroing, the norm,
	 * rounding) is in the rate */
	RATE_OPTIMIZER,
	RATE_CLASSES
};

struct machine {
	/* A class without a curve takes that of its kind: PRODUCT_FWD's, ATTENTION_FWD's (else
	 * PRODUCT_FWD's), MOVED's. */
	struct rate_curve rates[RATE_CLASSES];
	/* bytes/s, of each form of a product; 0: in its rate */
	double packing[RATE_PRODUCT_WEIGHT + 1];
	double op;   /* seconds an operation costs besides */
	int units;   /* that tiles are dealt to; 0: products are not cut into such */
	double wave; /* seconds */
	/* of a link's data sheet figure that transfers reach, inside a node and across; 0: all */
	double link_share, net_share;
	double hides; /* share of a transfer's time that is gained when products go on beside it; the rest they lose, as it takes units,
	                 * memory and cores from them */
	/* bytes/s between the device's memory and its host's; 0: they are the same, and a copy
	 * is RATE_MOVED */
	double host;
	double sync; /* seconds that a device idles after its host has waited for it */
	/* of the replicas' times for a step, relative: standard deviation over mean */
	double spread;
	/* Of processors, whose agents share a node: so many do, and their threads ask for
	 * `crowd` times its cores; 0: a device each. */
	int agents;
	double crowd;
	/* exchanges among them; borrowed from the kind of node; NULL: by the links */
	const struct measured *measured;
};

/* "product_fwd", "norm_bwd", … */
const char *topo_rate_class_word(enum rate_class class);

double cost_curve_at(const struct rate_curve *c, double x);

/* One operation. 0 for no work. */
double cost_machine_seconds(const struct machine *m, enum rate_class class, double work);
/* flops: of the forward or backward pass; keys × dim: of a head. */
double cost_machine_attention(const struct machine *m, enum rate_class form, double flops,
			      double keys, double dim);
/* y[n,out] = x[n,in] · w[out,in]ᵀ, or a backward form of it; width: bytes of an element. */
double cost_machine_product(const struct machine *m, enum rate_class form, double n, double in,
			    double out, double width);
/* So many equal ones in one operation: y[b] [rows, columns] of the given depth. */
double cost_machine_products(const struct machine *m, enum rate_class form, double batch,
			     double rows, double columns, double depth, double width);

/* Brings the spans' bandwidths down to what transfers reach. */
void cost_machine_links(const struct machine *m, struct span spans[GROUP_KINDS]);
/* Bytes from the device's memory to the host's, or back. */
double cost_machine_offload(const struct machine *m, double bytes);
/* What shows of a transfer beside `shade` seconds of products. */
double cost_machine_exposed(const struct machine *m, double transfer, double shade);

#endif
