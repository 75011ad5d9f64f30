#include "tests/unit/agent/world.h"

#include "tests/unit/patience.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEYS = 8, KEY_BYTES = 64, VALUE_BYTES = 2048 };

int world_patience = PATIENCE_S;

struct board {
	pthread_barrier_t fence;
	struct note {
		char key[KEY_BYTES], value[VALUE_BYTES];
	} notes[WORLD_MAX][KEYS];
};

struct seat {
	struct board *board;
	int rank;
};

void *world_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

void world_unshared(void *p, size_t bytes)
{
	munmap(p, bytes);
}

static int put_value(void *arg, const char *key, const char *value, struct err *e)
{
	struct seat *s = arg;
	for (int i = 0; i < KEYS; i++) {
		struct note *n = &s->board->notes[s->rank][i];
		if (n->key[0] && strcmp(n->key, key))
			continue;
		if (snprintf(n->key, sizeof n->key, "%s", key) >= KEY_BYTES ||
		    snprintf(n->value, sizeof n->value, "%s", value) >= VALUE_BYTES)
			break;
		return 0;
	}
	return err_set(e, ERR_INTERNAL, "board: no room for %s", key);
}

static int fence(void *arg, struct err *e)
{
	(void)e;
	pthread_barrier_wait(&((struct seat *)arg)->board->fence);
	return 0;
}

static int get_value(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct seat *s = arg;
	for (int i = 0; i < KEYS; i++)
		if (!strcmp(s->board->notes[rank][i].key, key))
			return (*value = strdup(s->board->notes[rank][i].value)) ? 0 : -1;
	return err_set(e, ERR_NOTFOUND, "board: rank %d put_value no %s", rank, key);
}

static struct board *board_open(int n)
{
	struct board *board = world_shared(sizeof *board);
	pthread_barrierattr_t shared;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&board->fence, &shared, (unsigned)n);
	return board;
}

static int join(struct board *board, int rank, int n, struct comm **world, struct err *e)
{
	struct seat seat = { board, rank };
	struct comm_bootstrap boot = { .rank = rank,
				       .size = n,
				       .put = put_value,
				       .fence = fence,
				       .get = get_value,
				       .arg = &seat };
	struct comm_options opt = {
		.host = "here", .interface = "", .timeout_s = world_patience, .backend = "auto"
	};
	return comm_open(&boot, &opt, world, e);
}

struct comm *world_alone(void)
{
	struct board *board = board_open(1);
	struct comm *world;
	if (join(board, 0, 1, &world, NULL))
		abort();
	world_unshared(board, sizeof *board);
	return world;
}

static int be_rank(struct board *board, int rank, int n, world_fn *fn, void *arg)
{
	struct err e = ERR_INIT;
	struct comm *world;
	int rc = join(board, rank, n, &world, &e);

	if (!rc) {
		rc = fn(world, arg, &e);
		comm_close(world);
	}
	if (rc)
		fprintf(stderr, "rank %d of %d: %s\n", rank, n, e.text);
	return rc;
}

/* The whole life of the child. It never returns into the test. */
static void child(struct board *board, int rank, int n, world_fn *fn, void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm((unsigned)world_patience);
	int rc = be_rank(board, rank, n, fn, arg);
	fflush(NULL);
	_exit(rc < 0 ? 1 : rc);
}

static struct board *start(pid_t *pids, int n, world_fn *fn, void *arg)
{
	if (n > WORLD_MAX)
		abort();
	struct board *board = board_open(n);
	fflush(NULL);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			abort();
		if (pids[i] == 0)
			child(board, i, n, fn, arg);
	}
	return board;
}

/* A rank that ended by itself has already printed why. */
static void tell_signal(int rank, int n, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		fprintf(stderr, "rank %d of %d: not done after %d seconds\n", rank, n,
			world_patience);
	else if (WIFSIGNALED(status))
		fprintf(stderr, "rank %d of %d: ended by signal %d (%s)\n", rank, n,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* The first rank that fails ends the others. */
static int gather(pid_t *pids, int n)
{
	int rc = 0;
	for (int left = n; left > 0; left--) {
		int status, rank = 0;
		pid_t pid = wait(&status);
		while (rank < n && pids[rank] != pid)
			rank++;
		if (rank < n)
			pids[rank] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (!rc)
			tell_signal(rank, n, status);
		rc = -1;
		for (int i = 0; i < n; i++)
			if (pids[i] > 0)
				kill(pids[i], SIGKILL);
	}
	return rc;
}

int world_run(int n, world_fn *fn, void *arg)
{
	pid_t pids[WORLD_MAX] = { 0 };
	struct board *board = start(pids, n, fn, arg);
	int rc = gather(pids, n);
	world_unshared(board, sizeof *board);
	return rc;
}

void world_outcomes(int n, world_fn *fn, void *arg, int *outcomes)
{
	pid_t pids[WORLD_MAX] = { 0 };
	struct board *board = start(pids, n, fn, arg);
	for (int i = 0; i < n; i++) {
		int status = 0;
		waitpid(pids[i], &status, 0);
		outcomes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	}
	world_unshared(board, sizeof *board);
}
