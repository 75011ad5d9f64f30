/* No rank waits for ever: ranks leave, cannot continue or are late at the worst moment. */
#include "tests/unit/libcomm/ranks.h"

#include "base/net.h"
#include "libcomm/shm/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

/* There are no time-outs here (timeout_s is 0): the alarm of ranks.h ends a rank that waits for
 * ever. */

struct stage { /* shared by the test and its ranks */
	_Atomic int done, go;
};

static struct stage *stage_new(void)
{
	struct stage *s = ranks_shared(sizeof *s);
	assert_non_null(s);
	return s;
}

static void wait_until(_Atomic int *word, int least)
{
	while (atomic_load(word) < least)
		usleep(1000);
}

/* --- A rank dies inside the barrier --- */

enum { DYING = 1 };

/* The rank arrives as comm_step_wait does, and dies before it looks for sleepers. At that moment,
 * either some ranks have not yet arrived, or all of them sleep and nobody wakes them. */
static int die_inside_a_step(struct comm *w, bool last)
{
	while (last && atomic_load(&w->segment.head->sleepers) + 1 != (uint32_t)w->size)
		usleep(1000);
	struct seg_cell *mine = step_own_cell(w);
	mine->sign = comm_op_sign(&(struct op){ .kind = OP_BARRIER }, w->seq + 1, w->size);
	atomic_store(&mine->step, w->step + 1);
	return kill(getpid(), SIGKILL);
}

static int pass_the_dying(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	if (comm_rank(w) == DYING)
		return die_inside_a_step(w, *(const bool *)arg);
	/* All ranks reached this barrier. */
	RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
	RANK_CHECK(comm_barrier(w, &e) < 0, "passed without the dead rank");
	RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "rank 1 (world rank 1"), "%s", e.text);
	return 0;
}

static void a_rank_that_dies_inside_a_barrier_blocks_nobody(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		bool last = i;
		struct ranks r = { .n = 3, .backend = "shm", .fn = pass_the_dying, .arg = &last };
		ranks_start(&r);
		for (int rank = 0; rank < r.n; rank++)
			assert_int_equal(ranks_end(&r, rank), rank == DYING ? -SIGKILL : 0);
		munmap(r.board, sizeof *r.board);
	}
}

/* --- A rank cannot go on --- */

static int split_without_descriptors(struct comm *w, void *arg)
{
	struct stage *s = arg;
	struct err e = ERR_INIT;
	struct comm *g;
	bool poor = comm_rank(w) == 1;
	int from[3] = { 0 }, to[3];
	/* This makes every connection. */
	RANK_CHECK(comm_all_to_all(w, from, to, 1, COMM_I32, &e) == 0, "%s", e.text);
	if (poor)
		RANK_CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, 3 }) == 0, "no limit");
	int rc = comm_split(w, 0, 0, "g", &g, &e);
	atomic_fetch_add(&s->done, 1);
	RANK_CHECK(rc < 0, "rank %d split", comm_rank(w));
	RANK_CHECK(e.code == (poor ? ERR_NOMEM : ERR_PEER), "%s: %s", err_word(e.code), e.text);
	RANK_CHECK(strstr(e.text, "split of group world into g"), "%s", e.text);
	/* the others learn the rank's own error, not that it left */
	wait_until(&s->done, comm_size(w));
	return 0;
}

static void a_rank_that_cannot_split_fails_the_others(void **state)
{
	(void)state;
	static const struct ranks kinds[] = { { .n = 3, .backend = "shm" },
					      { .n = 3, .backend = "tcp" },
					      { .n = 3, .hosts = "aab" } };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct stage *s = stage_new();
		struct ranks r = kinds[i];
		r.fn = split_without_descriptors;
		r.arg = s;
		assert_int_equal(ranks_run(&r), 0);
		munmap(s, sizeof *s);
	}
}

/* --- Many knock at the same moment --- */

enum { CROWD = 72, STRANGERS = 100 }; /* each more than the listener reads at a time */

/* The last rank sleeps while all others connect to it. */
static int meet_a_crowd(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	struct stage *s = arg;
	struct comm *g;
	int mine = comm_rank(w), last = comm_size(w) - 1, all[CROWD];
	RANK_CHECK(comm_split(w, 0, 0, "g", &g, &e) == 0, "%s", e.text);
	if (mine == last)
		raise(SIGSTOP);
	wait_until(&s->go, 1);
	RANK_CHECK(comm_gather(g, &mine, all, 1, COMM_I32, last, &e) == 0, "%s", e.text);
	for (int r = 0; mine == last && r <= last; r++)
		RANK_CHECK(all[r] == r, "rank %d gave %d", r, all[r]);
	return 0;
}

/* The number of connections that wait to be accepted at a port of the loopback address. */
static unsigned waiting_at(unsigned port)
{
	char line[256];
	unsigned local, state, waiting, found = 0;
	FILE *f = fopen("/proc/net/tcp", "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, " %*u: %*x:%x %*x:%*x %x %*x:%x", &local, &state, &waiting) == 3 &&
		    local == port && state == 0x0a) /* it is listening */
			found = waiting;
	fclose(f);
	return found;
}

/* This many ranks meet; then this many strangers connect to the last rank's port. */
static void meet_before_strangers(int ranks, int strangers)
{
	struct stage *s = stage_new();
	struct ranks r = { .n = ranks, .backend = "tcp", .fn = meet_a_crowd, .arg = s };
	char address[NET_ADDR_MAX];
	unsigned port;
	int status, fd[STRANGERS];
	ranks_start(&r);
	pid_t last = r.pid[ranks - 1];
	assert_int_equal(waitpid(last, &status, WUNTRACED), last);
	assert_true(WIFSTOPPED(status));
	atomic_store(&s->go, 1);
	/* the format that world.c writes */
	assert_int_equal(sscanf(r.board->value[ranks - 1], "%*d %*d %*d %*s %*s %79s", address), 1);
	assert_int_equal(sscanf(address, "%*[0-9.]:%u", &port), 1);
	while (waiting_at(port) < (unsigned)ranks - 1)
		usleep(1000);
	for (int i = 0; i < strangers; i++)
		assert_int_equal(net_connect(address, PATIENCE_S, &fd[i], NULL), 0);
	kill(last, SIGCONT);
	assert_int_equal(ranks_finish(&r), 0);
	for (int i = 0; i < strangers; i++)
		close(fd[i]);
	munmap(s, sizeof *s);
}

static void many_ranks_at_once_are_accepted(void **state)
{
	(void)state;
	meet_before_strangers(CROWD, 0);
}

static void ranks_crowded_out_by_strangers_try_again(void **state)
{
	(void)state;
	meet_before_strangers(3, STRANGERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_dies_inside_a_barrier_blocks_nobody),
		cmocka_unit_test(a_rank_that_cannot_split_fails_the_others),
		cmocka_unit_test(many_ranks_at_once_are_accepted),
		cmocka_unit_test(ranks_crowded_out_by_strangers_try_again),
	};
	return cmocka_run_group_tests_name("comm liveness", tests, NULL, NULL);
}
