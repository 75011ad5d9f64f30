/* Wire-up: whose cards a rank fetches, what it knows afterwards, and what it reports if a card is
 * missing, wrong, or of a rank that has died. */
#include "libcomm/wire/book.h"
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libcomm/group.h"

enum { LONG_S = 60 };

static const char eight[] = "aaaabbbbccccddddeeeeffffgggghhhh", mixed[] = "abcabcabcabdbdbdeeea";

/* Every rank reaches every other one, and knows its host. */
static int meet_all(struct comm *w, void *arg)
{
	const struct ranks *r = arg;
	struct err e = ERR_INIT;
	int n = comm_size(w), me = comm_rank(w);
	int64_t in[RANKS_MAX], out[RANKS_MAX];
	for (int i = 0; i < n; i++)
		in[i] = 1000 * me + i;
	RANK_CHECK(comm_all_to_all(w, in, out, 1, COMM_I64, &e) == 0, "%s", e.text);
	for (int i = 0; i < n; i++) {
		RANK_CHECK(out[i] == 1000 * i + me, "from rank %d: %lld", i, (long long)out[i]);
		RANK_CHECK(!r->hosts || w->world->peers[i].host[5] == r->hosts[i], "host of %d", i);
		RANK_CHECK((w->world->peers[i].host_id == w->world->peers[me].host_id) ==
				   (!r->hosts || r->hosts[i] == r->hosts[me]),
			   "host number of %d", i);
	}
	return 0;
}

/* The ranks of a host of k fetch k + COMM_NEAR cards at most, however many hosts there are. */
static void check_gets(const struct ranks *r)
{
	for (int rank = 0; rank < r->n; rank++) {
		int k = 0, gets = atomic_load(&r->board->gets[rank]);
		for (int i = 0; i < r->n; i++)
			k += ranks_together(r, i, rank);
		if (ranks_leader(r, rank) == rank)
			assert_in_range(gets, k, k + COMM_NEAR);
		else
			assert_int_equal(gets, 1);
	}
}

static void run_placed(const char *hosts, int n, const char *backend)
{
	struct ranks r = { .n = n,
			   .hosts = hosts,
			   .backend = backend,
			   .placed = true,
			   .timeout_s = LONG_S,
			   .fn = meet_all };
	int bad = 0;
	r.arg = &r;
	ranks_start(&r);
	for (int i = 0; i < n; i++)
		bad += ranks_end(&r, i) != 0;
	assert_int_equal(bad, 0);
	check_gets(&r);
	munmap(r.board, sizeof *r.board);
}

static void a_rank_fetches_the_cards_next_to_it(void **state)
{
	(void)state;
	run_placed(eight, 32, NULL);
	run_placed(mixed, 20, NULL);
	run_placed(NULL, 16, "shm");
	run_placed(NULL, 13, "tcp");
	run_placed("abcdefghijk", 11, NULL);
	run_placed(NULL, 1, NULL);
	run_placed("aab", 3, NULL);
}

static void without_a_place_the_ranks_find_it_out(void **state)
{
	static const struct {
		const char *hosts, *backend;
		int n;
	} worlds[] = { { mixed, NULL, 20 }, { NULL, "tcp", 7 }, { NULL, NULL, 5 } };
	(void)state;
	for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
		struct ranks r = { .n = worlds[i].n,
				   .hosts = worlds[i].hosts,
				   .backend = worlds[i].backend,
				   .timeout_s = LONG_S,
				   .fn = meet_all };
		r.arg = &r;
		assert_int_equal(ranks_run(&r), 0);
	}
}

/* The first ranks of hosts encrypt what they send each other, and every mode of the connections works
 * on top of that. */
static void every_integrity_wires_up(void **state)
{
	(void)state;
	for (int mode = 0; mode < COMM_INTEGRITY_COUNT; mode++) {
		struct ranks r = { .n = 9,
				   .hosts = "aabbccddd",
				   .placed = true,
				   .integrity = (enum comm_integrity)mode,
				   .sockets = 1 + mode,
				   .timeout_s = LONG_S,
				   .fn = meet_all };
		r.arg = &r;
		assert_int_equal(ranks_run(&r), 0);
	}
}

/* --- What goes wrong -------------------------------------------------------------------------- */

/* Ranks of a world that does not come to be: each notes its error. */
struct failing {
	struct ranks r;
	int (*fence)(void *arg, struct err *e); /* of the ranks; NULL: as always */
	struct err *errors;                     /* of each rank, in shared memory */
	struct comm_place place[RANKS_MAX];
	int here[RANKS_MAX][RANKS_MAX];
};

static void fail_to_open(struct failing *f, int rank)
{
	struct ranks_boot b = { .r = &f->r, .rank = rank };
	struct comm_bootstrap boot = { rank,           f->r.n,
				       ranks_put,      f->fence ? f->fence : ranks_fence,
				       ranks_get,      &b,
				       &f->place[rank] };
	char host[] = "host-a";
	if (f->r.hosts)
		host[5] = f->r.hosts[rank];
	struct comm_options opt = { .host = host, .interface = "", .timeout_s = LONG_S };
	struct comm *w = NULL;
	alarm(PATIENCE_S);
	_exit(comm_open(&boot, &opt, &w, &f->errors[rank]) == -1 && !w ? 0 : 1);
}

static void failing_start(struct failing *f)
{
	f->r.board = ranks_shared(sizeof *f->r.board);
	f->errors = ranks_shared((size_t)f->r.n * sizeof *f->errors);
	fflush(NULL);
	for (int i = 0; i < f->r.n; i++) {
		if (!f->place[i].here)
			ranks_place(&f->r, i, f->here[i], &f->place[i]);
		f->r.pid[i] = fork();
		if (f->r.pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			fail_to_open(f, i);
		}
	}
}

/* Every rank has failed by itself, other than `killed`. */
static void failing_end(struct failing *f, int killed)
{
	for (int i = 0; i < f->r.n; i++)
		assert_int_equal(ranks_end(&f->r, i), i == killed ? -SIGKILL : 0);
}

static void failing_free(struct failing *f)
{
	munmap(f->r.board, sizeof *f->r.board);
	munmap(f->errors, (size_t)f->r.n * sizeof *f->errors);
}

/* Every rank but the first, whose error is its own, has its reason from it, or came after its end. */
static void check_followers(const struct failing *f, const char *reason)
{
	assert_non_null(strstr(f->errors[0].text, reason));
	for (int i = 1; i < f->r.n; i++) {
		assert_int_equal(f->errors[i].code, ERR_PEER);
		assert_true((strstr(f->errors[i].text, "rank 0 gave up") &&
			     strstr(f->errors[i].text, reason)) ||
			    strstr(f->errors[i].text, "has died"));
	}
}

/* After the fence the card of rank 1 is gone. */
static int lose_a_card(void *arg, struct err *e)
{
	struct ranks_boot *b = arg;
	int rc = ranks_fence(arg, e);
	if (b->rank == 1)
		*b->r->board->value[1] = '\0';
	return rc || ranks_fence(arg, e) ? -1 : 0;
}

static void a_card_that_is_missing_is_named(void **state)
{
	(void)state;
	struct failing f = { .r = { .n = 3, .timeout_s = LONG_S }, .fence = lose_a_card };
	failing_start(&f);
	failing_end(&f, -1);
	assert_int_equal(f.errors[0].code, ERR_NOTFOUND);
	check_followers(&f, "rank 1: did not publish muster.comm.1");
	failing_free(&f);
}

static int spoil_a_card(void *arg, struct err *e)
{
	struct ranks_boot *b = arg;
	int rc = ranks_fence(arg, e);
	if (b->rank == 1)
		strcpy(strchr(b->r->board->value[1], ' '), " 3 4 no nonce");
	return rc || ranks_fence(arg, e) ? -1 : 0;
}

static void a_card_that_is_invalid_is_named(void **state)
{
	(void)state;
	struct failing f = { .r = { .n = 3, .timeout_s = LONG_S }, .fence = spoil_a_card };
	failing_start(&f);
	failing_end(&f, -1);
	assert_int_equal(f.errors[0].code, ERR_PROTO);
	check_followers(&f, "rank 1 published an invalid address");
	failing_free(&f);
}

/* Rank 0 dies between the fence and the book. */
static int die_first(void *arg, struct err *e)
{
	struct ranks_boot *b = arg;
	int rc = ranks_fence(arg, e);
	if (b->rank == 0)
		pause();
	return rc;
}

static void a_rank_that_died_is_named(void **state)
{
	(void)state;
	struct failing f = { .r = { .n = 4, .hosts = "aaab", .timeout_s = LONG_S },
			     .fence = die_first };
	failing_start(&f);
	while (atomic_load(&f.r.board->passed) < 1)
		usleep(1000);
	kill(f.r.pid[0], SIGKILL);
	failing_end(&f, 0);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(f.errors[i].code, ERR_PEER);
		assert_true(strstr(f.errors[i].text, "rank 0 has died") ||
			    strstr(f.errors[i].text, "process"));
	}
	assert_non_null(strstr(f.errors[3].text, "rank 0"));
	failing_free(&f);
}

static void ranks_that_the_launcher_put_together_but_are_apart_are_named(void **state)
{
	(void)state;
	static const int all[] = { 0, 1, 2 };
	struct failing f = { .r = { .n = 3, .hosts = "aab", .timeout_s = LONG_S } };
	for (int i = 0; i < 3; i++)
		f.place[i] = (struct comm_place){ .here = all, .n_here = 3 };
	failing_start(&f);
	failing_end(&f, -1);
	assert_non_null(strstr(f.errors[0].text, "but the launcher has them on one node"));
	assert_non_null(strstr(f.errors[2].text, "but the launcher has them on one node"));
	failing_free(&f);
}

static void an_impossible_place_is_refused(void **state)
{
	static const int right[] = { 1, 2 }, other[] = { 2, 3 }, twice[] = { 1, 1 },
			 far[] = { 1, 9 };
	const struct comm_place places[] = {
		{ .leader = 4, .here = right, .n_here = 2 },
		{ .leader = -1, .here = right, .n_here = 2 },
		{ .leader = 2, .here = right, .n_here = 2 },
		{ .leader = 1, .here = right, .n_here = 0 },
		{ .leader = 1, .here = other, .n_here = 2 },
		{ .leader = 1, .here = twice, .n_here = 2 },
		{ .leader = 1, .here = far, .n_here = 2 },
		{ .leader = 1, .here = right, .n_here = 2, .near = { 1 }, .n_near = 1 },
		{ .leader = 1, .here = right, .n_here = 2, .near = { 4 }, .n_near = 1 },
		{ .leader = 1, .here = right, .n_here = 2, .n_near = COMM_NEAR + 1 },
		{ .leader = 1, .here = right, .n_here = 2, .has_parent = true },
	};
	(void)state;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		struct ranks r = { .n = 1 }; /* the fence is of this rank alone */
		r.board = ranks_shared(sizeof *r.board);
		struct ranks_boot b = { .r = &r };
		struct comm_bootstrap boot = { 1,         4,  ranks_put, ranks_fence,
					       ranks_get, &b, &places[i] };
		struct comm *w;
		struct err e = ERR_INIT;
		assert_int_equal(comm_open(&boot, &(struct comm_options){ .host = "a" }, &w, &e),
				 -1);
		assert_non_null(strstr(e.text, "the launcher's list of the ranks next to rank 1"));
		munmap(r.board, sizeof *r.board);
	}
}

/* --- The book --------------------------------------------------------------------------------- */

enum { BOOK_RANKS = 5 };

struct book_world {
	struct world w;
	struct peer peers[BOOK_RANKS];
	struct card cards[BOOK_RANKS];
	struct buf book;
};

static void add_host(struct book_world *b, const char *name, const int *ranks, int n)
{
	const unsigned char nonce[SEG_NONCE] = { 7 };
	comm_book_add_host(&b->book, name, n, 40 + ranks[0], nonce);
	for (int i = 0; i < n; i++) {
		struct wire_card card = { .pid = 100 + ranks[i], .wakeup = 10 + ranks[i] };
		snprintf(card.address, sizeof card.address, "127.0.0.1:%d", 5000 + ranks[i]);
		memset(card.secret, ranks[i], sizeof card.secret);
		comm_book_add_rank(&b->book, ranks[i], &card);
	}
}

static void forget(struct book_world *b)
{
	b->w = (struct world){ .size = BOOK_RANKS, .peers = b->peers };
	for (int r = 0; r < BOOK_RANKS; r++)
		b->peers[r] = (struct peer){ .host_id = -1 - r, .pidfd = -1 };
}

/* Two entries of the book are about the host "x". */
static void book_open(struct book_world *b)
{
	*b = (struct book_world){ .book = BUF_INIT };
	add_host(b, "x", (const int[]){ 1, 4 }, 2);
	add_host(b, "y", (const int[]){ 0, 2 }, 2);
	add_host(b, "x", (const int[]){ 3 }, 1);
	forget(b);
}

static int book_read(struct book_world *b, size_t bytes, struct err *e)
{
	/* an own block, so that a read beyond it is detected */
	char *copy = malloc(bytes ? bytes : 1);
	memcpy(copy, b->book.data, bytes);
	forget(b);
	int rc = comm_book_read(&b->w, copy, bytes, b->cards, e);
	for (int r = 0; r < BOOK_RANKS && rc == 0; r++)
		assert_true(strlen(b->peers[r].host) < 260 && strlen(b->peers[r].address) < 80);
	free(copy);
	return rc;
}

static void a_book_says_how_to_reach_each_rank(void **state)
{
	(void)state;
	struct book_world b;
	struct err e = ERR_INIT;
	book_open(&b);
	assert_int_equal(comm_book_read(&b.w, b.book.data, b.book.len, b.cards, &e), 0);
	for (int r = 0; r < BOOK_RANKS; r++) {
		char address[32];
		snprintf(address, sizeof address, "127.0.0.1:%d", 5000 + r);
		assert_string_equal(b.peers[r].address, address);
		assert_int_equal(b.peers[r].pid, 100 + r);
		assert_int_equal(b.peers[r].secret[31], r);
		assert_int_equal(b.cards[r].wakeup, 10 + r);
		assert_string_equal(b.peers[r].host, r == 0 || r == 2 ? "y" : "x");
		assert_int_equal(b.peers[r].host_id, r == 0 || r == 2);
	}
	assert_int_equal(b.cards[4].memfd, 41);
	assert_int_equal(b.cards[3].memfd, 43);
	buf_fini(&b.book);
}

static void a_book_that_is_cut_or_changed_is_refused(void **state)
{
	(void)state;
	struct book_world b;
	struct err e = ERR_INIT;
	book_open(&b);
	for (size_t n = 0; n < b.book.len; n++)
		assert_int_equal(book_read(&b, n, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	struct book_host *h = (void *)b.book.data;
	struct book_rank *first = (void *)(h + 1);
	first->rank = 4; /* twice */
	assert_int_equal(book_read(&b, b.book.len, &e), -1);
	first->rank = BOOK_RANKS;
	assert_int_equal(book_read(&b, b.book.len, &e), -1);
	first->rank = 1;
	memset(first->address, 'a', sizeof first->address);
	assert_int_equal(book_read(&b, b.book.len, &e), -1);
	first->address[1] = '\0';
	assert_int_equal(book_read(&b, b.book.len, &e), 0);
	h->ranks = INT32_MAX;
	assert_int_equal(book_read(&b, b.book.len, &e), -1);
	buf_fini(&b.book);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_fetches_the_cards_next_to_it),
		cmocka_unit_test(without_a_place_the_ranks_find_it_out),
		cmocka_unit_test(every_integrity_wires_up),
		cmocka_unit_test(a_card_that_is_missing_is_named),
		cmocka_unit_test(a_card_that_is_invalid_is_named),
		cmocka_unit_test(a_rank_that_died_is_named),
		cmocka_unit_test(ranks_that_the_launcher_put_together_but_are_apart_are_named),
		cmocka_unit_test(an_impossible_place_is_refused),
		cmocka_unit_test(a_book_says_how_to_reach_each_rank),
		cmocka_unit_test(a_book_that_is_cut_or_changed_is_refused),
	};
	return cmocka_run_group_tests_name("wire-up", tests, NULL, NULL);
}
