/*
 * world_fixture — ranks as forked processes, wired up over a piece of shared memory.
 */
#ifndef MUSTER_TESTS_WORLD_FIXTURE_H
#define MUSTER_TESTS_WORLD_FIXTURE_H

#include "libcomm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD_MOST = 8, WORLD_ENTRIES = 256 };

struct world_board {
	pthread_barrier_t barrier;
	pthread_mutex_t lock;
	int n;
	struct {
		int rank;
		char key[128], value[512];
	} entries[WORLD_ENTRIES];
};

struct world_seat {
	struct world_board *board;
	int rank;
};

static inline int world_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct world_seat *s = arg;
	pthread_mutex_lock(&s->board->lock);
	int i = s->board->n++;
	pthread_mutex_unlock(&s->board->lock);
	if (i >= WORLD_ENTRIES || strlen(value) >= sizeof s->board->entries[i].value)
		return err_set(e, ERR_INTERNAL, "the test's board is too small");
	s->board->entries[i].rank = s->rank;
	snprintf(s->board->entries[i].key, sizeof s->board->entries[i].key, "%s", key);
	snprintf(s->board->entries[i].value, sizeof s->board->entries[i].value, "%s", value);
	return 0;
}

static inline int world_fence(void *arg, struct err *e)
{
	struct world_seat *s = arg;
	(void)e;
	pthread_barrier_wait(&s->board->barrier);
	return 0;
}

static inline int world_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct world_seat *s = arg;
	for (int i = s->board->n - 1; i >= 0; i--)
		if (s->board->entries[i].rank == rank && !strcmp(s->board->entries[i].key, key)) {
			*value = strdup(s->board->entries[i].value);
			return *value ? 0 : err_set(e, ERR_NOMEM, "no memory");
		}
	return err_set(e, ERR_NOTFOUND, "rank %d put no %s", rank, key);
}

static inline struct world_board *world_board(int size)
{
	struct world_board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t ba;
	pthread_mutexattr_t ma;
	pthread_barrierattr_init(&ba);
	pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&b->barrier, &ba, (unsigned)size);
	pthread_mutex_init(&b->lock, &ma);
	return b;
}

/* Opens this rank's end; exits with 99 on failure, as it runs in children and in the only process of a world of one. */
static inline struct comm *world_join(struct world_board *board, int rank, int size)
{
	struct err e = ERR_INIT;
	struct comm *world;
	struct world_seat seat = { board, rank };
	struct comm_bootstrap boot = { .rank = rank, .size = size, .put = world_put, .fence = world_fence,
				       .get = world_get, .arg = &seat };
	struct comm_options opt = { .host = "here", .interface = "", .timeout_s = 20, .backend = "auto" };
	if (comm_open(&boot, &opt, &world, &e)) {
		fprintf(stderr, "rank %d: %s\n", rank, e.text);
		_exit(99);
	}
	return world;
}

static inline struct comm *world_of_one(void)
{
	struct world_board *b = world_board(1);
	struct comm *world = world_join(b, 0, 1);
	munmap(b, sizeof *b);
	return world;
}

/* Runs body(world, rank, arg) as `size` processes; status[rank] is the result, -1 when a signal ended it. */
static inline void world_run(int size, int (*body)(struct comm *world, int rank, void *arg), void *arg, int *status)
{
	pid_t pids[WORLD_MOST];
	struct world_board *b = world_board(size);
	fflush(NULL);
	for (int r = 0; r < size; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			alarm(60);
			struct comm *world = world_join(b, r, size);
			int rc = body(world, r, arg);
			comm_close(world);
			_exit(rc);
		}
	}
	for (int r = 0; r < size; r++) {
		int ws = 0;
		waitpid(pids[r], &ws, 0);
		status[r] = WIFEXITED(ws) ? WEXITSTATUS(ws) : -1;
	}
	munmap(b, sizeof *b);
}

#endif
