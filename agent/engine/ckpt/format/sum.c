#include "agent/engine/ckpt/format/sum.h"

#include "base/numbers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 2048, WORDS = SEGMENT / 2, BLOCK = 1 << 22 };

/* Seeds of the keys B(j) and A(s). */
static const uint64_t word_seed = 0x6d75737465722d42, segment_seed = 0x6d75737465722d41;

static uint64_t word_keys[WORDS];
static pthread_once_t keys_made = PTHREAD_ONCE_INIT;

/* The i-th number of splitmix64 from this seed. */
static uint64_t splitmix(uint64_t seed, uint64_t i)
{
	uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

ckpt_sum ckpt_sum_key(uint64_t seed, uint64_t i)
{
	return (ckpt_sum)splitmix(seed, 2 * i + 1) << 64 | splitmix(seed, 2 * i) | 1;
}

static void make_keys(void)
{
	for (uint64_t j = 0; j < WORDS; j++)
		word_keys[j] = splitmix(word_seed, j) | 1;
}

struct ckpt_blocks ckpt_blocks_of(int dims, const int64_t *shape)
{
	struct ckpt_blocks b = { .rows = dims == 1 ? 1 : shape[0],
				 .columns = dims == 1 ? shape[0] : shape[1] };
	b.per_row = (b.columns - 1) / SEGMENT + 1;
	b.per_block = BLOCK / min_int64(b.columns, SEGMENT);
	b.n = (b.rows * b.per_row - 1) / b.per_block + 1;
	return b;
}

/* A box in rows and columns. */
struct box {
	int64_t row, rows, column, columns;
};

static struct box box_of(int dims, const int64_t *lo, const int64_t *hi)
{
	if (dims == 1)
		return (struct box){ 0, 1, lo[0], hi[0] - lo[0] };
	return (struct box){ lo[0], hi[0] - lo[0], lo[1], hi[1] - lo[1] };
}

void ckpt_blocks_touched(int dims, const int64_t *shape, const int64_t *lo, const int64_t *hi,
			 int64_t *first, int64_t *last)
{
	struct ckpt_blocks b = ckpt_blocks_of(dims, shape);
	struct box box = box_of(dims, lo, hi);
	int64_t end = box.row + box.rows - 1, right = box.column + box.columns - 1;
	*first = (box.row * b.per_row + box.column / SEGMENT) / b.per_block;
	*last = (end * b.per_row + right / SEGMENT) / b.per_block;
}

int ckpt_sums_reserve(struct ckpt_sums *s, int64_t first, int64_t last, struct err *e)
{
	if (s->at && first >= s->first && last < s->first + s->n)
		return 0;
	int64_t lo = s->at ? min_int64(first, s->first) : first;
	int64_t hi = s->at ? max_int64(last + 1, s->first + s->n) : last + 1;
	ckpt_sum *at = calloc((size_t)(hi - lo), sizeof *at);
	if (!at)
		return err_set(e, ERR_NOMEM, "no memory for the sums of %lld blocks",
			       (long long)(hi - lo));
	if (s->at)
		memcpy(at + (s->first - lo), s->at, (size_t)s->n * sizeof *at);
	free(s->at);
	*s = (struct ckpt_sums){ lo, hi - lo, at };
	return 0;
}

static uint64_t half_word(const float *x)
{
	uint32_t bits;
	memcpy(&bits, x, sizeof bits);
	return bits;
}

/* The sum of the words' products over n elements, the first of which is in this column of its
 * segment. Two accumulators, because each addition waits for the carry of the one before it. */
static ckpt_sum add_words(const float *x, int64_t column, int64_t n)
{
	ckpt_sum even = 0, odd = 0;
	if (column % 2 && n > 0) {
		odd = (ckpt_sum)(half_word(x) << 32) * word_keys[column / 2];
		column++;
		x++;
		n--;
	}
	const uint64_t *key = word_keys + column / 2;
	for (; n >= 4; n -= 4, x += 4, key += 2) {
		uint64_t w[2];
		memcpy(w, x, sizeof w);
		even += (ckpt_sum)w[0] * key[0];
		odd += (ckpt_sum)w[1] * key[1];
	}
	if (n >= 2) {
		uint64_t w;
		memcpy(&w, x, sizeof w);
		even += (ckpt_sum)w * *key++;
		x += 2;
	}
	if (n % 2)
		odd += (ckpt_sum)half_word(x) * *key;
	return even + odd;
}

void ckpt_sums_add(struct ckpt_sums *s, int dims, const int64_t *shape, const int64_t *lo,
		   const int64_t *hi, int64_t from, int64_t n, const float *data)
{
	struct ckpt_blocks b = ckpt_blocks_of(dims, shape);
	struct box box = box_of(dims, lo, hi);
	pthread_once(&keys_made, make_keys);
	while (n > 0) {
		int64_t row = box.row + from / box.columns, at = from % box.columns;
		int64_t column = box.column + at, within = column % SEGMENT;
		int64_t run = min_int64(min_int64(n, box.columns - at), SEGMENT - within);
		int64_t segment = row * b.per_row + column / SEGMENT;
		s->at[segment / b.per_block - s->first] += add_words(data, within, run) *
							   ckpt_sum_key(segment_seed,
									(uint64_t)segment);
		data += run;
		from += run;
		n -= run;
	}
}

int ckpt_sums_merge(struct ckpt_sums *s, const struct ckpt_sums *more, struct err *e)
{
	if (!more->at)
		return 0;
	if (ckpt_sums_reserve(s, more->first, more->first + more->n - 1, e))
		return -1;
	for (int64_t i = 0; i < more->n; i++)
		s->at[more->first - s->first + i] += more->at[i];
	return 0;
}

ckpt_sum ckpt_sums_get(const struct ckpt_sums *s, int64_t block)
{
	return s->at && block >= s->first && block < s->first + s->n ? s->at[block - s->first] : 0;
}

bool ckpt_sums_equal(const struct ckpt_sums *a, const struct ckpt_sums *b)
{
	for (int64_t i = 0; i < a->n; i++)
		if (a->at[i] != ckpt_sums_get(b, a->first + i))
			return false;
	for (int64_t i = 0; i < b->n; i++)
		if (b->at[i] != ckpt_sums_get(a, b->first + i))
			return false;
	return true;
}

void ckpt_sums_fini(struct ckpt_sums *s)
{
	free(s->at);
	*s = (struct ckpt_sums){ 0 };
}
