/* The forms of the calls: which arguments are refused at once, who owns the lists, and what happens
 * to requests that nobody waits for. */
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define REFUSED(call) \
	do { \
		struct err e = ERR_INIT; \
		RANK_CHECK((call) < 0 && e.code == ERR_USAGE, #call ": %s", e.text); \
	} while (0)
#define TAKEN(call) \
	do { \
		struct err e = ERR_INIT; \
		RANK_CHECK((call) == 0, #call ": %s", e.text); \
	} while (0)

static int without_buffers(struct comm *w, void *arg)
{
	int me = comm_rank(w);
	float v[8] = { 0 }, out[8];
	const size_t counts[] = { 2, 2 }, own[] = { me == 0 ? 4 : 0, me == 0 ? 0 : 4 };
	struct comm_p2p nothing = { true, { NULL }, 1, COMM_F32, 1 - me };
	struct comm_request *r;
	(void)arg;
	REFUSED(comm_all_reduce(w, NULL, out, 1, COMM_F32, COMM_SUM, &e));
	REFUSED(comm_all_reduce(w, v, NULL, 1, COMM_F32, COMM_SUM, &e));
	REFUSED(comm_reduce(w, v, NULL, 1, COMM_F32, COMM_SUM, me, &e));
	REFUSED(comm_broadcast(w, NULL, 1, COMM_F32, 0, &e));
	REFUSED(comm_all_gather(w, NULL, out, 1, COMM_F32, &e));
	REFUSED(comm_all_gather(w, v, NULL, 1, COMM_F32, &e));
	REFUSED(comm_all_gatherv(w, NULL, out, own, COMM_F32, &e));
	REFUSED(comm_all_gatherv(w, v, out, NULL, COMM_F32, &e));
	REFUSED(comm_reduce_scatter(w, v, NULL, 1, COMM_F32, COMM_SUM, &e));
	REFUSED(comm_reduce_scatterv(w, NULL, out, counts, COMM_F32, COMM_SUM, &e));
	REFUSED(comm_all_to_all(w, NULL, out, 1, COMM_F32, &e));
	REFUSED(comm_all_to_allv(w, v, counts, NULL, counts, COMM_F32, &e));
	REFUSED(comm_all_to_allv(w, v, counts, out, NULL, COMM_F32, &e));
	REFUSED(comm_all_to_allv(w, v, counts, out, (size_t[]){ 1, 1 }, COMM_F32, &e));
	REFUSED(comm_gather(w, v, NULL, 1, COMM_F32, me, &e));
	REFUSED(comm_gatherv(w, NULL, out, counts, COMM_F32, 1 - me, &e));
	REFUSED(comm_scatter(w, NULL, out, 1, COMM_F32, me, &e));
	REFUSED(comm_scatterv(w, v, NULL, counts, COMM_F32, 1 - me, &e));
	REFUSED(comm_scatterv_start(w, v, out, NULL, COMM_F32, 0, &r, &e));
	REFUSED(comm_batch_send_recv(w, &nothing, 1, &e));
	REFUSED(comm_batch_send_recv_start(w, NULL, 1, &r, &e));
	REFUSED(comm_all_reduce(w, v, out, SIZE_MAX / 2, COMM_F32, COMM_SUM, &e));
	REFUSED(comm_all_reduce(w, v, out, SIZE_MAX, COMM_U8, COMM_SUM, &e));
	REFUSED(comm_all_gatherv(w, v, out, (size_t[]){ 1, SIZE_MAX / 2 }, COMM_U8, &e));
	REFUSED(comm_send(w, v, SIZE_MAX - 7, COMM_U8, 1 - me, &e));
	/* A rank that neither gives nor takes data needs no buffer. */
	TAKEN(comm_reduce(w, v, me ? NULL : out, 1, COMM_F32, COMM_SUM, 0, &e));
	TAKEN(comm_gather(w, v, me ? NULL : out, 1, COMM_F32, 0, &e));
	TAKEN(comm_scatter(w, me ? NULL : v, out, 1, COMM_F32, 0, &e));
	TAKEN(comm_all_gatherv(w, me ? NULL : v, out, (size_t[]){ 3, 0 }, COMM_F32, &e));
	TAKEN(comm_all_reduce(w, NULL, NULL, 0, COMM_F32, COMM_SUM, &e));
	return 0;
}

static void a_missing_buffer_is_refused_before_anything_happens(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = PATIENT_WAIT_S, .fn = without_buffers };
	assert_int_equal(ranks_run(&r), 0);
}

/* Rank r gets r + 1 elements of the root's vector. */
static int scatter_by_list(struct comm *w, void *arg)
{
	enum { N = 4, ALL = N * (N + 1) / 2 };
	int me = comm_rank(w);
	(void)arg;
	for (int form = 0; form < 4; form++) {
		struct comm_request *r = NULL;
		int32_t in[ALL], out[N] = { 0 };
		size_t counts[N], before = (size_t)(me * (me + 1) / 2);
		bool in_place = form & 1 && me == 2;
		for (int i = 0; i < ALL; i++)
			in[i] = 100 * form + i;
		for (int i = 0; i < N; i++)
			counts[i] = (size_t)i + 1;
		int32_t *to = in_place ? in + before : out;
		if (form < 2) {
			TAKEN(comm_scatterv(w, me == 2 ? in : NULL, to, counts, COMM_I32, 2, &e));
		} else {
			TAKEN(comm_scatterv_start(w, me == 2 ? in : NULL, to, counts, COMM_I32, 2,
						  &r, &e));
			memset(counts, 0xff, sizeof counts); /* the call has copied the list */
			TAKEN(comm_wait(r, &e));
		}
		for (int i = 0; i <= me; i++)
			RANK_CHECK(to[i] == 100 * form + (int)before + i,
				   "form %d, element %d is %d", form, i, to[i]);
	}
	return 0;
}

static void scatterv_gives_each_rank_its_own_count(void **state)
{
	(void)state;
	static const char *const hosts[] = { NULL, "aabb", "abcd" };
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		struct ranks r = { .n = 4,
				   .hosts = hosts[i],
				   .timeout_s = PATIENT_WAIT_S,
				   .fn = scatter_by_list };
		assert_int_equal(ranks_run(&r), 0);
	}
}

/* The sum is the same, so every rank gets as many bytes as it waits for. */
static int count_otherwise(struct comm *w, void *arg)
{
	static int32_t in[9000], out[9000];
	const size_t *own = comm_rank(w) == 1 ? (size_t[]){ 3000, 1000, 2000 }
					      : (size_t[]){ 1000, 3000, 2000 };
	const int kind = *(const int *)arg;
	struct err e = ERR_INIT;
	int rc = kind == 0   ? comm_all_gatherv(w, in, out, own, COMM_I32, &e)
		 : kind == 1 ? comm_reduce_scatterv(w, in, out, own, COMM_I32, COMM_SUM, &e)
		 : kind == 2 ? comm_gatherv(w, in, out, own, COMM_I32, 2, &e)
			     : comm_scatterv(w, in, out, own, COMM_I32, 2, &e);
	RANK_CHECK(rc < 0 && (e.code == ERR_PROTO || e.code == ERR_PEER), "%d: %s", rc, e.text);
	RANK_CHECK(strstr(e.text, "other counts"), "%s", e.text);
	return 0;
}

static void lists_that_differ_are_found_though_their_sums_do_not(void **state)
{
	(void)state;
	for (int kind = 0; kind < 4; kind++) {
		struct ranks r = {
			.n = 3, .timeout_s = PATIENT_WAIT_S, .fn = count_otherwise, .arg = &kind
		};
		assert_int_equal(ranks_run(&r), 0);
	}
}

static int to_oneself(struct comm *w, void *arg)
{
	int me = comm_rank(w);
	int32_t v[8] = { 1, 2, 3, 4 }, u[8] = { 0 };
	struct comm_p2p both[] = { { true, { v }, 2, COMM_I32, me },
				   { false, { u }, 2, COMM_I32, me },
				   { false, { u + 2 }, 1, COMM_I32, me },
				   { true, { v + 2 }, 4, COMM_U8, me } };
	(void)arg;
	REFUSED(comm_send(w, v, 1, COMM_I32, me, &e));
	REFUSED(comm_recv(w, u, 1, COMM_I32, me, &e));
	REFUSED(comm_batch_send_recv(w, both, 3, &e));
	both[3].count = 3;
	REFUSED(comm_batch_send_recv(w, both, 4, &e));
	both[3].count = 4;
	TAKEN(comm_batch_send_recv(w, both, 4, &e));
	RANK_CHECK(!memcmp(u, v, 3 * sizeof *v) && !u[3], "the messages are mixed up");
	TAKEN(comm_barrier(w, &e));
	return 0;
}

static void a_message_to_oneself_that_nobody_takes_is_refused_and_the_world_goes_on(void **state)
{
	(void)state;
	for (int n = 1; n <= 2; n++) {
		struct ranks r = { .n = n, .timeout_s = PATIENT_WAIT_S, .fn = to_oneself };
		assert_int_equal(ranks_run(&r), 0);
	}
}

/* NULL without AddressSanitizer */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* Of three requests, one is done, one is under way, and one is queued. */
static int leave_requests(struct comm *w, void *arg)
{
	struct comm *g;
	struct comm_request *r[3];
	static int32_t a, b, c;
	struct comm_p2p never = { false, { &b }, 1, COMM_I32, 1 - comm_rank(w) };
	(void)arg;
	TAKEN(comm_split(w, 0, 0, "part", &g, &e));
	TAKEN(comm_all_reduce_start(g, &a, &a, 1, COMM_I32, COMM_SUM, &r[0], &e));
	while (!comm_test(r[0]))
		usleep(100);
	TAKEN(comm_batch_send_recv_start(g, &never, 1, &r[1], &e));
	TAKEN(comm_broadcast_start(g, &c, 1, COMM_I32, 0, &r[2], &e));
	REFUSED(comm_barrier(g, &e));
	comm_close(g);
	struct err e = ERR_INIT;
	RANK_CHECK(comm_barrier(w, &e) < 0 && e.code != ERR_USAGE, "the world goes on: %s", e.text);
	memset(r, 0, sizeof r);
	RANK_CHECK(!__lsan_do_recoverable_leak_check || !__lsan_do_recoverable_leak_check(),
		   "requests leak");
	return 0;
}

static void requests_that_nobody_waits_for_end_with_their_group(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = PATIENT_WAIT_S, .fn = leave_requests };
	assert_int_equal(ranks_run(&r), 0);
}

static void more_sockets_than_there_may_be_are_refused(void **state)
{
	struct comm *w;
	struct err e = ERR_INIT;
	struct comm_bootstrap boot = { .size = 1 };
	struct comm_options opt = { .sockets = COMM_SOCKETS_MAX + 1 };
	(void)state;
	assert_int_equal(comm_open(&boot, &opt, &w, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	opt.sockets = -1;
	assert_int_equal(comm_open(&boot, &opt, &w, &e), -1);
}

/* Rank 1 gets other arguments than the other ranks. */
static int be_different(const struct ranks *r, int rank)
{
	struct ranks *mine = (struct ranks *)(uintptr_t)r; /* this process's own */
	const struct ranks *other = r->arg;
	if (rank != 1)
		return 0;
	mine->algorithm = other->algorithm;
	mine->backend = other->backend;
	mine->sockets = other->sockets;
	mine->integrity = other->integrity;
	return 0;
}

static void settings_that_must_be_equal_are_compared(void **state)
{
	(void)state;
	static const struct ranks others[] = {
		{ .algorithm = "slots" },
		{ .backend = "tcp" },
		{ .sockets = 2 },
		{ .integrity = COMM_INTEGRITY_CHECKSUM },
	};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		struct ranks other = others[i], r = { .n = 3,
						      .enter = be_different,
						      .arg = &other,
						      .timeout_s = PATIENT_WAIT_S,
						      .fn = scatter_by_list };
		ranks_start(&r);
		for (int k = 0; k < r.n; k++)
			assert_int_equal(ranks_end(&r, k), 100); /* it has not opened its world */
		munmap(r.board, sizeof *r.board);
	}
}

/* Either rank 0 sleeps before the other rank comes, or it has nothing to wait for. */
static int meet_late(struct comm *w, void *arg)
{
	(void)arg;
	if (comm_rank(w) == 1)
		usleep(20000);
	TAKEN(comm_barrier(w, &e));
	return 0;
}

static void a_very_long_time_out_is_no_limit(void **state)
{
	(void)state;
	static const double long_s[] = { 1e9, 1e12, 1e300, -1, __builtin_inf() };
	for (size_t i = 0; i < sizeof long_s / sizeof *long_s; i++) {
		struct ranks r = { .n = 2, .timeout_s = long_s[i], .fn = meet_late };
		assert_int_equal(ranks_run(&r), 0);
	}
	struct comm *w;
	struct err e = ERR_INIT;
	struct comm_options opt = { .timeout_s = __builtin_nan("") };
	assert_int_equal(comm_open(&(struct comm_bootstrap){ .size = 1 }, &opt, &w, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_buffer_is_refused_before_anything_happens),
		cmocka_unit_test(scatterv_gives_each_rank_its_own_count),
		cmocka_unit_test(lists_that_differ_are_found_though_their_sums_do_not),
		cmocka_unit_test(
			a_message_to_oneself_that_nobody_takes_is_refused_and_the_world_goes_on),
		cmocka_unit_test(requests_that_nobody_waits_for_end_with_their_group),
		cmocka_unit_test(more_sockets_than_there_may_be_are_refused),
		cmocka_unit_test(settings_that_must_be_equal_are_compared),
		cmocka_unit_test(a_very_long_time_out_is_no_limit),
	};
	return cmocka_run_group_tests_name("comm forms", tests, NULL, NULL);
}
