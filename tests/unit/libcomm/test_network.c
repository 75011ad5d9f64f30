/* Ranks on separate hosts: IPv4, IPv6, several sockets per pair, a cut line, a killed rank. */
#include "tests/unit/libcomm/network.h"
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct network net; /* each test opens its own */
static const char *missing;

static int open_network(void **state)
{
	(void)state;
	if (network_open(&net, 3, &missing) == 0)
		missing = NULL;
	return 0;
}

static int close_network(void **state)
{
	(void)state;
	if (!missing)
		network_close(&net);
	return 0;
}

static void need_network(void)
{
	if (!missing)
		return;
	print_message("%s\n", missing);
	skip();
}

enum { LONG_S = PATIENT_WAIT_S, CUT_S = 6 /* for cut lines */ };

struct stage { /* shared by the test and its ranks */
	_Atomic int turns, named;
	int victim;
	bool interrupt; /* the network is interrupted; no rank is killed */
	bool idle;      /* nobody sends: the line is silent when it is cut */
};

static struct stage *stage_new(void)
{
	struct stage *s = ranks_shared(sizeof *s);
	assert_non_null(s);
	return s;
}

static int enter_host(const struct ranks *r, int rank)
{
	return network_enter(&net, r->hosts[rank] - 'a');
}

/* --- It works --- */

enum { TURNS = 10, COUNT = 300007 }; /* more than the sockets buffer, and not evenly divisible */

static int pass_on(struct comm *w, int32_t *a, int32_t *b)
{
	struct err e = ERR_INIT;
	int me = comm_rank(w), n = comm_size(w), left = (me + n - 1) % n;
	struct comm_p2p ring[] = { { true, { a }, COUNT, COMM_I32, (me + 1) % n },
				   { false, { b }, COUNT, COMM_I32, left } };
	for (int i = 0; i < COUNT; i++)
		a[i] = me * 7 + i;
	RANK_CHECK(comm_batch_send_recv(w, ring, 2, &e) == 0, "%s", e.text);
	for (int i = 0; i < COUNT; i++)
		RANK_CHECK(b[i] == left * 7 + i, "element %d from rank %d is %d", i, left, b[i]);
	return 0;
}

static int talk(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	int n = comm_size(w);
	int32_t *a = calloc(COUNT, sizeof *a), *b = calloc((size_t)COUNT * 4, sizeof *b);
	(void)arg;
	RANK_CHECK(a && b, "no memory");
	if (pass_on(w, a, b))
		return 1;
	RANK_CHECK(comm_all_gather(w, a, b, COUNT, COMM_I32, &e) == 0, "%s", e.text);
	for (int r = 0; r < n; r++)
		for (int i = 0; i < COUNT; i++)
			RANK_CHECK(b[r * COUNT + i] == r * 7 + i, "element %d of rank %d is %d", i,
				   r, b[r * COUNT + i]);
	RANK_CHECK(comm_all_reduce(w, a, b, COUNT, COMM_I32, COMM_SUM, &e) == 0, "%s", e.text);
	for (int i = 0; i < COUNT; i++)
		RANK_CHECK(b[i] == 7 * n * (n - 1) / 2 + n * i, "element %d of the sum is %d", i,
			   b[i]);
	RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
	free(a);
	free(b);
	return 0;
}

static void ranks_talk_over(struct ranks r, const char *addresses)
{
	char address[1024];
	r.timeout_s = LONG_S;
	r.fn = talk;
	if (!r.enter)
		r.enter = enter_host;
	ranks_start(&r);
	for (int i = 0; i < r.n; i++)
		assert_int_equal(ranks_end(&r, i), 0);
	for (int i = 0; i < r.n; i++) {
		/* the format that world.c writes */
		assert_int_equal(sscanf(r.board->value[i], "%*d %*d %*d %*s %*s %1023s", address),
				 1);
		/* it listened there, and nowhere else */
		assert_memory_equal(address, addresses, strlen(addresses));
	}
	munmap(r.board, sizeof *r.board);
}

static void hosts_talk_over_ipv4(void **state)
{
	(void)state;
	need_network();
	ranks_talk_over((struct ranks){ .n = 3, .hosts = "abc", .interface = "net0" }, "10.77.0.");
	ranks_talk_over((struct ranks){ .n = 4, .hosts = "aabb", .interface = "net0" }, "10.77.0.");
}

static void several_sockets_carry_the_same(void **state)
{
	(void)state;
	need_network();
	static const int sockets[] = { 2, 3, COMM_SOCKETS_MAX };
	for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++)
		ranks_talk_over((struct ranks){ .n = 3,
						.hosts = "abc",
						.interface = "net0",
						.sockets = sockets[i] },
				"10.77.0.");
}

static int only_ipv6(const struct ranks *r, int rank)
{
	return enter_host(r, rank) < 0 || system("ip -4 addr flush dev net0") ? -1 : 0;
}

static int only_this_link(const struct ranks *r, int rank)
{
	return only_ipv6(r, rank) < 0 || system("ip -6 addr flush dev net0 scope global") ? -1 : 0;
}

static void hosts_talk_over_ipv6(void **state)
{
	(void)state;
	need_network();
	ranks_talk_over(
		(struct ranks){ .n = 3, .hosts = "abc", .interface = "net0", .enter = only_ipv6 },
		"[fd77::");
	ranks_talk_over(
		(struct ranks){
			.n = 3, .hosts = "abc", .interface = "net0", .enter = only_this_link },
		"[fe80::");
}

static void different_numbers_of_sockets_are_refused(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .hosts = "ab" };
	r.board = ranks_shared(sizeof *r.board);
	for (int k = 0; k < 2; k++) {
		r.pid[k] = fork();
		if (r.pid[k] == 0) {
			struct err e = ERR_INIT;
			struct comm *w;
			alarm(PATIENCE_S);
			r.sockets = 1 + k;
			int rc = ranks_open(&r, k, &w, &e);
			_exit(rc == -1 && strstr(e.text, "other [network] sockets than this one")
				      ? 0
				      : 1);
		}
	}
	assert_int_equal(ranks_finish(&r), 0);
}

/* --- It fails --- */

static int until_it_fails(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	int n = comm_size(w), me = comm_rank(w);
	float *a = calloc(COUNT, sizeof *a), *b = calloc(COUNT, sizeof *b);
	RANK_CHECK(a && b, "no memory");
	for (int rc = 0, turn = 1; rc == 0; turn++) {
		rc = comm_all_reduce(w, a, b, COUNT, COMM_F32, COMM_SUM, &e);
		atomic_fetch_add(&s->turns, 1);
		/* each waits for the next one, and nobody sends */
		if (rc == 0 && s->idle && turn == TURNS)
			rc = comm_recv(w, a, 1, COMM_F32, (me + 1) % n, &e);
	}
	char who[32];
	snprintf(who, sizeof who, "world rank %d,", s->victim);
	RANK_CHECK(strstr(e.text, "of group world"), "the group is not named: %s", e.text);
	/* The rank that is cut off itself names another one. */
	RANK_CHECK(strstr(e.text, me == s->victim ? "world rank" : who), "%s", e.text);
	RANK_CHECK(strstr(e.text, "host host-"), "%s", e.text);
	/* The kernel detected it before the time-out. */
	RANK_CHECK(!s->interrupt ||
			   (e.code == ERR_PEER && strstr(e.text, "has not answered for 3 s")),
		   "%s", e.text);
	atomic_fetch_add(&s->named, 1);
	free(a);
	free(b);
	return 0;
}

static void cut_a_line(bool idle)
{
	struct stage *s = stage_new();
	struct ranks r = { .n = 3,
			   .hosts = "abc",
			   .interface = "net0",
			   .timeout_s = CUT_S,
			   .fn = until_it_fails,
			   .arg = s,
			   .enter = enter_host };
	s->victim = 2;
	s->interrupt = true;
	s->idle = idle;
	ranks_start(&r);
	while (atomic_load(&s->turns) < TURNS * r.n)
		usleep(1000);
	assert_int_equal(network_cut(&net, s->victim), 0);
	assert_int_equal(ranks_finish(&r), 0);
	assert_int_equal(atomic_load(&s->named), r.n);
	munmap(s, sizeof *s);
}

static void a_line_cut_in_use_is_an_error_that_names_the_host(void **state)
{
	(void)state;
	need_network();
	cut_a_line(false);
}

static void an_idle_line_that_is_cut_is_found_too(void **state)
{
	(void)state;
	need_network();
	cut_a_line(true);
}

static void a_killed_rank_is_named_on_every_host(void **state)
{
	(void)state;
	need_network();
	static const struct ranks kinds[] = { { .n = 3, .hosts = "abc" },
					      { .n = 5, .hosts = "aabbc", .sockets = 3 } };
	for (int k = 0; k < 6; k++) {
		struct stage *s = stage_new();
		struct ranks r = kinds[k % 2];
		r.interface = "net0";
		r.timeout_s = LONG_S;
		r.fn = until_it_fails;
		r.arg = s;
		r.enter = enter_host;
		s->victim = k % r.n;
		ranks_start(&r);
		while (atomic_load(&s->turns) < 20)
			usleep(100);
		kill(r.pid[s->victim], SIGKILL);
		for (int i = 0; i < r.n; i++)
			assert_int_equal(ranks_end(&r, i), i == s->victim ? -SIGKILL : 0);
		assert_int_equal(atomic_load(&s->named), r.n - 1);
		munmap(r.board, sizeof *r.board);
		munmap(s, sizeof *s);
	}
}

#define IN_A_NETWORK(test) cmocka_unit_test_setup_teardown(test, open_network, close_network)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_A_NETWORK(hosts_talk_over_ipv4),
		IN_A_NETWORK(hosts_talk_over_ipv6),
		IN_A_NETWORK(several_sockets_carry_the_same),
		cmocka_unit_test(different_numbers_of_sockets_are_refused),
		IN_A_NETWORK(a_line_cut_in_use_is_an_error_that_names_the_host),
		IN_A_NETWORK(an_idle_line_that_is_cut_is_found_too),
		IN_A_NETWORK(a_killed_rank_is_named_on_every_host),
	};
	return cmocka_run_group_tests_name("comm network", tests, NULL, NULL);
}
