/*
 * Every collective, type and reduction, over every backend and split of the
 * ranks over hosts: against a float64 reference, and the same bits everywhere.
 */
#include "tests/unit/libcomm/ranks.h"

#include <math.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { DIGEST = 32, LARGEST = (1 << 19) + 3 };

/* What a configuration's ranks found, for comparison with the others'. */
struct result {
	unsigned char digest[RANKS_MAX][DIGEST];
};

struct trial {
	struct comm *c;
	int rank, n;
	enum comm_type type;
	enum comm_op op;
	size_t count;
	char *in, *out; /* room for a block of `count` from each rank */
	crypto_generichash_state digest;
};

/* --- Values -------------------------------------------------------------------- */

static float float_of(uint32_t b)
{
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

static double half_value(uint16_t h)
{
	int exponent = h >> 10 & 31, mantissa = h & 1023;
	double m = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
	return h & 0x8000 ? -m : m;
}

static double value_at(enum comm_type type, const char *data, size_t i)
{
	const char *at = data + i * comm_type_size(type);
	uint16_t h;
	float f;
	double d;
	int32_t i32;
	int64_t i64;
	switch (type) {
	case COMM_F32: memcpy(&f, at, sizeof f); return (double)f;
	case COMM_F64: memcpy(&d, at, sizeof d); return d;
	case COMM_BF16: memcpy(&h, at, sizeof h); return (double)float_of((uint32_t)h << 16);
	case COMM_F16: memcpy(&h, at, sizeof h); return half_value(h);
	case COMM_I32: memcpy(&i32, at, sizeof i32); return i32;
	case COMM_I64: memcpy(&i64, at, sizeof i64); return (double)i64;
	case COMM_U8: return *(const unsigned char *)at;
	}
	return NAN;
}

/* A number that depends on who, where and for whom. */
static uint32_t mix(uint32_t rank, uint32_t block, uint32_t i)
{
	uint32_t x = (rank + 1) * 0x9e3779b1u ^ (block + 7) * 0x85ebca77u ^ (i + 3) * 0xc2b2ae3du;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	x = (x ^ x >> 12) * 0x297a2d39u;
	return x ^ x >> 15;
}

/* Products of 8 stay in range: magnitudes near 1, small integers. */
static void set_value(enum comm_type type, char *at, uint32_t x)
{
	float f = (float)(x >> 8) / (float)(1 << 23) - 1.0f;
	double d = (double)x / 2147483648.0 - 1.0;
	uint16_t bf = (uint16_t)(0x3f00 | (x & 0x80ff));
	uint16_t h = (uint16_t)(0x3800 | (x & 0x87ff));
	int32_t i32 = (int32_t)(x % 13) - 6;
	int64_t i64 = (int64_t)(x % 15) - 7;
	uint8_t u8 = (uint8_t)(x % 2 + (x >> 8) % 2);
	switch (type) {
	case COMM_F32: memcpy(at, &f, sizeof f); break;
	case COMM_F64: memcpy(at, &d, sizeof d); break;
	case COMM_BF16: memcpy(at, &bf, sizeof bf); break;
	case COMM_F16: memcpy(at, &h, sizeof h); break;
	case COMM_I32: memcpy(at, &i32, sizeof i32); break;
	case COMM_I64: memcpy(at, &i64, sizeof i64); break;
	case COMM_U8: memcpy(at, &u8, sizeof u8); break;
	}
}

static void fill(enum comm_type type, char *data, int rank, int block, size_t count)
{
	size_t size = comm_type_size(type);
	for (size_t i = 0; i < count; i++)
		set_value(type, data + i * size, mix((uint32_t)rank, (uint32_t)block, (uint32_t)i));
}

static double value_of(enum comm_type type, int rank, int block, size_t i)
{
	char one[8];
	set_value(type, one, mix((uint32_t)rank, (uint32_t)block, (uint32_t)i));
	return value_at(type, one, 0);
}

/* --- The reference --------------------------------------------------------------- */

static double reference(const struct trial *t, int block, size_t i, double *scale)
{
	double r = value_of(t->type, 0, block, i);
	*scale = fabs(r);
	for (int k = 1; k < t->n; k++) {
		double x = value_of(t->type, k, block, i);
		*scale += fabs(x);
		switch (t->op) {
		case COMM_SUM: case COMM_AVG: r += x; break;
		case COMM_MAX: r = x > r ? x : r; break;
		case COMM_MIN: r = x < r ? x : r; break;
		case COMM_PROD: r *= x; break;
		}
	}
	if (t->op == COMM_PROD)
		*scale = fabs(r) + 1e-30;
	if (t->op == COMM_AVG) {
		r /= t->n;
		*scale /= t->n;
		if (t->type >= COMM_I32)
			r = trunc(r);
	}
	return t->type == COMM_U8 ? fmod(r, 256) : r;
}

static const double precision[] = { 1e-6, 1e-14, 0x1p-8, 0x1p-10, 0, 0, 0 };

static int check_reduced(const struct trial *t, const char *out, int block)
{
	/* Ends and a sample of the middle: the digest compares all of it. */
	size_t stride = t->count > 4096 ? 97 : 1;
	for (size_t i = 0; i < t->count; i += i + stride < t->count ? stride : 1) {
		double scale, want = reference(t, block, i, &scale), got = value_at(t->type, out, i);
		RANK_CHECK(fabs(got - want) <= precision[t->type] * scale,
			   "rank %d of %d, type %d, op %d, count %zu, element %zu: %.17g is not %.17g", t->rank, t->n,
			   t->type, t->op, t->count, i, got, want);
	}
	return 0;
}

static int check_block(const struct trial *t, const char *out, int rank, int block, size_t count)
{
	size_t size = comm_type_size(t->type);
	char want[8];
	for (size_t i = 0; i < count; i++) {
		set_value(t->type, want, mix((uint32_t)rank, (uint32_t)block, (uint32_t)i));
		RANK_CHECK(!memcmp(want, out + i * size, size),
			   "rank %d of %d, type %d, count %zu: element %zu of rank %d's block %d is wrong", t->rank,
			   t->n, t->type, count, i, rank, block);
	}
	return 0;
}

static void note(struct trial *t, const char *out, size_t count)
{
	crypto_generichash_update(&t->digest, (const unsigned char *)out, count * comm_type_size(t->type));
}

#define CALL(t, call)                                                                              \
	do {                                                                                       \
		struct err e_ = ERR_INIT;                                                          \
		struct err *e = &e_;                                                               \
		RANK_CHECK((call) == 0, "rank %d of %d: %s", (t)->rank, (t)->n, e_.text);          \
	} while (0)

/* --- Reductions -------------------------------------------------------------------- */

static int all_reduce(struct trial *t, bool in_place)
{
	char *in = in_place ? t->out : t->in;
	fill(t->type, in, t->rank, 0, t->count);
	CALL(t, comm_all_reduce(t->c, in, t->out, t->count, t->type, t->op, e));
	note(t, t->out, t->count);
	return check_reduced(t, t->out, 0);
}

static int reduce(struct trial *t, bool in_place)
{
	int root = (int)(t->count % (size_t)t->n);
	char *in = in_place ? t->out : t->in;
	fill(t->type, in, t->rank, 0, t->count);
	CALL(t, comm_reduce(t->c, in, root == t->rank ? t->out : NULL, t->count, t->type, t->op, root, e));
	if (root != t->rank)
		return 0;
	note(t, t->out, t->count);
	return check_reduced(t, t->out, 0);
}

static int reduce_scatter(struct trial *t, bool in_place)
{
	size_t size = comm_type_size(t->type);
	for (int r = 0; r < t->n; r++)
		fill(t->type, t->in + (size_t)r * t->count * size, t->rank, r, t->count);
	char *out = in_place ? t->in + (size_t)t->rank * t->count * size : t->out;
	CALL(t, comm_reduce_scatter(t->c, t->in, out, t->count, t->type, t->op, e));
	note(t, out, t->count);
	return check_reduced(t, out, t->rank);
}

/* Rank r's block has r % 3 times count elements: some are empty. */
static void uneven(const struct trial *t, size_t *counts)
{
	for (int r = 0; r < t->n; r++)
		counts[r] = (size_t)(r % 3) * t->count;
}

static int reduce_scatterv(struct trial *t, bool in_place)
{
	size_t counts[RANKS_MAX], size = comm_type_size(t->type);
	(void)in_place;
	uneven(t, counts);
	char *at = t->in;
	for (int r = 0; r < t->n; at += counts[r++] * size)
		fill(t->type, at, t->rank, r, counts[r]);
	CALL(t, comm_reduce_scatterv(t->c, t->in, t->out, counts, t->type, t->op, e));
	struct trial mine = *t;
	mine.count = counts[t->rank];
	note(t, t->out, mine.count);
	return check_reduced(&mine, t->out, t->rank);
}

/* --- Movements ---------------------------------------------------------------------- */

static int broadcast(struct trial *t, bool in_place)
{
	int root = in_place ? 0 : t->n - 1;
	memset(t->out, 0xee, t->count * comm_type_size(t->type));
	if (t->rank == root)
		fill(t->type, t->out, root, 5, t->count);
	CALL(t, comm_broadcast(t->c, t->out, t->count, t->type, root, e));
	return check_block(t, t->out, root, 5, t->count);
}

static int all_gather(struct trial *t, bool in_place)
{
	size_t block = t->count * comm_type_size(t->type);
	char *in = in_place ? t->out + (size_t)t->rank * block : t->in;
	fill(t->type, in, t->rank, 0, t->count);
	CALL(t, comm_all_gather(t->c, in, t->out, t->count, t->type, e));
	for (int r = 0; r < t->n; r++)
		if (check_block(t, t->out + (size_t)r * block, r, 0, t->count))
			return 1;
	return 0;
}

static int check_uneven(const struct trial *t, const size_t *counts)
{
	const char *at = t->out;
	for (int r = 0; r < t->n; at += counts[r++] * comm_type_size(t->type))
		if (check_block(t, at, r, 0, counts[r]))
			return 1;
	return 0;
}

static int all_gatherv(struct trial *t, bool in_place)
{
	size_t counts[RANKS_MAX];
	(void)in_place;
	uneven(t, counts);
	fill(t->type, t->in, t->rank, 0, counts[t->rank]);
	CALL(t, comm_all_gatherv(t->c, t->in, t->out, counts, t->type, e));
	return check_uneven(t, counts);
}

static int gatherv(struct trial *t, bool in_place)
{
	size_t counts[RANKS_MAX];
	int root = in_place ? t->n / 2 : 0;
	uneven(t, counts);
	fill(t->type, t->in, t->rank, 0, counts[t->rank]);
	CALL(t, comm_gatherv(t->c, t->in, root == t->rank ? t->out : NULL, counts, t->type, root, e));
	return root == t->rank ? check_uneven(t, counts) : 0;
}

static int gather(struct trial *t, bool in_place)
{
	size_t block = t->count * comm_type_size(t->type);
	int root = t->n - 1;
	char *in = in_place ? t->out + (size_t)t->rank * block : t->in;
	fill(t->type, in, t->rank, 0, t->count);
	CALL(t, comm_gather(t->c, in, t->out, t->count, t->type, root, e));
	for (int r = 0; root == t->rank && r < t->n; r++)
		if (check_block(t, t->out + (size_t)r * block, r, 0, t->count))
			return 1;
	return 0;
}

static int scatter(struct trial *t, bool in_place)
{
	size_t block = t->count * comm_type_size(t->type);
	int root = in_place ? 0 : t->n / 2;
	for (int r = 0; root == t->rank && r < t->n; r++)
		fill(t->type, t->in + (size_t)r * block, root, r, t->count);
	char *out = in_place && root == t->rank ? t->in + (size_t)root * block : t->out;
	CALL(t, comm_scatter(t->c, root == t->rank ? t->in : NULL, out, t->count, t->type, root, e));
	return check_block(t, out, root, t->rank, t->count);
}

static int all_to_all(struct trial *t, bool in_place)
{
	size_t block = t->count * comm_type_size(t->type);
	(void)in_place;
	for (int r = 0; r < t->n; r++)
		fill(t->type, t->in + (size_t)r * block, t->rank, r, t->count);
	CALL(t, comm_all_to_all(t->c, t->in, t->out, t->count, t->type, e));
	for (int r = 0; r < t->n; r++)
		if (check_block(t, t->out + (size_t)r * block, r, t->rank, t->count))
			return 1;
	return 0;
}

/* From a to b: (a + 2 b) % 3 times count. */
static int all_to_allv(struct trial *t, bool in_place)
{
	size_t give[RANKS_MAX], take[RANKS_MAX], size = comm_type_size(t->type);
	(void)in_place;
	char *at = t->in;
	for (int r = 0; r < t->n; at += give[r++] * size) {
		give[r] = (size_t)((t->rank + 2 * r) % 3) * t->count;
		take[r] = (size_t)((r + 2 * t->rank) % 3) * t->count;
		fill(t->type, at, t->rank, r, give[r]);
	}
	CALL(t, comm_all_to_allv(t->c, t->in, give, t->out, take, t->type, e));
	at = t->out;
	for (int r = 0; r < t->n; at += take[r++] * size)
		if (check_block(t, at, r, t->rank, take[r]))
			return 1;
	return 0;
}

/* Everybody to everybody at once, itself among them, sends listed before receives. */
static int grouped(struct trial *t, bool in_place)
{
	struct comm_p2p ops[2 * RANKS_MAX];
	size_t block = t->count * comm_type_size(t->type);
	for (int r = 0; r < t->n; r++) {
		char *in = t->in + (size_t)r * block, *out = t->out + (size_t)r * block;
		fill(t->type, in, t->rank, r, t->count);
		ops[in_place ? 2 * r : r] = (struct comm_p2p){ true, in, t->count, t->type, r };
		ops[in_place ? 2 * r + 1 : t->n + r] = (struct comm_p2p){ false, out, t->count, t->type, r };
	}
	CALL(t, comm_group(t->c, ops, 2 * t->n, e));
	for (int r = 0; r < t->n; r++)
		if (check_block(t, t->out + (size_t)r * block, r, t->rank, t->count))
			return 1;
	return 0;
}

/* Around the ring with plain sends and receives. */
static int send_recv(struct trial *t, bool in_place)
{
	int next = (t->rank + 1) % t->n, before = (t->rank + t->n - 1) % t->n;
	(void)in_place;
	if (t->n == 1)
		return 0;
	fill(t->type, t->in, t->rank, 3, t->count);
	if (t->rank == 0)
		CALL(t, comm_send(t->c, t->in, t->count, t->type, next, e));
	CALL(t, comm_recv(t->c, t->out, t->count, t->type, before, e));
	if (t->rank != 0)
		CALL(t, comm_send(t->c, t->in, t->count, t->type, next, e));
	return check_block(t, t->out, before, 3, t->count);
}

typedef int trial_fn(struct trial *t, bool in_place);
static trial_fn *const reductions[] = { all_reduce, reduce, reduce_scatter, reduce_scatterv };
static trial_fn *const movements[] = { broadcast, all_gather, all_gatherv, gather, gatherv, scatter,
				       all_to_all, all_to_allv, grouped, send_recv };

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static int try_size(struct trial *t, size_t count)
{
	t->count = count;
	for (int in_place = 0; in_place < 2; in_place++) {
		for (int i = 0; i < 5 * COUNT(reductions); i++) {
			t->op = (enum comm_op)(i % 5);
			if (reductions[i / 5](t, in_place))
				return 1;
		}
		for (int i = 0; i < COUNT(movements); i++)
			if (movements[i](t, in_place))
				return 1;
	}
	CALL(t, comm_barrier(t->c, e));
	return 0;
}

/* Sums of a few sizes that take many steps. */
static int try_large(struct trial *t)
{
	static const size_t counts[] = { 66001, 140003, LARGEST };
	for (int i = 0; i < COUNT(counts); i++) {
		t->type = i == 1 ? COMM_BF16 : COMM_F32;
		t->op = COMM_SUM;
		t->count = counts[i];
		if (all_reduce(t, i % 2) || reduce(t, false))
			return 1;
		t->count = counts[i] / (size_t)t->n + 1;
		if (reduce_scatter(t, i % 2) || all_gather(t, i % 2) || all_to_all(t, false) || grouped(t, false) ||
		    broadcast(t, false) || send_recv(t, false))
			return 1;
	}
	return 0;
}

static int conform(struct comm *world, void *arg)
{
	struct result *result = arg;
	static const size_t counts[] = { 0, 1, 3, 65, 1027, 4099 };
	struct trial t = { .c = world, .rank = comm_rank(world), .n = comm_size(world) };
	size_t room = (size_t)(2 * t.n) * 4099 * 8 + (LARGEST + 64) * 4;
	t.in = malloc(room);
	t.out = malloc(room);
	RANK_CHECK(t.in && t.out, "no memory");
	crypto_generichash_init(&t.digest, NULL, 0, DIGEST);
	for (int type = 0; type <= COMM_U8; type++) {
		t.type = (enum comm_type)type;
		for (int i = 0; i < COUNT(counts); i++)
			if (try_size(&t, counts[i]))
				return 1;
	}
	if (try_large(&t))
		return 1;
	crypto_generichash_final(&t.digest, result->digest[t.rank], DIGEST);
	free(t.in);
	free(t.out);
	return 0;
}

/* --- Configurations ------------------------------------------------------------------ */

static void every_backend_agrees(int n, const struct ranks *configs, int count)
{
	struct result *first = ranks_shared(sizeof *first), *other = ranks_shared(sizeof *other);
	for (int i = 0; i < count; i++) {
		struct ranks r = configs[i];
		r.n = n;
		r.fn = conform;
		r.arg = i == 0 ? first : other;
		r.timeout_s = 20;
		assert_int_equal(ranks_run(&r), 0);
		if (i > 0)
			assert_memory_equal(first->digest, other->digest, (size_t)n * DIGEST);
	}
	munmap(first, sizeof *first);
	munmap(other, sizeof *other);
}

#define TCP { .backend = "tcp" }
#define SHM { .backend = "shm" }
#define HOSTS(h) { .hosts = h }

static void one_rank(void **state)
{
	(void)state;
	static const struct ranks configs[] = { SHM, TCP };
	every_backend_agrees(1, configs, COUNT(configs));
}

static void two_ranks(void **state)
{
	(void)state;
	static const struct ranks configs[] = { SHM, TCP, HOSTS("ab") };
	every_backend_agrees(2, configs, COUNT(configs));
}

static void three_ranks(void **state)
{
	(void)state;
	static const struct ranks configs[] = { SHM, TCP, HOSTS("abb"), HOSTS("aba") };
	every_backend_agrees(3, configs, COUNT(configs));
}

static void four_ranks(void **state)
{
	(void)state;
	static const struct ranks configs[] = { SHM, TCP, HOSTS("abbb"), HOSTS("aabb") };
	every_backend_agrees(4, configs, COUNT(configs));
}

static void eight_ranks(void **state)
{
	(void)state;
	static const struct ranks configs[] = { SHM, TCP, HOSTS("aaaabbbb"), HOSTS("aabbccdd") };
	every_backend_agrees(8, configs, COUNT(configs));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank),  cmocka_unit_test(two_ranks),   cmocka_unit_test(three_ranks),
		cmocka_unit_test(four_ranks), cmocka_unit_test(eight_ranks),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("comm conforms", tests, NULL, NULL);
}
