/* Groups and requests: operations of overlapping groups, in any order, do not block each other. */
#include "tests/unit/libcomm/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { GROUPS = 4, OPS = 48, OPEN = 6, LARGEST = 50000 };

enum kind { SUMS, SCATTERS, GATHERS, MESSAGES, PARTS_SUM, PARTS_SCATTER, PARTS_GATHER, KINDS };

struct op_state {
	struct comm_request *req;
	int64_t *in, *out;
	size_t count, part; /* of count, the elements of the first of two parts */
	enum kind kind;
};

struct run_state {
	struct comm *group[GROUPS];
	struct op_state op[GROUPS][OPS];
	int started[GROUPS], waited[GROUPS];
};

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint32_t x = (a + 1) * 0x9e3779b1u ^ (b + 1) * 0x85ebca77u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	return x ^ x >> 13;
}

static int64_t value(int rank, int g, int i)
{
	return (int64_t)rank * 1000003 + g * 101 + i * 7;
}

static int start_messages(struct comm *c, struct op_state *o, struct err *e)
{
	int n = comm_size(c), me = comm_rank(c);
	struct comm_p2p ring[] = { { false, { o->out }, o->count, COMM_I64, (me + n - 1) % n },
				   { true, { o->in }, o->count, COMM_I64, (me + 1) % n } };
	return comm_batch_send_recv_start(c, ring, 2, &o->req, e);
}

static int start_parts(struct comm *c, struct op_state *o, struct err *e)
{
	size_t ranks = (size_t)comm_size(c), first = o->part, rest = o->count - first;
	size_t in = o->kind == PARTS_SCATTER ? ranks * first : first,
	       out = o->kind == PARTS_GATHER ? ranks * first : first;
	struct comm_part parts[] = { { o->in, o->out, first }, { o->in + in, o->out + out, rest } };
	return o->kind == PARTS_SUM ? comm_all_reduce_coalesced_start(c, parts, 2, COMM_I64,
								      COMM_SUM, &o->req, e)
	       : o->kind == PARTS_SCATTER
		       ? comm_reduce_scatter_coalesced_start(c, parts, 2, COMM_I64, COMM_MAX,
							     &o->req, e)
		       : comm_all_gather_coalesced_start(c, parts, 2, COMM_I64, &o->req, e);
}

static int start(struct comm *c, struct op_state *o, struct err *e)
{
	switch (o->kind) {
	case SUMS:
		return comm_all_reduce_start(c, o->in, o->out, o->count, COMM_I64, COMM_SUM,
					     &o->req, e);
	case SCATTERS:
		return comm_reduce_scatter_start(c, o->in, o->out, o->count, COMM_I64, COMM_MAX,
						 &o->req, e);
	case GATHERS:
		return comm_all_gather_start(c, o->in, o->out, o->count, COMM_I64, &o->req, e);
	case MESSAGES:
		return start_messages(c, o, e);
	default:
		return start_parts(c, o, e);
	}
}

static int begin(struct run_state *s, int g)
{
	int i = s->started[g]++;
	struct comm *c = s->group[g];
	int n = comm_size(c), me = comm_rank(c);
	struct op_state *o = &s->op[g][i];
	struct err e = ERR_INIT;
	uint32_t random = mix((uint32_t)g, (uint32_t)i); /* the same on every rank */
	o->kind = (enum kind)(random % KINDS);
	o->count = random >> 8 & 3 ? (random >> 12) % 300 : (random >> 12) % LARGEST;
	o->part = o->count / 3;
	o->in = calloc(o->count * (size_t)n + 1, sizeof *o->in);
	o->out = calloc(o->count * (size_t)n + 1, sizeof *o->out);
	RANK_CHECK(o->in && o->out, "no memory");
	for (size_t k = 0; k < o->count * (size_t)n; k++)
		o->in[k] = value(me, g, i) + (int64_t)k;
	RANK_CHECK(start(c, o, &e) == 0, "%s", e.text);
	return 0;
}

/* Of the k-th element that a rank has of the two parts' blocks. */
static int64_t scattered(const struct op_state *o, int n, int me, size_t k)
{
	size_t ranks = (size_t)n, rank = (size_t)me, rest = o->count - o->part;
	return (int64_t)(k < o->part ? rank * o->part + k
				     : ranks * o->part + rank * rest + k - o->part);
}

/* Of the k-th element of the two parts that are gathered one behind the other. */
static int64_t gathered(const struct op_state *o, int g, int i, int n, size_t k)
{
	size_t first = o->part * (size_t)n, rest = o->count - o->part;
	return k < first ? value((int)(k / o->part), g, i) + (int64_t)(k % o->part)
			 : value((int)((k - first) / rest), g, i) +
				   (int64_t)(o->part + (k - first) % rest);
}

static int64_t expected(const struct op_state *o, int g, int i, int n, int me, size_t k)
{
	switch (o->kind) {
	case SUMS:
	case PARTS_SUM:
		return (int64_t)n * ((int64_t)k + value(0, g, i)) +
		       (int64_t)n * (n - 1) / 2 * 1000003;
	case SCATTERS:
		return value(n - 1, g, i) + (int64_t)((size_t)me * o->count + k);
	case PARTS_SCATTER:
		return value(n - 1, g, i) + scattered(o, n, me, k);
	case GATHERS:
		return value((int)(k / o->count), g, i) + (int64_t)(k % o->count);
	case PARTS_GATHER:
		return gathered(o, g, i, n, k);
	default:
		return value((me + n - 1) % n, g, i) + (int64_t)k;
	}
}

static int finish(struct run_state *s, int g)
{
	int i = s->waited[g]++;
	struct op_state *o = &s->op[g][i];
	struct err e = ERR_INIT;
	int n = comm_size(s->group[g]), me = comm_rank(s->group[g]);
	if (mix((uint32_t)i, (uint32_t)me) % 3 == 0)
		while (!comm_test(o->req))
			sched_yield();
	RANK_CHECK(comm_wait(o->req, &e) == 0, "%s", e.text);
	bool gathers = o->kind == GATHERS || o->kind == PARTS_GATHER;
	size_t out = gathers ? o->count * (size_t)n : o->count;
	for (size_t k = 0; k < out; k++)
		RANK_CHECK(o->out[k] == expected(o, g, i, n, me, k),
			   "group %d, operation %d of kind %d, element %zu", g, i, o->kind, k);
	free(o->in);
	free(o->out);
	return 0;
}

/* Brings every group's count up to `until`. Each rank mixes the groups in its own order. */
static int some_turns(struct run_state *s, uint32_t me, int until, const int *count,
		      int (*turn)(struct run_state *s, int g))
{
	int left = 0;
	for (int g = 0; g < GROUPS; g++)
		left += s->group[g] ? OPEN : 0;
	for (uint32_t random = me; left; random++) {
		int g = (int)(mix(random, (uint32_t)until) % GROUPS);
		if (!s->group[g] || count[g] == until)
			continue;
		if (turn(s, g))
			return 1;
		left--;
	}
	return 0;
}

static int interleave(struct comm *world, void *arg)
{
	struct run_state *s = calloc(1, sizeof *s);
	struct err e = ERR_INIT;
	int me = comm_rank(world), colors[GROUPS] = { 0, me / 2, me % 2, me == 0 ? -1 : 3 };
	(void)arg;
	RANK_CHECK(s, "no memory");
	for (int g = 0; g < GROUPS; g++)
		RANK_CHECK(comm_split(world, colors[g], -me, "part", &s->group[g], &e) == 0, "%s",
			   e.text);
	RANK_CHECK(comm_rank(s->group[0]) == comm_size(world) - 1 - me,
		   "the key does not order the ranks");
	RANK_CHECK(!s->group[3] == (me == 0), "a negative color has a group");
	for (int round = 0; round < OPS; round += OPEN)
		if (some_turns(s, (uint32_t)me, round + OPEN, s->started, begin) ||
		    some_turns(s, (uint32_t)me, round + OPEN, s->waited, finish))
			return 1;
	for (int g = 1; g < GROUPS; g++) /* closing the world ends group 0 */
		comm_close(s->group[g]);
	free(s);
	return 0;
}

static void overlapping_groups_interleave(void **state)
{
	(void)state;
	static const struct ranks configs[] = {
		{ .n = 4, .backend = "shm" },    { .n = 4, .backend = "tcp" },
		{ .n = 4, .hosts = "abbb" },     { .n = 8, .backend = "shm" },
		{ .n = 8, .hosts = "aaaabbbb" },
	};
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
		struct ranks r = configs[i];
		r.timeout_s = PATIENT_WAIT_S;
		r.fn = interleave;
		assert_int_equal(ranks_run(&r), 0);
	}
}

static int backends_by_members(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm *g;
	int me = comm_rank(world);
	(void)arg;
	RANK_CHECK(!strcmp(comm_backend(world), "hybrid"), "the world is %s", comm_backend(world));
	RANK_CHECK(comm_split(world, me / 2, 0, "tp", &g, &e) == 0, "%s", e.text);
	RANK_CHECK(!strcmp(comm_backend(g), "shm") && !strcmp(comm_name(g), "tp"), "%s",
		   comm_backend(g));
	comm_close(g);
	RANK_CHECK(comm_split(world, me % 2, 0, "dp", &g, &e) == 0, "%s", e.text);
	RANK_CHECK(!strcmp(comm_backend(g), "tcp"), "%s", comm_backend(g));
	uint64_t before = comm_bytes(g);
	float v[256] = { 0 };
	RANK_CHECK(comm_rank(g) == 0 ? comm_send(g, v, 256, COMM_F32, 1, &e) == 0
				     : comm_recv(g, v, 256, COMM_F32, 0, &e) == 0,
		   "%s", e.text);
	RANK_CHECK(comm_bytes(g) - before == (comm_rank(g) == 0 ? sizeof v : 0),
		   "bytes are not counted");
	return 0;
}

static void a_group_uses_what_its_ranks_share(void **state)
{
	(void)state;
	struct ranks r = {
		.n = 4, .hosts = "aabb", .timeout_s = PATIENT_WAIT_S, .fn = backends_by_members
	};
	assert_int_equal(ranks_run(&r), 0);
}

/* Closing with a request under way ends the request. It does not wait for a peer that never
 * comes. */
static int leave_one_open(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm_request *req;
	static int word;
	struct comm_p2p never = { false, { &word }, 1, COMM_I32, 1 - comm_rank(world) };
	(void)arg;
	RANK_CHECK(comm_batch_send_recv_start(world, &never, 1, &req, &e) == 0, "%s", e.text);
	return 0;
}

static void closing_ends_operations_in_progress(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = 0, .fn = leave_one_open };
	assert_int_equal(ranks_run(&r), 0);
	r.backend = "tcp";
	assert_int_equal(ranks_run(&r), 0);
}

/* Until it is given up, every operation of the thread counts as one of the graph. */
static int give_up_a_graph(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm_graph *g;
	int32_t mine = 1, sum = 0;
	(void)arg;
	RANK_CHECK(!comm_graph_begin(&g, &e) && !comm_graph_end(g, &e), "%s", e.text);
	RANK_CHECK(!comm_graph_repeat(g, &e), "%s", e.text);
	comm_graph_give_up(g);
	RANK_CHECK(!comm_all_reduce(world, &mine, &sum, 1, COMM_I32, COMM_SUM, &e), "%s", e.text);
	RANK_CHECK(sum == comm_size(world), "%d", (int)sum);
	comm_graph_free(g);
	return 0;
}

static void a_repetition_that_failed_can_be_given_up(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = 0, .fn = give_up_a_graph };
	assert_int_equal(ranks_run(&r), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overlapping_groups_interleave),
		cmocka_unit_test(a_group_uses_what_its_ranks_share),
		cmocka_unit_test(closing_ends_operations_in_progress),
		cmocka_unit_test(a_repetition_that_failed_can_be_given_up),
	};
	return cmocka_run_group_tests_name("comm groups and requests", tests, NULL, NULL);
}
