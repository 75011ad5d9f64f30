#include "plan/cost/attention.h"

#define MEASURED_DIM 128.0

/* most: of the data sheet's rate, with infinitely long sequences. */
struct attention_curve {
	double most, half;
};

/*
 * From NVIDIA's cudnn-frontend repository: benchmark/attention_training/results/llama3.1, A100 and
 * H200 of 2026-09-28 (causal, 64 heads of 128, 8 of keys, 2k to 32k keys), and
 * benchmark/benchmark_results.csv (H100, causal, 4k to 64k keys, PyTorch's FlashAttention-2). TFLOPS
 * at 2k, 4k, 8k, 16k and 32k keys, of 312 and 989, and
 * GB200 of benchmark/sdpa_benchmark_training/results/llama3.1 (2026-04-24), of 2500:
 *
 *     A100  FlashAttention-2  forward   180  204  217  203  199    backward  141  168  173  175  180
 *           cuDNN                       155  174  177  173  176              109  128  136  139  143
 *     H200  cuDNN                       534  616  655  633  619              402  495  526  539  528
 *     GB200 cuDNN                      1097 1408 1574 1708 1622             885 1148 1332 1328 1226
 *     H100  FlashAttention-2              -  314  325  325  345                -  249  277  305  317
 *
 * FlashAttention of 2022 reaches 25 to 40 % of an A100 (Dao, arXiv 2307.08691, section 1); its share is
 * fitted to the rows of long sequences that are marked so (tests/unit/plan/rows).
 *
 * muster's own kernels use the same instructions as FlashAttention-2. Their backward pass computes 7
 * products where that computes 5, so that it needs no atomic sums (kernels/cuda). muster takes them, or
 * cuDNN's with a backward pass that gives the same bits each time, whichever is faster: on an H200
 * cuDNN's (tests/gpu/RESULTS.md, second run of 2026-11-27). TFLOPS there with 1k keys and heads of 64,
 * and with 2k keys and heads of 64 and of 128, and beside them the own kernels' in the same run:
 *
 *     H200  cuDNN                 forward   308  383  475    backward  225  232  335
 *           own                             193  227  277              149  163  144
 *
 * On other generations muster's kernels were not measured, and count as own.
 */
#define PRODUCTS_7 (5.0 / 7)
static const struct {
	struct attention_curve forward, backward;
} curves[GPU_GENERATIONS][ATTENTION_KERNELS] = {
	/* not measured; as on Ampere */
	[GENERATION_VOLTA] = {
		[ATTENTION_FLASH1] = { { 0.39, 300 }, { 0.345, 500 } },
		[ATTENTION_FLASH2] = { { 0.68, 300 }, { 0.59, 500 } },
		[ATTENTION_CUDNN] = { { 0.58, 300 }, { 0.465, 600 } },
		[ATTENTION_MUSTER] = { { 0.68, 300 }, { 0.59 * PRODUCTS_7, 500 } },
		[ATTENTION_MUSTER_OWN] = { { 0.68, 300 }, { 0.59 * PRODUCTS_7, 500 } },
	},
	[GENERATION_AMPERE] = {
		[ATTENTION_FLASH1] = { { 0.39, 300 }, { 0.345, 500 } },
		[ATTENTION_FLASH2] = { { 0.68, 300 }, { 0.59, 500 } },
		[ATTENTION_CUDNN] = { { 0.58, 300 }, { 0.465, 600 } },
		[ATTENTION_MUSTER] = { { 0.68, 300 }, { 0.59 * PRODUCTS_7, 500 } },
		[ATTENTION_MUSTER_OWN] = { { 0.68, 300 }, { 0.59 * PRODUCTS_7, 500 } },
	},
	[GENERATION_HOPPER] = {
		[ATTENTION_FLASH1] = { { 0.24, 350 }, { 0.21, 1100 } },
		[ATTENTION_FLASH2] = { { 0.35, 350 }, { 0.33, 1100 } },
		[ATTENTION_CUDNN] = { { 0.68, 500 }, { 0.555, 680 } },
		[ATTENTION_MUSTER] = { { 0.62, 440 }, { 0.40, 330 } },
		[ATTENTION_MUSTER_OWN] = { { 0.35, 350 }, { 0.33 * PRODUCTS_7, 700 } },
	},
	/* mma.sync: not measured; as on Hopper */
	[GENERATION_BLACKWELL] = {
		[ATTENTION_FLASH1] = { { 0.24, 350 }, { 0.21, 1100 } },
		[ATTENTION_FLASH2] = { { 0.35, 350 }, { 0.33, 1100 } },
		[ATTENTION_CUDNN] = { { 0.70, 1150 }, { 0.555, 1000 } },
		[ATTENTION_MUSTER] = { { 0.35, 350 }, { 0.33 * PRODUCTS_7, 700 } },
		[ATTENTION_MUSTER_OWN] = { { 0.35, 350 }, { 0.33 * PRODUCTS_7, 700 } },
	},
};

/* FLOPs of products in the time of one exponential: 16 exponentials a clock and unit, beside 1024
 * FLOPs on Volta, 2048 on Ampere, 4096 on Hopper and 8192 on Blackwell. */
static const double exponential[GPU_GENERATIONS] = { 64, 128, 256, 512 };

static double share(const struct attention_curve *c, enum gpu_generation g, double keys, double dim)
{
	double x = exponential[g],
	       of_dim = 4 * dim / (4 * dim + x) / (4 * MEASURED_DIM / (4 * MEASURED_DIM + x));
	return c->most * keys / (keys + c->half) * of_dim;
}

double cost_attention_forward(enum gpu_generation g, enum attention_kernel kernel, double keys,
			      double dim)
{
	return share(&curves[g][kernel].forward, g, keys, dim);
}

double cost_attention_backward(enum gpu_generation g, enum attention_kernel kernel, double keys,
			       double dim)
{
	return share(&curves[g][kernel].backward, g, keys, dim);
}
