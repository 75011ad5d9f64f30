/*
 * The tally of numbers in a device's memory, in two steps: each block writes its sums to the scratch,
 * then one block adds them up. The sums are integers modulo 2^64, so their order does not matter.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

enum { TALLY = 256, TALLY_BLOCKS = 1024 };

typedef unsigned long long word64;

static __device__ inline void add_tally(struct tally *t, const word64 (&s)[3])
{
	t->sum += s[0];
	t->weighted += s[1];
	t->bad += s[2];
}

/* An exponent of all ones is that of infinity and NaN. */
template <class T>
static __global__ void __launch_bounds__(TALLY)
	tally_kernel(struct tally *parts, const T *x, int64_t count, T exponent, uint64_t first)
{
	word64 s[3] = { 0, 0, 0 };
	for (int64_t i = (int64_t)blockIdx.x * TALLY + threadIdx.x; i < count;
	     i += (int64_t)gridDim.x * TALLY) {
		const T bits = x[i];
		s[0] += bits;
		s[1] += bits * (word64)(first + 1 + (uint64_t)i);
		s[2] += (bits & exponent) == exponent;
	}
	block_sums<3>(s);
	if (threadIdx.x == 0) {
		parts[blockIdx.x] = {};
		add_tally(&parts[blockIdx.x], s);
	}
}

static __global__ void __launch_bounds__(TALLY)
	tally_parts_kernel(struct tally *t, const struct tally *parts, int count)
{
	word64 s[3] = { 0, 0, 0 };
	for (int i = threadIdx.x; i < count; i += TALLY) {
		s[0] += parts[i].sum;
		s[1] += parts[i].weighted;
		s[2] += parts[i].bad;
	}
	block_sums<3>(s);
	if (threadIdx.x == 0)
		add_tally(t, s);
}

template <class T>
static void tally_numbers(struct backend *k, struct tally *t, const void *x, int64_t count,
			  T exponent, uint64_t first)
{
	unsigned blocks = cuda_blocks(count, TALLY * 8);
	blocks = blocks < TALLY_BLOCKS ? blocks : (unsigned)TALLY_BLOCKS;
	if (blocks == 0)
		return;
	struct tally *parts = (struct tally *)cuda_scratch(k, TALLY_BLOCKS * sizeof *parts,
							   "tally");
	launch(k, "tally", tally_kernel<T>, blocks, TALLY, 0, parts, (const T *)x, count, exponent,
	       first);
	launch(k, "tally", tally_parts_kernel, 1, TALLY, 0, t, parts, (int)blocks);
}

extern "C" void cuda_tally(struct backend *k, struct tally *t, const void *x, int64_t count,
			   enum number_format format, uint64_t first)
{
	if (format == NUMBER_FP32)
		tally_numbers<uint32_t>(k, t, x, count, 0x7f800000u, first);
	else
		tally_numbers<uint16_t>(k, t, x, count, format == NUMBER_BF16 ? 0x7f80 : 0x7c00,
					first);
}
