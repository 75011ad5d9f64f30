/* Faults: dead ranks, late ranks, ranks that disagree, aborts, strangers. */
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"

#include "base/clock.h"
#include "base/net.h"
#include "libcomm/tcp/handshake.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

enum { LONG_S = PATIENT_WAIT_S };

struct stage { /* shared by the test and its ranks */
	_Atomic int64_t killed_ns;
	_Atomic int turns, named, done;
	int victim;
	int op;
	char backend[8];
};

static struct stage *stage_new(void)
{
	struct stage *s = ranks_shared(sizeof *s);
	assert_non_null(s);
	return s;
}

static const struct ranks backends[] = {
	{ .n = 4, .backend = "shm" },
	{ .n = 4, .backend = "tcp" },
	{ .n = 4, .hosts = "aabb" },
};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* --- A rank dies --- */

enum { VECTOR = 300000 };

static int one_turn(struct comm *w, int op, float *a, float *b, struct err *e)
{
	switch (op) {
	case 0:
		return comm_all_reduce(w, a, b, VECTOR, COMM_F32, COMM_SUM, e);
	case 1:
		return comm_barrier(w, e);
	case 2:
		return comm_all_gather(w, a, b, VECTOR / 4, COMM_F32, e);
	case 3:
		return comm_reduce_scatter(w, a, b, VECTOR / 4, COMM_F32, COMM_SUM, e);
	case 4:
		return comm_all_to_all(w, a, b, VECTOR / 4, COMM_F32, e);
	case 5:
		return comm_broadcast(w, a, VECTOR, COMM_F32, 1, e);
	}
	struct comm_p2p ring[] = {
		{ true, { a }, VECTOR, COMM_F32, (comm_rank(w) + 1) % comm_size(w) },
		{ false, { b }, VECTOR, COMM_F32, (comm_rank(w) + comm_size(w) - 1) % comm_size(w) }
	};
	return comm_batch_send_recv(w, ring, 2, e);
}

enum { TURN_KINDS = 7 };

static int until_it_fails(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT, again = ERR_INIT;
	float *a = calloc(VECTOR, sizeof *a), *b = calloc(VECTOR, sizeof *b);
	RANK_CHECK(a && b, "no memory");
	while (one_turn(w, s->op, a, b, &e) == 0)
		atomic_fetch_add(&s->turns, 1);
	double late = (double)(clock_ns() - atomic_load(&s->killed_ns)) * 1e-9;
	RANK_CHECK(e.code == ERR_PEER, "%s: %s", err_word(e.code), e.text);
	RANK_CHECK(late < LONG_S / 3.0, "learned of it after %.3f s", late);
	RANK_CHECK(strstr(e.text, "of group world"), "the group is not named: %s", e.text);
	char who[16];
	snprintf(who, sizeof who, "world rank %d,", s->victim);
	if (strstr(e.text, who))
		atomic_fetch_add(&s->named, 1);
	RANK_CHECK(comm_barrier(w, &again) < 0 && again.code == ERR_PEER, "a later call went on");
	free(a);
	free(b);
	return 0;
}

static void survivors_name_a_killed_rank(void **state)
{
	(void)state;
	for (int b = 0; b < BACKENDS; b++) {
		for (int op = 0; op < TURN_KINDS; op++) {
			struct stage *s = stage_new();
			struct ranks r = backends[b];
			r.timeout_s = LONG_S;
			r.fn = until_it_fails;
			r.arg = s;
			s->victim = op % r.n;
			s->op = op;
			ranks_start(&r);
			while (atomic_load(&s->turns) < 20 + 7 * op)
				sched_yield();
			atomic_store(&s->killed_ns, clock_ns());
			kill(r.pid[s->victim], SIGKILL);
			for (int i = 0; i < r.n; i++)
				assert_int_equal(ranks_end(&r, i), i == s->victim ? -SIGKILL : 0);
			assert_int_equal(atomic_load(&s->named), r.n - 1);
			munmap(r.board, sizeof *r.board);
			munmap(s, sizeof *s);
		}
	}
}

/* The lower rank of a pair dies before it has ever connected. */
static int wait_for_the_unconnected(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct comm *pair;
	struct err e = ERR_INIT;
	int word;
	RANK_CHECK(comm_split(w, 0, 0, "pair", &pair, &e) == 0, "%s", e.text);
	if (comm_rank(w) == 0) {
		atomic_store(&s->turns, 1);
		pause();
	}
	RANK_CHECK(comm_recv(pair, &word, 1, COMM_I32, 0, &e) < 0, "received from the dead");
	RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "rank 0") && strstr(e.text, "group pair"),
		   "%s", e.text);
	return 0;
}

static void a_rank_that_never_connected_is_missed(void **state)
{
	(void)state;
	struct stage *s = stage_new();
	struct ranks r = { .n = 2,
			   .backend = "tcp",
			   .timeout_s = LONG_S,
			   .fn = wait_for_the_unconnected,
			   .arg = s };
	ranks_start(&r);
	while (!atomic_load(&s->turns))
		sched_yield();
	kill(r.pid[0], SIGKILL);
	assert_int_equal(ranks_end(&r, 0), -SIGKILL);
	assert_int_equal(ranks_end(&r, 1), 0);
	munmap(r.board, sizeof *r.board);
	munmap(s, sizeof *s);
}

/* --- A rank is late --- */

static int time_out(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	if (comm_rank(w) == 2) {
		while (atomic_load(&s->done) < comm_size(w) - 1)
			usleep(1000);
		return 0;
	}
	ranks_hurry(w, 3);
	int rc = comm_barrier(w, &e);
	atomic_fetch_add(&s->done, 1);
	RANK_CHECK(rc < 0, "the barrier did not wait");
	/* Ranks that wait for ranks other than the late one learn of it from those. */
	RANK_CHECK(e.code == ERR_TIMEOUT || e.code == ERR_PEER, "%s: %s", err_word(e.code), e.text);
	RANK_CHECK(strstr(e.text, "barrier number ") && strstr(e.text, "of group world"), "%s",
		   e.text);
	if (strstr(e.text, "rank 2 (world rank 2") && strstr(e.text, "did not join within 3 s"))
		atomic_fetch_add(&s->named, 1);
	return 0;
}

static void a_late_rank_is_named(void **state)
{
	(void)state;
	for (int b = 0; b < BACKENDS; b++) {
		struct stage *s = stage_new();
		struct ranks r = backends[b];
		r.timeout_s = PATIENT_WAIT_S;
		r.fn = time_out;
		r.arg = s;
		assert_int_equal(ranks_run(&r), 0);
		assert_int_equal(atomic_load(&s->named), r.n - 1);
		munmap(s, sizeof *s);
	}
}

/* Rank 1 joins later than the others wait. */
static void join_too_late(void *arg, struct comm *world)
{
	(void)arg;
	if (world && comm_rank(world) == 1)
		usleep(3000000);
}

static int opened_in_time(struct comm *w, void *arg)
{
	(void)w, (void)arg;
	return 2;
}

/* Rank 0 waits for rank 1, of which rank 2 does not yet have the address. */
static void a_rank_that_joins_late_ends_no_other_one(void **state)
{
	(void)state;
	struct ranks r = { .n = 4,
			   .backend = "tcp",
			   .timeout_s = 1,
			   .fn = opened_in_time,
			   .joining = join_too_late };
	ranks_start(&r);
	for (int k = 0; k < r.n; k++) {
		int rc = ranks_end(&r, k);
		assert_true(rc == 100 || rc == 2); /* it could not open, or it did on a slow host */
	}
	munmap(r.board, sizeof *r.board);
}

/* Each rank waits for the next one, in a group that the others do not know. The last rank is
 * late. */
static int wait_in_a_chain(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	int me = comm_rank(w), last = comm_size(w) - 1, word, rc = 0;
	struct comm *next = NULL;
	for (int r = 0; r < last && rc == 0; r++) {
		struct comm *pair;
		rc = comm_split(w, me == r || me == r + 1 ? 0 : -1, 0, "pair", &pair, &e);
		if (me == r)
			next = pair;
	}
	RANK_CHECK(rc == 0, "%s", e.text);
	ranks_hurry(w, 3);
	if (me == last) {
		while (atomic_load(&s->done) < last)
			usleep(1000);
		return 0;
	}
	RANK_CHECK(comm_recv(next, &word, 1, COMM_I32, 1, &e) < 0, "received what nobody sent");
	atomic_fetch_add(&s->done, 1);
	RANK_CHECK(strstr(e.text, "world rank 3, host host-a") &&
			   strstr(e.text, "did not join within"),
		   "%s", e.text);
	return 0;
}

static void the_end_of_a_chain_of_waits_is_named(void **state)
{
	(void)state;
	struct stage *s = stage_new();
	struct ranks r = { .n = 4,
			   .backend = "tcp",
			   .timeout_s = PATIENT_WAIT_S,
			   .fn = wait_in_a_chain,
			   .arg = s };
	assert_int_equal(ranks_run(&r), 0);
	munmap(s, sizeof *s);
}

/* --- Abort --- */

static void *abort_it(void *arg)
{
	comm_abort(arg, "the supervisor says stop");
	return NULL;
}

static int blocked_until_aborted(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	struct comm *g;
	struct comm_request *req;
	int word = 0, sum;
	RANK_CHECK(comm_split(w, 0, 0, "g", &g, &e) == 0, "%s", e.text);
	int next = (comm_rank(w) + 1) % comm_size(w);
	struct comm_p2p never = { false, { &word }, 1, COMM_I32, next };
	RANK_CHECK(comm_batch_send_recv_start(g, &never, 1, &req, &e) == 0, "%s", e.text);
	pthread_t t;
	pthread_create(&t, NULL, abort_it, g);
	if (s->op == 0)
		RANK_CHECK(comm_recv(w, &word, 1, COMM_I32, next, &e) < 0,
			   "received what nobody sent");
	else
		while (comm_all_reduce(w, &word, &sum, 1, COMM_I32, COMM_SUM, &e) == 0)
			continue;
	pthread_join(t, NULL);
	/* Another rank's abort may have been seen before this one's. */
	RANK_CHECK(e.code == ERR_ABORTED || e.code == ERR_PEER, "%s: %s", err_word(e.code), e.text);
	RANK_CHECK(comm_wait(req, &e) < 0, "received what nobody sent");
	struct err again = ERR_INIT;
	RANK_CHECK(comm_barrier(g, &again) < 0, "went on after an abort");
	RANK_CHECK(comm_split(w, 0, 0, "h", &g, &again) < 0, "split after an abort");
	if (e.code == ERR_ABORTED && strstr(e.text, "the supervisor says stop"))
		atomic_fetch_add(&s->named, 1);
	return 0;
}

static void an_abort_ends_every_wait(void **state)
{
	(void)state;
	for (int b = 0; b < 2 * BACKENDS; b++) {
		struct stage *s = stage_new();
		struct ranks r = backends[b / 2];
		r.timeout_s = 0; /* no time-out: only the abort can end it */
		r.fn = blocked_until_aborted;
		r.arg = s;
		s->op = b % 2;
		assert_int_equal(ranks_run(&r), 0);
		assert_true(atomic_load(&s->named) >= 1);
		munmap(s, sizeof *s);
	}
}

/* Rank 1 lives and does not join before rank 0 has given up. */
static void join_late(void *arg, struct comm *world)
{
	static pthread_t aborts;
	struct stage *s = arg;
	if (!world) {
		if (!atomic_fetch_add(&s->done, 1))
			pthread_join(aborts, NULL);
	} else if (comm_rank(world) == 1) {
		while (!atomic_load(&s->done))
			sched_yield();
	} else {
		pthread_create(&aborts, NULL, abort_it, world);
	}
}

/* It may pass the barrier, because rank 0 had come to it. */
static int find_nobody(struct comm *w, void *arg)
{
	(void)arg;
	return comm_barrier(w, NULL) < 0 ? 100 : 0;
}

static void an_abort_ends_the_wait_for_a_rank_that_does_not_join(void **state)
{
	(void)state;
	for (int b = 0; b < BACKENDS; b++) {
		struct stage *s = stage_new();
		struct ranks r = backends[b];
		r.n = 2;
		r.timeout_s = 0;
		r.joining = join_late;
		r.fn = find_nobody;
		r.arg = s;
		ranks_start(&r);
		for (int rank = 0; rank < r.n; rank++)
			assert_int_equal(ranks_end(&r, rank), 100); /* it did not join */
		munmap(r.board, sizeof *r.board);
		munmap(s, sizeof *s);
	}
}

/* --- Disagreement --- */

static int disagree(struct comm *w, void *arg)
{
	const struct stage *s = arg;
	struct err e = ERR_INIT;
	float v[64] = { 0 };
	int me = comm_rank(w), rc;
	if (s->op == 0)
		rc = me == 1 ? comm_broadcast(w, v, 8, COMM_F32, 0, &e)
			     : comm_all_reduce(w, v, v, 8, COMM_F32, COMM_SUM, &e);
	else if (s->op == 1)
		rc = comm_all_gather(w, v, v + 32, me == 1 ? 7 : 8, COMM_F32, &e);
	else
		rc = me % 2 ? comm_recv(w, v, 9, COMM_F32, me - 1, &e)
			    : comm_send(w, v, 8, COMM_F32, me + 1, &e);
	/* A sender has finished its operation before its receiver fails. */
	if (s->op == 2 && me % 2 == 0 && rc == 0)
		return 0;
	RANK_CHECK(rc < 0, "operation %d went through", s->op);
	RANK_CHECK(e.code == ERR_PROTO || e.code == ERR_PEER, "%s: %s", err_word(e.code), e.text);
	RANK_CHECK(e.code != ERR_PROTO || strstr(e.text, "same ones") ||
			   strstr(e.text, "same operations"),
		   "%s", e.text);
	return 0;
}

static void ranks_that_disagree_get_an_error(void **state)
{
	(void)state;
	for (int b = 0; b < BACKENDS; b++)
		for (int op = 0; op < 3; op++) {
			struct stage *s = stage_new();
			struct ranks r = backends[b];
			r.timeout_s = LONG_S;
			r.fn = disagree;
			r.arg = s;
			s->op = op;
			assert_int_equal(ranks_run(&r), 0);
			munmap(s, sizeof *s);
		}
}

static int misuse(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	float v[8] = { 0 }, u[8];
	struct comm_request *req;
	(void)arg;
	RANK_CHECK(comm_broadcast(w, v, 8, COMM_F32, 9, &e) < 0 && e.code == ERR_USAGE, "%s",
		   e.text);
	RANK_CHECK(comm_send(w, v, 8, COMM_F32, -1, &e) < 0 && e.code == ERR_USAGE, "%s", e.text);
	RANK_CHECK(comm_all_to_all(w, v, v, 1, COMM_F32, &e) < 0 && e.code == ERR_USAGE, "%s",
		   e.text);
	RANK_CHECK(comm_batch_send_recv_start(w, NULL, -1, &req, &e) < 0 && e.code == ERR_USAGE,
		   "%s", e.text);
	RANK_CHECK(comm_all_reduce(w, v, u, SIZE_MAX / 2, COMM_F32, COMM_SUM, &e) < 0 &&
			   e.code == ERR_USAGE,
		   "%s", e.text);
	RANK_CHECK(comm_all_reduce_start(w, v, u, 8, COMM_F32, COMM_SUM, &req, &e) == 0, "%s",
		   e.text);
	RANK_CHECK(comm_barrier(w, &e) < 0 && e.code == ERR_USAGE, "%s", e.text);
	RANK_CHECK(comm_wait(req, &e) == 0, "%s", e.text);
	/* None of this has harmed the world. */
	RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
	return 0;
}

static void misuse_is_refused_and_harms_nobody(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = LONG_S, .fn = misuse };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Strangers --- */

static int work_among_strangers(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	struct comm *g;
	int one = 1, sum, over = 0, all_over = 0;
	atomic_fetch_add(&s->turns, 1);
	while (!all_over) {
		RANK_CHECK(comm_split(w, 0, 0, "g", &g, &e) == 0, "%s", e.text);
		RANK_CHECK(comm_all_reduce(g, &one, &sum, 1, COMM_I32, COMM_SUM, &e) == 0, "%s",
			   e.text);
		RANK_CHECK(sum == comm_size(w), "the sum is %d", sum);
		comm_close(g);
		over = atomic_load(&s->done);
		RANK_CHECK(comm_all_reduce(w, &over, &all_over, 1, COMM_I32, COMM_MIN, &e) == 0,
			   "%s", e.text);
	}
	return 0;
}

/* The data of a stranger: nothing, a piece of a hello, noise, or a hello without the secret. */
static void knock(const char *address, int kind)
{
	int fd;
	struct err e = ERR_INIT;
	unsigned char cause[96];
	assert_int_equal(net_connect(address, LONG_S, &fd, &e), 0);
	memset(cause, 0x5a, sizeof cause);
	if (kind == 3) {
		uint32_t header[4] = { 0, 1, 0, 0 }; /* kind, from, to, zero */
		memcpy(cause, "MUSTCOM", 8);
		memcpy(cause + 16, header, sizeof header);
	}
	size_t len = kind == 0 ? 0 : kind == 1 ? 20 : sizeof cause;
	ssize_t sent = send(fd, cause, len, MSG_NOSIGNAL);
	assert_true(sent == (ssize_t)len || kind >= 2);
	if (kind >= 2) {
		/* The stranger is rejected: the other end closes the connection. */
		char answer[256];
		ssize_t n;
		while ((n = recv(fd, answer, sizeof answer, 0)) > 0)
			continue;
	}
	close(fd);
}

static void strangers_are_refused_and_harm_nobody(void **state)
{
	(void)state;
	struct stage *s = stage_new();
	struct ranks r = {
		.n = 3, .backend = "tcp", .timeout_s = LONG_S, .fn = work_among_strangers, .arg = s
	};
	ranks_start(&r);
	while (atomic_load(&s->turns) < r.n)
		sched_yield();
	char address[NET_ADDR_MAX];
	/* the format that world.c writes */
	assert_int_equal(sscanf(r.board->value[0], "%*d %*d %*d %*s %*s %79s", address), 1);
	int silent[100];
	for (int i = 0; i < 100; i++) /* more than the listener reads at a time */
		assert_int_equal(net_connect(address, LONG_S, &silent[i], NULL), 0);
	for (int i = 0; i < 40; i++)
		knock(address, i % 4);
	atomic_store(&s->done, 1);
	assert_int_equal(ranks_finish(&r), 0);
	for (int i = 0; i < 100; i++)
		close(silent[i]);
	munmap(s, sizeof *s);
}

/* Connects as another user. Returns 0 if the connection was closed without an answer. Any
 * well-formed hello of a permitted user gets an answer. */
static int knock_as_nobody(const char *address)
{
	int fd;
	char byte;
	struct hello hello = { .magic = "MUSTCOM", .kind = HELLO_OOB, .from = 1 };
	alarm(PATIENCE_S);
	if (setresuid(65534, 65534, 65534) || net_connect(address, LONG_S, &fd, NULL))
		return 1;
	send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
	ssize_t n = recv(fd, &byte, 1, 0);
	return n == 0 || (n < 0 && errno == ECONNRESET) ? 0 : 2;
}

static void another_user_of_this_host_is_disconnected(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip(); /* only root can become another user */
	struct stage *s = stage_new();
	struct ranks r = {
		.n = 3, .backend = "tcp", .timeout_s = LONG_S, .fn = work_among_strangers, .arg = s
	};
	ranks_start(&r);
	while (atomic_load(&s->turns) < r.n)
		sched_yield();
	char address[NET_ADDR_MAX];
	int status = -1;
	assert_int_equal(sscanf(r.board->value[0], "%*d %*d %*d %*s %*s %79s", address), 1);
	pid_t pid = fork();
	if (pid == 0)
		_exit(knock_as_nobody(address));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	atomic_store(&s->done, 1);
	assert_int_equal(ranks_finish(&r), 0);
	munmap(s, sizeof *s);
}

/* --- Opening --- */

static int lie_about_memory(void *arg, int rank, const char *key, char **value, struct err *e)
{
	int rc = ranks_get(arg, rank, key, value, e);
	char *nonce = rc == 0 ? strchr(strchr(strchr(*value, ' ') + 1, ' ') + 1, ' ') + 1 : NULL;
	if (nonce && rank == 0)
		nonce[3] = nonce[3] == '0' ? '1' : '0';
	return rc;
}

static void memory_with_a_wrong_nonce_is_refused(void **state)
{
	(void)state;
	struct ranks r = { .n = 2 };
	r.board = ranks_shared(sizeof *r.board);
	pid_t child = fork();
	if (child == 0) {
		struct comm *w;
		alarm(PATIENCE_S);
		_exit(ranks_open(&r, 0, &w, NULL) == 0); /* its peer refuses and leaves */
	}
	struct ranks_boot b = { .r = &r, .rank = 1 };
	struct comm_bootstrap boot = { 1, 2, ranks_put, ranks_fence, lie_about_memory, &b, NULL };
	struct comm_options opt = { .host = "host-a", .interface = "" };
	struct comm *w = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(comm_open(&boot, &opt, &w, &e), -1);
	assert_null(w);
	assert_non_null(strstr(e.text, "not the shared memory that was offered"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	munmap(r.board, sizeof *r.board);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_name_a_killed_rank),
		cmocka_unit_test(a_rank_that_never_connected_is_missed),
		cmocka_unit_test(a_late_rank_is_named),
		cmocka_unit_test(a_rank_that_joins_late_ends_no_other_one),
		cmocka_unit_test(the_end_of_a_chain_of_waits_is_named),
		cmocka_unit_test(an_abort_ends_every_wait),
		cmocka_unit_test(an_abort_ends_the_wait_for_a_rank_that_does_not_join),
		cmocka_unit_test(ranks_that_disagree_get_an_error),
		cmocka_unit_test(misuse_is_refused_and_harms_nobody),
		cmocka_unit_test(strangers_are_refused_and_harm_nobody),
		cmocka_unit_test(another_user_of_this_host_is_disconnected),
		cmocka_unit_test(memory_with_a_wrong_nonce_is_refused),
	};
	return cmocka_run_group_tests_name("comm faults", tests, NULL, NULL);
}
