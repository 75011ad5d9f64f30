#include "tests/conform/op_call.h"

#include "base/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };
static const unsigned char canary = 0x7b;
/* The tolerance for sums in float64 of numbers that were computed in fp32. */
static const double double_tolerance = 1e-6;

/* Hopper's tensor cores keep about 14 bits of the sums of products of 8 bits (DeepSeek-V3 Technical
 * Report, arXiv 2412.19437, section 3.3.2). On an H200 such products were off by 1.1e-4. */
static const double fp8_tolerance = 5e-4;

static bool arg_whole(const struct arg *a)
{
	return a->kind == TOKENS || a->kind == ROWS || a->kind == CHOICES || a->kind == PLACES;
}

const struct storage *op_call_storage(const struct op_call *c, int i)
{
	if (c->storage == &storage_fp64 || c->args[i].width == DOUBLE)
		return &storage_fp64;
	return c->args[i].width == STORED || c->args[i].width == STORED_OF_FP8 ? c->storage
									       : &storage_fp32;
}

double op_call_tolerance(const struct op_call *c, int i, bool tensor_cores)
{
	double stored = c->storage->tolerance;
	switch (c->args[i].width) {
	case STORED:
		return stored;
	case SINGLE:
		return storage_fp32.tolerance;
	case SINGLE_OF_STORED:
		return 4 * stored;
	case STORED_OF_FP8:
		return tensor_cores ? fmax(stored, fp8_tolerance) : stored;
	case SINGLE_OF_FP8:
		return tensor_cores ? fp8_tolerance : storage_fp32.tolerance;
	default:
		return double_tolerance;
	}
}

static size_t element_bytes(const struct op_call *c, int i)
{
	const struct arg *a = &c->args[i];
	if (a->kind == ROWS || a->kind == PLACES)
		return sizeof(int64_t);
	return arg_whole(a) ? sizeof(int32_t) : op_call_storage(c, i)->width;
}

size_t op_call_bytes(const struct op_call *c, int i)
{
	return (size_t)c->args[i].count * element_bytes(c, i);
}

static size_t block_bytes(const struct op_call *c, int i)
{
	return (c->lead[i] + op_call_bytes(c, i) + GUARD + 63) / 64 * 64;
}

void op_call_init(struct op_call *c, const struct op_test *t, const struct dims *d,
		  const struct storage *storage, int shift)
{
	memset(c, 0, sizeof *c);
	c->storage = storage;
	t->args(d, c->args);
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		c->lead[i] = GUARD + (size_t)shift * element_bytes(c, i);
		c->block[i] = aligned_alloc(64, block_bytes(c, i));
		if (!c->block[i])
			abort();
		memset(c->block[i], canary, block_bytes(c, i));
		c->p[i] = c->block[i] + c->lead[i];
	}
}

void op_call_fini(struct op_call *c)
{
	for (int i = 0; i < ARGS; i++)
		free(c->block[i]);
}

bool op_call_guarded(const struct op_call *c, int i)
{
	size_t begin = c->lead[i], end = begin + op_call_bytes(c, i);
	for (size_t j = 0; j < block_bytes(c, i); j++)
		if ((j < begin || j >= end) && c->block[i][j] != canary)
			return false;
	return true;
}

/* Draws normal numbers, a hundred at a time, because they come in groups of four. */
static void random_numbers(double *x, const struct arg *a, struct philox_key key)
{
	float normal[100];
	for (int64_t j = 0; j < a->count; j++) {
		if (j % 100 == 0)
			philox_normal(key, (uint64_t)j, 100, normal);
		x[j] = (double)(normal[j % 100] * (float)a->scale);
	}
}

static uint32_t random_below(const struct arg *a, struct philox_key key, int64_t j)
{
	uint32_t bits[4];
	philox4(key, (uint64_t)j, bits);
	return bits[0] % (uint32_t)a->scale;
}

static void random_whole(const struct arg *a, void *p, struct philox_key key)
{
	for (int64_t j = 0; j < a->count; j++)
		if (a->kind == ROWS)
			((int64_t *)p)[j] = random_below(a, key, j);
		else if (a->kind == PLACES)
			((int64_t *)p)[j] = -1;
		else
			((int32_t *)p)[j] = a->kind == TOKENS ? (int32_t)random_below(a, key, j)
							      : -1;
}

void op_call_random(struct op_call *c, uint64_t seed)
{
	for (int i = 0; i < ARGS; i++) {
		struct philox_key key = philox_key(seed, PHILOX_TEST, (uint64_t)i);
		if (arg_whole(&c->args[i]))
			random_whole(&c->args[i], c->p[i], key);
		else if (c->args[i].kind != NONE)
			random_numbers(c->p[i], &c->args[i], key);
	}
}

void op_call_round(struct op_call *c, const struct op_call *like)
{
	for (int i = 0; i < ARGS; i++)
		for (int64_t j = 0;
		     c->args[i].kind && !arg_whole(&c->args[i]) && j < c->args[i].count; j++)
			((double *)c->p[i])[j] = storage_round(op_call_storage(like, i),
							       ((double *)c->p[i])[j]);
}

void op_call_convert(struct op_call *to, const struct op_call *from)
{
	for (int i = 0; i < ARGS; i++) {
		enum kind kind = to->args[i].kind;
		if (arg_whole(&to->args[i]))
			memcpy(to->p[i], from->p[i], op_call_bytes(to, i));
		else if (kind != NONE)
			for (int64_t j = 0; j < to->args[i].count; j++) {
				double x = kind == SET ? (double)NAN : ((double *)from->p[i])[j];
				storage_put(op_call_storage(to, i), to->p[i], j, x);
			}
	}
}

void op_call_copy_bits(struct op_call *to, const struct op_call *from)
{
	for (int i = 0; i < ARGS; i++)
		if (to->args[i].kind != NONE)
			memcpy(to->p[i], from->p[i], op_call_bytes(from, i));
}

int op_call_lend(const struct op_call *c, struct backend *k, void *base[ARGS], void *p[ARGS],
		 struct err *e)
{
	memset(base, 0, ARGS * sizeof *base);
	memset(p, 0, ARGS * sizeof *p);
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		base[i] = backend_alloc(k, block_bytes(c, i));
		if (!base[i])
			return err_set(e, ERR_NOMEM, "no memory for %zu bytes", block_bytes(c, i));
		backend_put(k, base[i], c->block[i], block_bytes(c, i));
		p[i] = (unsigned char *)base[i] + c->lead[i];
	}
	return 0;
}

int op_call_fetch(struct op_call *c, struct backend *k, void *const base[ARGS], struct err *e)
{
	for (int i = 0; i < ARGS; i++)
		if (base[i] && backend_get(k, c->block[i], base[i], block_bytes(c, i), e))
			return -1;
	return 0;
}

void op_call_return(struct backend *k, void *const base[ARGS])
{
	for (int i = 0; i < ARGS; i++)
		backend_free(k, base[i]);
}
