/* The tally of numbers in the host's memory: one pass, bound by memory bandwidth. */
#include "base/numbers.h"
#include "kernels/backend.h"

#include <string.h>

/* Numbers per block: the product of a number's bits and its index in the block fits in 48 bits. */
enum { BLOCK = 1 << 16 };

/* Adds a block's sums to *t. The block begins with number `first` of the tensor. */
static void add_block(struct tally *t, const struct tally *block, uint64_t first)
{
	t->sum += block->sum;
	t->weighted += block->weighted + (first + 1) * block->sum;
	t->bad += block->bad;
}

/* Sums over n <= BLOCK numbers, whose weights count from 0. An exponent of all ones is that of
 * infinity and NaN. */
#define DEFINE_BLOCK(name, type) \
	static struct tally name(const type *x, int64_t n, type exponent) \
	{ \
		uint64_t sum = 0, weighted = 0; \
		uint32_t bad = 0; \
		_Pragma("omp simd reduction(+ : sum, weighted, bad)") for (uint32_t i = 0; \
									   i < (uint32_t)n; i++) \
		{ \
			sum += x[i]; \
			weighted += (uint64_t)x[i] * i; \
			bad += (x[i] & exponent) == exponent; \
		} \
		return (struct tally){ .sum = sum, .weighted = weighted, .bad = bad }; \
	}
DEFINE_BLOCK(tally_words, uint32_t)
DEFINE_BLOCK(tally_halves, uint16_t)

static struct tally tally_block(const char *x, int64_t n, enum number_format format)
{
	if (format == NUMBER_FP32)
		return tally_words((const uint32_t *)x, n, 0x7f800000);
	return tally_halves((const uint16_t *)x, n, format == NUMBER_BF16 ? 0x7f80 : 0x7c00);
}

/* The sums are modulo 2^64, so their order does not matter. */
void backend_tally_host(struct tally *t, const void *x, int64_t count, enum number_format format,
			uint64_t first, int threads)
{
	const int64_t blocks = (count + BLOCK - 1) / BLOCK;
	const size_t width = format == NUMBER_FP32 ? 4 : 2;
	uint64_t sum = 0, weighted = 0, bad = 0;
	#pragma omp parallel for schedule(static) num_threads(threads) if (blocks > 1) \
		reduction(+ : sum, weighted, bad)
	for (int64_t b = 0; b < blocks; b++) {
		struct tally part = { 0 };
		const struct tally block =
			tally_block((const char *)x + (size_t)(b * BLOCK) * width,
				    min_int64(BLOCK, count - b * BLOCK), format);
		add_block(&part, &block, first + (uint64_t)(b * BLOCK));
		sum += part.sum;
		weighted += part.weighted;
		bad += part.bad;
	}
	t->sum += sum;
	t->weighted += weighted;
	t->bad += bad;
}

void backend_tally(struct backend *k, struct tally *t, const void *x, int64_t count,
		   enum number_format format, uint64_t first)
{
	if (k->device)
		k->device->tally(k, t, x, count, format, first);
	else
		backend_tally_host(t, x, count, format, first, k->threads);
}

enum number_format backend_format(const struct backend *k)
{
	if (k->element == sizeof(float))
		return NUMBER_FP32;
	return strstr(k->ops.name, ":bf16") ? NUMBER_BF16 : NUMBER_FP16;
}

const char *backend_isa(const struct backend *k)
{
	return k->isa;
}
