/*
 * ranks — several processes that open one world, for tests.
 *
 * ranks_start forks them. Each opens the world over a board in shared memory, runs the test's
 * function, closes the world and exits with the function's result. A rank cannot hang the test: a
 * fence fails if another rank has failed or does not arrive, and an alarm ends the process.
 */
#ifndef MUSTER_TESTS_RANKS_H
#define MUSTER_TESTS_RANKS_H

#include "base/clock.h"
#include "libcomm/comm.h"
#include "tests/unit/patience.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	RANKS_MAX = 80,
	RANKS_FENCE_S = 180, /* ranks that work arrive at a fence within a small part of this */
};

struct ranks {
	int n;
	const char *backend; /* NULL: auto */
	const char *hosts;   /* one letter per rank; NULL: one host */
	bool placed;         /* each rank is told which ranks are next to it */
	double timeout_s;
	const char *address;   /* NULL: loopback */
	const char *interface; /* NULL: by address */
	/* moves the rank to its host; NULL: this one */
	int (*enter)(const struct ranks *r, int rank);
	const char *algorithm, *dump_dir; /* NULL: none */
	int sockets;                      /* 0: the default */
	enum comm_integrity integrity;
	int (*fn)(struct comm *world, void *arg);
	void (*joining)(void *arg, struct comm *world); /* as in comm_options; NULL: none */
	void *arg;
	pid_t pid[RANKS_MAX];
	struct board *board;
};

struct board { /* the bootstrap */
	_Atomic uint32_t arrived, passed;
	_Atomic uint32_t fences[RANKS_MAX]; /* at which each rank has arrived */
	_Atomic int failed;                 /* a rank that failed, counted from 1; 0: none */
	_Atomic int gets[RANKS_MAX];        /* of each rank */
	char value[RANKS_MAX][1024];        /* "": it is missing */
};

struct ranks_boot {
	struct ranks *r;
	int rank;
	uint32_t fences;
};

static inline void *ranks_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static inline int ranks_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct ranks_boot *b = arg;
	(void)key;
	(void)e;
	snprintf(b->r->board->value[b->rank], sizeof b->r->board->value[0], "%s", value);
	return 0;
}

/* A rank that failed calls this, so that no other rank waits for it at a fence. */
static inline void ranks_fail(struct board *board, int rank)
{
	int none = 0;
	atomic_compare_exchange_strong(&board->failed, &none, rank + 1);
	syscall(SYS_futex, &board->passed, FUTEX_WAKE, RANKS_MAX, NULL, NULL, 0);
}

/* The first rank that has not arrived at the fence. */
static inline int ranks_missing(const struct ranks *r, uint32_t fence)
{
	int rank = 0;
	while (rank < r->n - 1 && atomic_load(&r->board->fences[rank]) >= fence)
		rank++;
	return rank;
}

static inline int ranks_fence(void *arg, struct err *e)
{
	struct ranks_boot *b = arg;
	struct board *board = b->r->board;
	const struct timespec second = { .tv_sec = 1 };
	int64_t begin = clock_ns();
	atomic_store(&board->fences[b->rank], ++b->fences);
	if (atomic_fetch_add(&board->arrived, 1) + 1 == b->fences * (uint32_t)b->r->n) {
		atomic_store(&board->passed, b->fences);
		syscall(SYS_futex, &board->passed, FUTEX_WAKE, RANKS_MAX, NULL, NULL, 0);
	}
	while (atomic_load(&board->passed) < b->fences) {
		int failed = atomic_load(&board->failed);
		if (failed)
			return err_set(e, ERR_PEER, "rank %d failed before fence %u", failed - 1,
				       b->fences);
		if (clock_ns() - begin > RANKS_FENCE_S * INT64_C(1000000000))
			return err_set(e, ERR_TIMEOUT, "rank %d did not reach fence %u within %d s",
				       ranks_missing(b->r, b->fences), b->fences, RANKS_FENCE_S);
		syscall(SYS_futex, &board->passed, FUTEX_WAIT, b->fences - 1, &second, NULL, 0);
	}
	return 0;
}

static inline int ranks_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct ranks_boot *b = arg;
	atomic_fetch_add(&b->r->board->gets[b->rank], 1);
	if (!*b->r->board->value[rank])
		return err_set(e, ERR_NOTFOUND, "did not publish %s", key);
	*value = strdup(b->r->board->value[rank]);
	return *value ? 0 : err_set(e, ERR_NOMEM, "no memory");
}

/* Whether two ranks share a host; with the backend tcp none do. */
static inline bool ranks_together(const struct ranks *r, int a, int b)
{
	bool apart = r->backend && !strcmp(r->backend, "tcp");
	return a == b || (!apart && (!r->hosts || r->hosts[a] == r->hosts[b]));
}

/* The first rank of the host of `rank`. */
static inline int ranks_leader(const struct ranks *r, int rank)
{
	int leader = 0;
	while (!ranks_together(r, leader, rank))
		leader++;
	return leader;
}

/* The place of a rank, computed in another way than libcomm and the supervisor do. */
static inline void ranks_place(const struct ranks *r, int rank, int here[RANKS_MAX],
			       struct comm_place *p)
{
	int leaders[RANKS_MAX], hosts = 0, mine = 0;
	*p = (struct comm_place){ .leader = ranks_leader(r, rank), .here = here };
	for (int i = 0; i < r->n; i++)
		if (ranks_leader(r, i) == i) {
			mine = i == rank ? hosts : mine;
			leaders[hosts++] = i;
		}
	for (int i = 0; i < r->n && p->leader == rank; i++)
		if (ranks_together(r, i, rank))
			here[p->n_here++] = i;
	for (int i = 0; i < hosts && p->leader == rank; i++) /* the parent comes first */
		if ((mine > 0 && i == (mine - 1) / 2) || (i > 0 && (i - 1) / 2 == mine))
			p->near[p->n_near++] = leaders[i];
	p->has_parent = p->leader == rank && mine > 0;
}

static inline int ranks_open(struct ranks *r, int rank, struct comm **world, struct err *e)
{
	struct ranks_boot b = { .r = r, .rank = rank };
	struct comm_place place;
	int here[RANKS_MAX];
	ranks_place(r, rank, here, &place);
	struct comm_bootstrap boot = {
		rank, r->n, ranks_put, ranks_fence, ranks_get, &b, r->placed ? &place : NULL
	};
	char host[8] = "host-a";
	if (r->hosts)
		host[5] = r->hosts[rank];
	struct comm_options opt = { .host = host,
				    .interface = r->interface ? r->interface : "",
				    .address_hint = r->address,
				    .timeout_s = r->timeout_s,
				    .backend = r->backend,
				    .algorithm = r->algorithm,
				    .sockets = r->sockets,
				    .integrity = r->integrity,
				    .dump_dir = r->dump_dir,
				    .joining = r->joining,
				    .joining_arg = r->arg };
	return comm_open(&boot, &opt, world, e);
}

static inline int ranks_child(struct ranks *r, int rank)
{
	struct err e = ERR_INIT;
	struct comm *world;
	alarm(PATIENCE_S);
	if (r->enter && r->enter(r, rank) < 0) {
		fprintf(stderr, "rank %d cannot enter its host\n", rank);
		ranks_fail(r->board, rank);
		return 101;
	}
	if (ranks_open(r, rank, &world, &e) < 0) {
		fprintf(stderr, "rank %d: %s\n", rank, e.text);
		ranks_fail(r->board, rank);
		return 100;
	}
	int rc = r->fn(world, r->arg);
	comm_close(world);
	return rc;
}

/* Starts the ranks. A test may kill r->pid[…]. */
static inline void ranks_start(struct ranks *r)
{
	fflush(NULL);
	r->board = ranks_shared(sizeof *r->board);
	for (int i = 0; r->board && i < r->n; i++) {
		r->pid[i] = fork();
		if (r->pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* it ends with the test's process */
			_exit(ranks_child(r, i));
		}
	}
}

/* Returns how a rank ended: its function's result, or -signal. */
static inline int ranks_end(struct ranks *r, int rank)
{
	int status = 0;
	if (waitpid(r->pid[rank], &status, 0) < 0)
		return -1000;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Waits for all ranks; returns how many did not return 0. */
static inline int ranks_finish(struct ranks *r)
{
	int bad = 0;
	for (int i = 0; i < r->n; i++) {
		int rc = ranks_end(r, i);
		if (rc)
			fprintf(stderr, "rank %d of %d (%s, hosts %s) ended with %d\n", i, r->n,
				r->backend ? r->backend : "auto", r->hosts ? r->hosts : "one", rc);
		bad += rc != 0;
	}
	munmap(r->board, sizeof *r->board);
	return bad;
}

static inline int ranks_run(struct ranks *r)
{
	ranks_start(r);
	return ranks_finish(r);
}

/* Call in a rank: reports what failed and where. */
#define RANK_CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
			return 1; \
		} \
	} while (0)

#endif
