#include "libcomm/reduce.h"

#include <string.h>

/* Elements that are reduced along the whole tree before the next ones: partial results stay in the
 * first-level cache. */
enum { BLOCK = 1024 };

/* Selects the vector units of newer machines when the program starts. The resolvers run before a
 * sanitizer is ready. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
	!defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* --- Half precision, without branches so that the loops vectorize ----------------------------- */

static inline float float_of(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t bits_of(float f)
{
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	return b;
}

static inline float load_bf16(uint16_t h)
{
	return float_of((uint32_t)h << 16);
}

static inline uint16_t store_bf16(float f)
{
	uint32_t b = bits_of(f);
	uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
	uint32_t nan = (b >> 16) | 0x40;
	return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static inline float load_f16(uint16_t h)
{
	uint32_t magnitude = h & 0x7fff;
	/* 2^112 moves the exponent's bias from 15 to 127, for subnormal numbers too. */
	uint32_t finite = bits_of(float_of(magnitude << 13) * 0x1p112f);
	uint32_t special = (magnitude << 13) | 0x7f800000;
	return float_of((magnitude >= 0x7c00 ? special : finite) | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t store_f16(float f)
{
	uint32_t b = bits_of(f), a = b & 0x7fffffff;
	uint32_t normal = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
	/* The last bit of 0.5 is worth one subnormal step: the addition rounds. */
	uint32_t small = bits_of(float_of(a) + 0.5f) - 0x3f000000;
	uint32_t r = a < 0x38800000 ? small : normal;
	r = a >= 0x477ff000 ? 0x7c00 : r;
	r = a > 0x7f800000 ? 0x7e00 : r;
	return (uint16_t)(r | (b >> 16 & 0x8000));
}

/* --- The loops, for each type and each operation --- */

#define SAME(x) (x)

/* type's name, element, accumulator, load, store */
#define TYPES(X) \
	X(f32, float, float, SAME, SAME) \
	X(f64, double, double, SAME, SAME) \
	X(bf16, uint16_t, float, load_bf16, store_bf16) \
	X(f16, uint16_t, float, load_f16, store_f16) \
	X(i32, uint32_t, uint32_t, SAME, SAME) \
	X(i64, uint64_t, uint64_t, SAME, SAME) \
	X(u8, uint8_t, uint8_t, SAME, SAME)

/* The type in which values are compared and divided. */
typedef float cmp_f32;
typedef double cmp_f64;
typedef float cmp_bf16;
typedef float cmp_f16;
typedef int32_t cmp_i32;
typedef int64_t cmp_i64;
typedef int32_t cmp_u8;

#define SUM(C, a, b)  ((a) + (b))
#define MAX(C, a, b)  ((C)(b) > (C)(a) ? (b) : (a))
#define MIN(C, a, b)  ((C)(b) < (C)(a) ? (b) : (a))
#define PROD(C, a, b) ((a) * (b))

#define LOOPS_OP(name, E, A, load, op, OP) \
	WIDE static void pair_##name##_##op(void *acc, const void *left, const void *right, \
					    size_t n) \
	{ \
		A *restrict a = acc; \
		const E *l = left, *r = right; \
		for (size_t i = 0; i < n; i++) { \
			A x = load(l[i]), y = load(r[i]); \
			a[i] = (A)OP(cmp_##name, x, y); \
		} \
	} \
	WIDE static void join_##name##_##op(void *acc, const void *right, size_t n) \
	{ \
		A *restrict a = acc; \
		const E *restrict r = right; \
		for (size_t i = 0; i < n; i++) { \
			A x = a[i], y = load(r[i]); \
			a[i] = (A)OP(cmp_##name, x, y); \
		} \
	} \
	WIDE static void fold_##name##_##op(void *acc, const void *right, size_t n) \
	{ \
		A *restrict a = acc; \
		const A *restrict r = right; \
		for (size_t i = 0; i < n; i++) \
			a[i] = (A)OP(cmp_##name, a[i], r[i]); \
	}

#define LOOPS(name, E, A, load, store) \
	LOOPS_OP(name, E, A, load, sum, SUM) \
	LOOPS_OP(name, E, A, load, max, MAX) \
	LOOPS_OP(name, E, A, load, min, MIN) \
	LOOPS_OP(name, E, A, load, prod, PROD) \
	WIDE static void load_##name##_all(void *acc, const void *in, size_t n) \
	{ \
		A *restrict a = acc; \
		const E *restrict s = in; \
		for (size_t i = 0; i < n; i++) \
			a[i] = load(s[i]); \
	} \
	WIDE static void store_##name##_all(void *out, const void *acc, size_t n) \
	{ \
		E *restrict o = out; \
		const A *restrict a = acc; \
		for (size_t i = 0; i < n; i++) \
			o[i] = store(a[i]); \
	} \
	WIDE static void divide_##name(void *acc, size_t n, int ranks) \
	{ \
		A *a = acc; \
		for (size_t i = 0; i < n; i++) \
			a[i] = (A)((cmp_##name)a[i] / (cmp_##name)ranks); \
	}

TYPES(LOOPS)

struct op_loops {
	void (*pair)(void *acc, const void *left, const void *right, size_t n);
	void (*join)(void *acc, const void *right_elements, size_t n);
	void (*fold)(void *acc, const void *right_acc, size_t n);
};

struct type_loops {
	size_t size, acc_size;
	void (*load)(void *acc, const void *in, size_t n);
	void (*store)(void *out, const void *acc, size_t n);
	void (*divide)(void *acc, size_t n, int ranks);
	struct op_loops op[5]; /* by enum comm_op */
};

#define OP_ROW(name, op) \
	{ \
		pair_##name##_##op, join_##name##_##op, fold_##name##_##op \
	}
#define TYPE_ROW(name, E, A, l, s) \
	{ sizeof(E), \
	  sizeof(A), \
	  load_##name##_all, \
	  store_##name##_all, \
	  divide_##name, \
	  { [COMM_SUM] = OP_ROW(name, sum), \
	    [COMM_AVG] = OP_ROW(name, sum), \
	    [COMM_MAX] = OP_ROW(name, max), \
	    [COMM_MIN] = OP_ROW(name, min), \
	    [COMM_PROD] = OP_ROW(name, prod) } },

static const struct type_loops loops[] = { TYPES(TYPE_ROW) }; /* in the order of enum comm_type */

/* --- The tree --- */

static int left_ranks(int n)
{
	int p = 1;
	while (2 * p < n)
		p *= 2;
	return p;
}

/* acc[m] = the reduction of n (> 1) vectors' elements from byte `at` on. It is not inlined, and
 * neither is store_mean, because a frame would hold several accumulators. */
__attribute__((noinline)) static void tree(const struct type_loops *t, const struct op_loops *op,
					   const void *const *src, int n, size_t at, size_t m,
					   void *acc)
{
	if (n == 2) {
		op->pair(acc, (const char *)src[0] + at, (const char *)src[1] + at, m);
		return;
	}
	int p = left_ranks(n);
	tree(t, op, src, p, at, m, acc);
	if (n - p == 1) {
		op->join(acc, (const char *)src[p] + at, m);
		return;
	}
	double right[BLOCK]; /* the widest accumulator */
	tree(t, op, src + p, n - p, at, m, right);
	op->fold(acc, right, m);
}

void comm_reduce_tree(enum comm_type type, enum comm_op op, const void *const *src, int n,
		      void *out, size_t count)
{
	const struct type_loops *t = &loops[type];
	if (n == 1) {
		if (out != src[0])
			memmove(out, src[0], count * t->size);
		return;
	}
	double acc[BLOCK];
	for (size_t i = 0; i < count; i += BLOCK) {
		size_t m = count - i < BLOCK ? count - i : BLOCK;
		tree(t, &t->op[op], src, n, i * t->size, m, acc);
		comm_reduce_store(type, op, (char *)out + i * t->size, acc, m, n);
	}
}

void comm_reduce_partial(enum comm_type type, enum comm_op op, const void *const *src, int n,
			 void *acc, size_t count)
{
	const struct type_loops *t = &loops[type];
	if (n == 1) {
		t->load(acc, src[0], count);
		return;
	}
	for (size_t i = 0; i < count; i += BLOCK) {
		size_t m = count - i < BLOCK ? count - i : BLOCK;
		tree(t, &t->op[op], src, n, i * t->size, m, (char *)acc + i * t->acc_size);
	}
}

size_t comm_reduce_acc_size(enum comm_type type)
{
	return loops[type].acc_size;
}

size_t comm_type_size(enum comm_type type)
{
	return loops[type].size;
}

void comm_reduce_load(enum comm_type type, void *acc, const void *in, size_t count)
{
	loops[type].load(acc, in, count);
}

void comm_reduce_fold(enum comm_type type, enum comm_op op, void *acc, const void *right,
		      size_t count)
{
	loops[type].op[op].fold(acc, right, count);
}

__attribute__((noinline)) static void store_mean(const struct type_loops *t, void *out,
						 const void *acc, size_t count, int n)
{
	double mean[BLOCK];
	for (size_t i = 0; i < count; i += BLOCK) {
		size_t m = count - i < BLOCK ? count - i : BLOCK;
		memcpy(mean, (const char *)acc + i * t->acc_size, m * t->acc_size);
		t->divide(mean, m, n);
		t->store((char *)out + i * t->size, mean, m);
	}
}

void comm_reduce_store(enum comm_type type, enum comm_op op, void *out, const void *acc,
		       size_t count, int n)
{
	const struct type_loops *t = &loops[type];
	if (op == COMM_AVG)
		store_mean(t, out, acc, count, n);
	else
		t->store(out, acc, count);
}
