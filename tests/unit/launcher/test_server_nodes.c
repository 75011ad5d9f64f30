/* The PMIx servers of the nodes of one namespace, with real clients. The test stands for the owners
 * of all nodes: it exchanges what their ranks put. */
#include "launcher/pmix/server.h"
#include "tests/unit/patience.h"
#include "tests/unit/tmpdir.h"

#include <poll.h>
#include <pmix.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* LeakSanitizer asks this function. libpmix frees some of its memory only with the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libpmix.so";
}

enum { NODES = 3, WORLD = 5, ROUNDS = 2, WORD = 32 };

/* Ranks of a node need not be neighbours. */
static const int node_of[WORLD] = { 0, 1, 0, 2, 1 };

static struct {
	char dir[256];
	struct local_server *servers[NODES];
	pid_t pids[WORLD];
} t;

static void word_of(pmix_rank_t rank, int round, char out[WORD])
{
	snprintf(out, WORD, "rank %u in fence %d", rank, round);
}

/* Puts a word, and reads those of all ranks after the fence. Returns an exit status. */
static int exchange_words(const pmix_proc_t *me, int round)
{
	char key[WORD], word[WORD];
	bool yes = true;
	pmix_info_t info;
	pmix_value_t mine = { .type = PMIX_STRING };
	pmix_proc_t all, from;
	snprintf(key, sizeof key, "muster.%d", round);
	word_of(me->rank, round, word);
	mine.data.string = word;
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Put(PMIX_GLOBAL, key, &mine) || PMIx_Commit() || PMIx_Fence(&all, 1, &info, 1))
		return 3;
	for (pmix_rank_t r = 0; r < WORLD; r++) {
		pmix_value_t *v = NULL;
		PMIX_LOAD_PROCID(&from, me->nspace, r);
		if (PMIx_Get(&from, key, NULL, 0, &v))
			return 4;
		word_of(r, round, word);
		if (v->type != PMIX_STRING || strcmp(v->data.string, word))
			return 5;
		PMIX_VALUE_RELEASE(v);
	}
	return 0;
}

static int world_of(const pmix_proc_t *me)
{
	pmix_value_t *v = NULL;
	pmix_proc_t all;
	PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v))
		return -1;
	int world = (int)v->data.uint32;
	PMIX_VALUE_RELEASE(v);
	return world;
}

static int be_client(void)
{
	pmix_proc_t me;
	int rc = 0;
	if (PMIx_Init(&me, NULL, 0))
		return 1;
	if (world_of(&me) != WORLD)
		return 2;
	for (int round = 0; !rc && round < ROUNDS; round++)
		rc = exchange_words(&me, round);
	return PMIx_Finalize(NULL, 0) ? 6 : rc;
}

static void start_client(int rank, char *const *env)
{
	t.pids[rank] = fork();
	if (t.pids[rank])
		return;
	for (; *env; env++)
		putenv(*env);
	alarm(PATIENCE_S);
	execl("/proc/self/exe", "client", "client", NULL);
	_exit(127);
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	if (!tmpdir_make(t.dir, sizeof t.dir))
		return -1;
	for (int i = 0; i < NODES; i++) {
		char dir[300];
		struct err e = ERR_INIT;
		const struct local_group g = {
			.nspace = "muster-nodes", .world = WORLD, .node_of = node_of, .node = i
		};
		snprintf(dir, sizeof dir, "%s/%d", t.dir, i);
		if (local_server_open(&g, dir, STDERR_FILENO, &t.servers[i], &e)) {
			fprintf(stderr, "%s\n", e.text);
			return -1;
		}
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int r = 0; r < WORLD; r++)
		if (t.pids[r]) {
			kill(t.pids[r], SIGKILL);
			waitpid(t.pids[r], NULL, 0);
		}
	for (int i = 0; i < NODES; i++)
		local_server_close(t.servers[i]);
	return rmdir(t.dir); /* nothing is left */
}

static void receive_put(int node, struct buf *put)
{
	struct err e = ERR_INIT;
	int got;
	while (!(got = local_server_receive(t.servers[node], put, &e))) {
		struct pollfd p = { local_server_fd(t.servers[node]), POLLIN, 0 };
		assert_int_equal(poll(&p, 1, 60000), 1);
	}
	assert_int_equal(got, 1);
}

/* The nodes' data comes in another order than that of the nodes. */
static void exchange_round(void)
{
	struct buf put = BUF_INIT, all = BUF_INIT;
	struct err e = ERR_INIT;
	for (int i = NODES - 1; i >= 0; i--) {
		receive_put(i, &put);
		assert_true(put.len > 0);
		buf_add(&all, put.data, put.len);
	}
	for (int i = 0; i < NODES; i++)
		assert_int_equal(local_server_answer(t.servers[i], &all, &e), 0);
	buf_fini(&put);
	buf_fini(&all);
}

static void start_clients(void)
{
	int place[NODES] = { 0 };
	for (int r = 0; r < WORLD; r++)
		start_client(r, local_server_env(t.servers[node_of[r]], place[node_of[r]]++));
}

static void ranks_of_all_nodes_read_what_each_has_put(void **state)
{
	(void)state;
	start_clients();
	for (int round = 0; round < ROUNDS; round++)
		exchange_round();
	for (int r = 0; r < WORLD; r++) {
		int status;
		assert_int_equal(waitpid(t.pids[r], &status, 0), t.pids[r]);
		t.pids[r] = 0;
		assert_int_equal(status, 0);
	}
}

static void the_end_of_a_server_is_an_error(void **state)
{
	(void)state;
	struct buf put = BUF_INIT;
	struct err e = ERR_INIT;
	char name[64];
	pid_t pid = -1;
	/* The server of this node is the only child of that name whose owner is this process. */
	snprintf(name, sizeof name, "pgrep -o -P %d muster-pmix", (int)getpid());
	FILE *found = popen(name, "r");
	assert_non_null(found);
	assert_int_equal(fscanf(found, "%d", &pid), 1);
	pclose(found);
	assert_int_equal(kill(pid, SIGKILL), 0);
	int got, ended = 0;
	for (int i = 0; i < NODES && !ended; i++) {
		struct pollfd p = { local_server_fd(t.servers[i]), POLLIN, 0 };
		if (poll(&p, 1, i ? 0 : 20000) == 1) {
			got = local_server_receive(t.servers[i], &put, &e);
			assert_int_equal(got, -1);
			assert_int_equal(e.code, ERR_PEER);
			ended++;
		}
	}
	assert_int_equal(ended, 1);
	buf_fini(&put);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "client"))
		return be_client();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ranks_of_all_nodes_read_what_each_has_put, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_end_of_a_server_is_an_error, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
