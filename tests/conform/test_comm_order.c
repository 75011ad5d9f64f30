/*
 * The bits are the same for every transport. The test runs reductions of the same group and inputs
 * over every split of the ranks over hosts, every backend and every algorithm. It compares the
 * results bit for bit with the order that comm.h documents, which comm_reference computes from that
 * definition. The sizes are around the borders at which algorithms cut vectors. Every reduction is
 * combined with every type by the table; a forced algorithm runs each reduction and each type at
 * some size. `make check` forces each algorithm on one host, and on every third split over hosts.
 */
#include "tests/conform/comm_reference.h"
#include "tests/large.h"
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* The ranks of a host are neighbours or not, so they belong to one part of the tree or to many. */
/* clang-format off */
static const struct split {
	int n;
	const char *backend, *hosts;
	bool forced; /* each algorithm is forced here */
} splits[] = {
	{ 8, "shm", NULL, true },        { 8, "tcp", NULL, true },
	{ 8, NULL, "abbbbbbb", true },   { 8, NULL, "aabbbbbb", true }, { 8, NULL, "aaaabbbb", true },
	{ 8, NULL, "abbaabba", true },   { 7, NULL, "aaabbcc", true },  { 7, "tcp", NULL, true },
	{ 8, NULL, "aaaaaaab", false },  { 8, NULL, "abababab", false }, { 8, NULL, "aabbccdd", false },
	{ 8, NULL, "abcdeaab", false },  { 8, NULL, "abcdeffa", false }, { 7, NULL, "abbbbbc", false },
	{ 7, NULL, "abcabca", false },   { 5, NULL, "abcde", false },   { 5, NULL, "aaaab", false },
	{ 3, NULL, "aba", false },
};
/* clang-format on */

enum { SLOT = 256 << 10, ROUND = 1 << 20, ROOM = 2 * ROUND + 4096 };

/* Bytes of the vector: around a cache line, around the thresholds of the table, around slots, and
 * around the rounds of operations over several hosts. */
static const size_t small[] = { 8, 56, 64, 72, 1000, 4096, 4104, 16384 };
static const size_t large[] = { 16392, 65536, SLOT - 64, SLOT, SLOT + 8, 2 * SLOT + 72 };
static const size_t larger[] = { ROUND + 8, 2 * ROUND + 72 };

struct plan {
	const struct reference *ref;
	bool every;  /* every reduction at the small sizes */
	bool larger; /* larger sizes as well */
};

struct trial {
	const struct reference *ref;
	struct comm *c;
	int rank, n;
	enum comm_type type;
	enum comm_op op;
	char *in, *out;
};

static int compare(const struct trial *t, const char *what, const char *out, int block,
		   size_t bytes)
{
	size_t at = reference_differs(reference_reduced(t->ref, t->type, t->op, block), t->type,
				      out, bytes);
	RANK_CHECK(at == bytes,
		   "%s of %zu bytes, type %d, operation %d, rank %d of %d: byte %zu differs", what,
		   bytes, t->type, t->op, t->rank, t->n, at);
	return 0;
}

static void give(const struct trial *t, char *at, int block, size_t bytes)
{
	reference_spread(reference_given(t->ref, t->type, t->op == COMM_PROD, t->rank, block),
			 t->type, at, bytes);
}

static int whole_vectors(struct trial *t, size_t bytes)
{
	struct err e = ERR_INIT;
	size_t count = bytes / comm_type_size(t->type);
	int root = (int)(count % (size_t)t->n);
	give(t, t->in, 0, bytes);
	RANK_CHECK(comm_all_reduce(t->c, t->in, t->out, count, t->type, t->op, &e) == 0, "%s",
		   e.text);
	if (compare(t, "all_reduce", t->out, 0, bytes))
		return 1;
	char *out = t->rank == root ? t->in : NULL; /* in place */
	RANK_CHECK(comm_reduce(t->c, t->in, out, count, t->type, t->op, root, &e) == 0, "%s",
		   e.text);
	return out ? compare(t, "reduce", out, 0, bytes) : 0;
}

/* A vector of about `bytes` with uneven blocks: rank r gets (r % 3 + 1) / 2 of an equal share. */
static int blocks(struct trial *t, size_t bytes)
{
	struct err e = ERR_INIT;
	size_t counts[REF_RANKS], size = comm_type_size(t->type),
				  each = bytes / size / (size_t)t->n + 1;
	char *at = t->in;
	for (int r = 0; r < t->n; at += counts[r++] * size) {
		counts[r] = each * (size_t)(r % 3 + 1) / 2;
		give(t, at, r, counts[r] * size);
	}
	RANK_CHECK(comm_reduce_scatterv(t->c, t->in, t->out, counts, t->type, t->op, &e) == 0, "%s",
		   e.text);
	return compare(t, "reduce_scatter", t->out, t->rank, counts[t->rank] * size);
}

static int all_sizes(struct comm *world, void *arg)
{
	const struct plan *p = arg;
	const int few = COUNT(small), most = few + COUNT(large) + (p->larger ? COUNT(larger) : 0);
	struct trial t = { .ref = p->ref,
			   .c = world,
			   .rank = comm_rank(world),
			   .n = comm_size(world),
			   .in = malloc(ROOM),
			   .out = malloc(ROOM) };
	RANK_CHECK(t.in && t.out, "no memory");
	for (int type = 0; type < REF_TYPES; type++)
		for (int i = 0; i < REF_REDOPS * most; i++) {
			int size = i / REF_REDOPS, op = i % REF_REDOPS;
			size_t bytes = size < few ? small[size]
				       : size < few + COUNT(large)
					       ? large[size - few]
					       : larger[size - few - COUNT(large)];
			t.type = (enum comm_type)type;
			t.op = (enum comm_op)op;
			/* Otherwise, one reduction is run for each size, a different one for each
			 * type. */
			if (!(p->every && size < few) && (size + type) % REF_REDOPS != op)
				continue;
			alarm(PATIENCE_S);
			if (whole_vectors(&t, bytes) || blocks(&t, bytes))
				return 1;
		}
	free(t.in);
	free(t.out);
	return 0;
}

static struct reference *references[REF_RANKS + 1];

static void run_split(const struct split *s, const char *algorithm)
{
	if (!references[s->n])
		references[s->n] = reference_open(s->n);
	assert_non_null(references[s->n]);
	struct plan p = { references[s->n], .every = !algorithm, .larger = !algorithm && s->hosts };
	struct ranks r = { .n = s->n,
			   .backend = s->backend,
			   .hosts = s->hosts,
			   .algorithm = algorithm,
			   .timeout_s = PATIENT_WAIT_S,
			   .fn = all_sizes,
			   .arg = &p };
	if (ranks_run(&r))
		fail_msg("%d ranks, backend %s, hosts %s, algorithm %s", s->n,
			 s->backend ? s->backend : "auto", s->hosts ? s->hosts : "one",
			 algorithm ? algorithm : "by the table");
}

static void every_split_gives_the_documented_bits(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(splits); i++)
		run_split(&splits[i], NULL);
}

static void every_algorithm_gives_the_documented_bits(void **state)
{
	(void)state;
	const char *const *names = comm_algorithms();
	for (int row = 0; names[row]; row++)
		for (int i = 0; i < COUNT(splits); i++)
			if (splits[i].forced && (!splits[i].hosts || cell_runs(row, i)))
				run_split(&splits[i], names[row]);
}

/* --- Many ranks; each of them generates all inputs --- */

enum { MANY = 72, FEW = 777 };

static int many_ranks(struct comm *world, void *arg)
{
	static float in[MANY][FEW], want[FEW], out[FEW];
	const void *src[MANY];
	struct err e = ERR_INIT;
	int n = comm_size(world), rank = comm_rank(world);
	(void)arg;
	uint32_t x = 7;
	for (int r = 0; r < n; r++) {
		src[r] = in[r];
		for (int i = 0; i < FEW; i++) {
			x = x * 1664525 + 1013904223;
			in[r][i] = (float)(x >> 8) / (float)(1 + (x & 0xfff)) - 4096;
		}
	}
	reference_reduce(COMM_F32, COMM_AVG, src, n, want, FEW);
	for (int count = FEW; count > 0; count /= 50) {
		RANK_CHECK(comm_all_reduce(world, in[rank], out, (size_t)count, COMM_F32, COMM_AVG,
					   &e) == 0,
			   "%s", e.text);
		RANK_CHECK(!memcmp(out, want, (size_t)count * sizeof *out),
			   "%d elements on %d ranks", count, n);
	}
	return 0;
}

static void many_ranks_give_the_documented_bits(void **state)
{
	(void)state;
	static const struct {
		int n, hosts;
		const char *algorithm;
	} rows[] = { { MANY, 1, NULL },    { MANY, 1, "tree" },   { MANY, 2, NULL },
		     { MANY, 9, NULL },    { MANY, 9, "hybrid" }, { 64, 1, "halving" },
		     { 64, 1, "doubling" } };
	for (int i = 0; i < COUNT(rows); i++) {
		char hosts[MANY + 1] = "";
		for (int r = 0; r < rows[i].n; r++)
			hosts[r] = (char)('a' + r * rows[i].hosts / rows[i].n);
		struct ranks r = { .n = rows[i].n,
				   .hosts = hosts,
				   .algorithm = rows[i].algorithm,
				   .timeout_s = PATIENT_WAIT_S,
				   .fn = many_ranks };
		assert_int_equal(ranks_run(&r), 0);
	}
}

static void an_unknown_algorithm_is_refused_with_the_known_ones(void **state)
{
	(void)state;
	struct ranks r = { .n = 1, .algorithm = "carrier pigeon" };
	struct comm *world;
	struct err e = ERR_INIT;
	assert_int_equal(ranks_open(&r, 0, &world, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	for (const char *const *name = comm_algorithms(); *name; name++)
		assert_non_null(strstr(e.text, *name));
}

static int close_references(void **state)
{
	(void)state;
	for (int n = 0; n <= REF_RANKS; n++)
		reference_close(references[n]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_split_gives_the_documented_bits),
		cmocka_unit_test(every_algorithm_gives_the_documented_bits),
		cmocka_unit_test(many_ranks_give_the_documented_bits),
		cmocka_unit_test(an_unknown_algorithm_is_refused_with_the_known_ones),
	};
	return cmocka_run_group_tests_name("the order of reductions", tests, NULL,
					   close_references);
}
