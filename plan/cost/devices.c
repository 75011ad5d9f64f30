#include "plan/cost/devices.h"

#include "plan/cost/chip.h"
#include "plan/cost/measured.h"
#include "plan/spec/job/job.h"

#include <math.h>
#include <string.h>

#define UNKNOWN_FLOPS     20e9
#define UNKNOWN_BANDWIDTH 5e9

/*
 * GPUs.
 *   best     the share of the data sheet's dense bf16 rate that the fastest of large, nearly square
 *            products reach. Measured, from the "Maximum Achievable Matmul FLOPS" table in S.
 *            Bekman, "Machine Learning Engineering" (github.com/stas00/ml-engineering,
 *            compute/accelerator): A100 SXM 86.9 %, PCIe 81.1 %, H100 and H200 80.3 %, GH200
 *            83.8 %, B200 77.6 %, GB200 72.9 %, MI300X 51.4 %, MI325X 60.4 %. The other rows are
 *            estimated from devices of the same generation; GB300 is fitted to every second
 *            published row (tests/unit/plan/rows/moe.txt). Devices with a small power budget
 *            throttle more
 *   lasting  the share of that rate that is left during a step. Clocks are lower under hours of
 *            load than in the 100 products of a benchmark. It is fitted to the steps of Korthikanti
 *            and Narayanan on A100s, and to those of llm.c and Megatron-Core on Hopper
 *            (test_cost.c), where 700 W throttle more than 400 W; on Blackwell to the rows of
 *            tests/unit/plan/rows that are marked so. Other new devices count as Hopper
 *   units    streaming multiprocessors (compute units), from the architectures' white papers
 *   host     PCIe ×16 by its specification, less a fifth for its packets. NVLink-C2C ("GH200" data
 *            sheet: 900 GB/s in both directions together) by the rate of host memory
 */
static const double lasting[GPU_GENERATIONS] = {
	[GENERATION_VOLTA] = 0.98,
	[GENERATION_AMPERE] = 0.98,
	[GENERATION_HOPPER] = 0.92,
	[GENERATION_BLACKWELL] = 0.86,
};
#define VOLTA     GENERATION_VOLTA
#define AMPERE    GENERATION_AMPERE
#define HOPPER    GENERATION_HOPPER
#define BLACKWELL GENERATION_BLACKWELL
#define PCIE3     12.5e9
#define PCIE4     25e9
#define PCIE5     50e9
#define C2C       300e9
/* The rate of fp32 products, on NVIDIA devices since Ampere as TF32. Data sheets: the V100 has 15.7
 * of its 125 TFLOPS, the T4 8.1 of 65, the MI100 46.1 of 184.6, the MI250X 95.7 of 383. */
#define HALF    0.5
#define EIGHTH  0.125
#define QUARTER 0.25

/* The rate of 8-bit products over that of 2-byte ones, whose data sheets say 2. The same table of
 * Bekman has 70 to 72 % of the data sheet's rate for H100s in 8 bits, beside 80 % in bf16. */
#define EIGHT 1.77

/* clang-format off */
static const struct gpu {
	const char *name; /* how the device's name begins; the first matching row counts */
	int units;
	double best;
	enum gpu_generation generation;
	double host;
	double wide; /* rate of fp32 products over the rate of 2-byte products */
	double eight;
} gpus[] = {
	{ "A100-PCIe", 108, 0.811, AMPERE, PCIE4, HALF, 0 },
	{ "A800-PCIe", 108, 0.811, AMPERE, PCIE4, HALF, 0 },
	{ "A100", 108, 0.869, AMPERE, PCIE4, HALF, 0 },
	{ "A800", 108, 0.869, AMPERE, PCIE4, HALF, 0 },
	{ "A30", 56, 0.8, AMPERE, PCIE4, HALF, 0 },
	{ "H100-PCIe", 114, 0.75, HOPPER, PCIE5, HALF, EIGHT },
	{ "H800-PCIe", 114, 0.75, HOPPER, PCIE5, HALF, EIGHT },
	{ "H100", 132, 0.803, HOPPER, PCIE5, HALF, EIGHT },
	{ "H800", 132, 0.803, HOPPER, PCIE5, HALF, EIGHT },
	{ "H200", 132, 0.803, HOPPER, PCIE5, HALF, EIGHT },
	{ "H20", 78, 0.85, AMPERE, PCIE5, HALF, EIGHT },
	{ "GH200", 132, 0.838, HOPPER, C2C, HALF, EIGHT },
	{ "GB200", 148, 0.729, BLACKWELL, C2C, HALF, EIGHT },
	{ "GB300", 148, 0.91, BLACKWELL, C2C, HALF, EIGHT },
	{ "GB10", 48, 0.7, HOPPER, C2C, HALF, EIGHT },
	{ "B200", 148, 0.776, BLACKWELL, PCIE5, HALF, EIGHT },
	{ "B300", 148, 0.786, BLACKWELL, PCIE5, HALF, EIGHT },
	{ "L40S", 142, 0.65, AMPERE, PCIE4, HALF, EIGHT },
	{ "L40", 142, 0.8, AMPERE, PCIE4, HALF, EIGHT },
	{ "L4", 58, 0.6, AMPERE, PCIE4, HALF, EIGHT },
	{ "A10G", 80, 0.7, AMPERE, PCIE4, HALF, 0 },
	{ "A10", 72, 0.7, AMPERE, PCIE4, HALF, 0 },
	{ "A40", 84, 0.7, AMPERE, PCIE4, HALF, 0 },
	{ "RTX-A6000", 84, 0.7, AMPERE, PCIE4, HALF, 0 },
	{ "RTX-3090", 82, 0.7, AMPERE, PCIE4, HALF, 0 },
	{ "RTX-4090", 128, 0.8, AMPERE, PCIE4, HALF, EIGHT },
	{ "T4", 40, 0.5, VOLTA, PCIE3, EIGHTH, 0 },
	{ "V100", 80, 0.8, VOLTA, PCIE3, EIGHTH, 0 },
	{ "P100", 56, 0.85, VOLTA, PCIE3, HALF, 0 },
	{ "MI300A", 228, 0.51, HOPPER, C2C, HALF, EIGHT },
	{ "MI300X", 304, 0.514, HOPPER, PCIE5, HALF, EIGHT },
	{ "MI325X", 304, 0.604, HOPPER, PCIE5, HALF, EIGHT },
	{ "MI250X", 110, 0.75, AMPERE, PCIE4, QUARTER, 0 },
	{ "MI250", 104, 0.75, AMPERE, PCIE4, QUARTER, 0 },
	{ "MI210", 104, 0.75, AMPERE, PCIE4, QUARTER, 0 },
	{ "MI100", 120, 0.75, AMPERE, PCIE4, QUARTER, 0 },
	{ "MI60", 64, 0.75, VOLTA, PCIE4, HALF, 0 },
	{ "MI50", 60, 0.75, VOLTA, PCIE4, HALF, 0 },
	{ "", 0, 0.75, HOPPER, PCIE3, HALF, 0 },
};
/* clang-format on */

/*
 * Constants of all GPUs, fitted on A100s (tests/unit/plan/test_cost.c compares them with the
 * published steps):
 *   MEMORY    the share of the data sheet's bandwidth that kernels over whole tensors reach. Copies
 *             reach 0.85 to 0.9 of it; softmax, dropout and norms reach less, because of their sums
 *             and random numbers. Narayanan's and Korthikanti's rows agree on 0.66 to 0.70
 *   WAVE      the time to fetch a tile's first operands and to write 64 KiB of results, at the
 *             units' share of the L2 cache: 3 to 4 µs
 *   OP        the time from one kernel's end to the next one's start in a full queue, with its ramp
 *   LINK, NET  NCCL's bus bandwidth of large all-reduces: 230 GB/s of 300 on 8 A100s (nccl-tests'
 *             issues 100 and 149), 20 to 23 of 25 per GPU over HDR InfiniBand (issue 119: 85 to 96
 *             of 100 per node)
 *   HIDES     everything, except for the units that NCCL's channels take from concurrent products:
 *             16 to 20 of 108 (Calculon, systems/a100_80g.json: 15 %)
 *   SYNC      cudaStreamSynchronize, then the host's launches until the device is busy again
 *   SPREAD    Korthikanti et al., arXiv 2205.05198, section 6.3: 37.83 s become 39.15 s with eight
 *             replicas; their all-reduce takes 0.3 to 0.4 s of that. Sinha et al., "Not All GPUs
 *             Are Created Equal", SC22: a few percent between A100s
 */
#define MEMORY 0.70
#define WAVE   3.5e-6
#define OP     4e-6
#define LINK   0.77
#define NET    0.80
#define HIDES  0.85
#define SYNC   100e-6
#define SPREAD 0.012

/* Shares for CPUs that were not measured: what an ordinary BLAS reaches of the cores' peak, what
 * STREAM reaches of the memory's bandwidth, and the start of a parallel region. */
#define CPU_PRODUCTS 0.70
#define CPU_MEMORY   0.80
#define CPU_OP       5e-6

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

static struct rate_curve flat(double rate)
{
	return (struct rate_curve){ 1, { 1 }, { rate } };
}

static const struct gpu *gpu_of(const char *device)
{
	const struct gpu *g = gpus;
	while (strncmp(device, g->name, strlen(g->name)))
		g++;
	return g;
}

void cost_machine_of(const struct node_kind *k, bool low_precision, double part,
		     struct cost_machine *out)
{
	double flops = part *
		       known(k->device_flops, known(cost_chip_flops(k->chip), UNKNOWN_FLOPS)),
	       bandwidth = part * known(k->device_bandwidth, UNKNOWN_BANDWIDTH);
	*out = (struct cost_machine){ .op = CPU_OP };
	out->rates[RATE_PRODUCT_FWD] = flat(CPU_PRODUCTS * flops);
	out->rates[RATE_MOVED] = flat(CPU_MEMORY * bandwidth);
	if (!strcmp(k->device, "cpu"))
		return;
	const struct gpu *g = gpu_of(k->device);
	double products = g->best * lasting[g->generation] * flops * (low_precision ? 1 : g->wide);
	*out = (struct cost_machine){ .op = OP,
				      .attention = lasting[g->generation] * flops *
						   (low_precision ? 1 : g->wide),
				      .generation = g->generation,
				      .listed = *g->name != '\0',
				      .eight = g->eight,
				      .units = g->units,
				      .wave = WAVE,
				      .link_share = LINK,
				      .net_share = NET,
				      .hides = HIDES,
				      .host = g->host,
				      .sync = SYNC,
				      .spread = SPREAD };
	out->rates[RATE_PRODUCT_FWD] = flat(products);
	if (low_precision)
		out->fp32_products = flat(g->wide * products);
	out->rates[RATE_MOVED] = flat(MEMORY * bandwidth);
	/* The update moves 7 words; the norm of the gradients reads an eighth one. */
	out->rates[RATE_OPTIMIZER] = flat(MEMORY * bandwidth * 7 / 8);
	if (k->chip)
		cost_chip_apply(k->chip, low_precision, out);
}

bool cost_device_lacks(const struct job *job, const struct node_kind *k)
{
	struct cost_machine m;
	if (job->precision.dtype != DTYPE_BF16 || !strcmp(k->device, "cpu"))
		return false;
	cost_machine_of(k, true, 1, &m);
	return m.listed && m.generation < GENERATION_AMPERE;
}

void cost_machine_of_agents(const struct node_kind *k, bool low_precision, int agents, int threads,
			    struct cost_machine *out)
{
	double cores = k->cores > 0 ? k->cores : (double)agents * threads;
	if (strcmp(k->device, "cpu")) {
		cost_machine_of(k, low_precision, 1, out);
		out->measured = k->measured;
		return;
	}
	/* If 2-byte storage was not measured, the figures of fp32 count, because products and sums
	 * are computed in fp32 anyway. */
	struct cost_machine fp32 = { .op = 0 };
	bool has_fp32 = k->measured &&
			cost_measured_machine(k->measured, agents, threads, false, &fp32);
	if (k->measured && low_precision &&
	    cost_measured_machine(k->measured, agents, threads, true, out))
		out->fp32_products = fp32.rates[RATE_PRODUCT_FWD];
	else if (has_fp32)
		*out = fp32;
	else
		cost_machine_of(k, low_precision, fmin(1, threads / cores) * k->devices, out);
	out->agents = agents;
	out->crowd = agents * threads / cores;
	out->measured = k->measured;
}

double cost_machine_pace(const struct cost_machine *m)
{
	const struct rate_curve *ratio = &m->ratios.product[RATE_PRODUCT_FWD];
	return cost_curve_at(&m->rates[RATE_PRODUCT_FWD], 1e12) /
	       (fmax(1, m->crowd) * (ratio->n ? cost_curve_at(ratio, 1e12) : 1));
}
