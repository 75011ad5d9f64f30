/*
 * attention — the rate of fused attention kernels on GPUs by their length.
 *
 * A kernel reaches its rate only with long sequences: tiles on the diagonal compute what the mask
 * throws away, and each row of tiles begins and ends with work that is no product. Measured rates
 * follow
 *
 *     rate(keys) = most × keys / (keys + half)
 *
 * within 7 %, where `half` is the length with half of the rate. FLOPs count as causal attention
 * needs them: half of the square, 2 products forward and 5 backward.
 *
 * Measured with heads of 128. A score costs 4 × dim FLOPs and one exponential. An exponential takes
 * as long as `exponential` FLOPs, and kernels hide almost none of it (Shah et al.,
 * "FlashAttention-3", arXiv 2407.08608, section 1: an H100 computes 989 TFLOPS of products and 3.9
 * T exponentials a second). So with other heads the rate is
 *
 *     rate(dim) = rate(128) × (4 dim / (4 dim + exponential)) / (4 × 128 / (4 × 128 + exponential))
 */
#ifndef MUSTER_PLAN_COST_ATTENTION_H
#define MUSTER_PLAN_COST_ATTENTION_H

/* The kernels that engines use. */
enum attention_kernel {
	ATTENTION_STORED, /* not fused: scores go through memory as products and passes */
	ATTENTION_FLASH1, /* FlashAttention of 2022, and Triton's kernel after it */
	ATTENTION_FLASH2, /* FlashAttention-2: mma.sync */
	ATTENTION_CUDNN,  /* cuDNN 9: wgmma on Hopper, tcgen05 on Blackwell */
	ATTENTION_MUSTER, /* the faster of cuDNN's and kernels/cuda, where cuDNN's can be used */
	ATTENTION_MUSTER_OWN, /* kernels/cuda */
	ATTENTION_KERNELS
};

/* Generations of GPUs that differ in their kernels. Each one counts as the newest that it is not
 * older than. Only from Ampere on are there products in bf16. */
enum gpu_generation {
	GENERATION_VOLTA, /* and older */
	GENERATION_AMPERE,
	GENERATION_HOPPER,
	GENERATION_BLACKWELL, /* its data center devices */
	GPU_GENERATIONS
};

/* The share of the data sheet's dense rate of 2-byte products that a kernel reaches. */
double cost_attention_forward(enum gpu_generation g, enum attention_kernel kernel, double keys,
			      double dim);
double cost_attention_backward(enum gpu_generation g, enum attention_kernel kernel, double keys,
			       double dim);

#endif
