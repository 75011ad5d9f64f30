/*
 * restart — decides whether and when to start again after a loss. It is pure arithmetic.
 *
 * A generation made progress if it committed a checkpoint of a later step than any before, or
 * finished a step that no generation since `muster run` started had reached. A restart whose
 * generation made no progress was futile. The first restart is immediate, and so is each restart
 * after progress. After k futile restarts in a row the wait is backoff · 2^(k-1) seconds, at most
 * RESTART_WAIT_MAX.
 *
 * There is no other restart
 *   - after max_restarts in total;
 *   - after max_futile futile ones in a row, such as a crash that returns at the same step;
 *   - if a rank fails before its first step for a reason that a restart does not fix (a wrong job,
 *     damaged data, something not built). In the first generation one failure is enough. Later it
 *     takes two in a row, because what worked before may have been disturbed.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_RESTART_H
#define MUSTER_LAUNCHER_SUPERVISE_RESTART_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { RESTART_WAIT_MAX = 60 };

struct restart {
	int64_t max_restarts, max_futile;
	double backoff;
	/* so far: */
	int64_t restarts, futile;
	int64_t best_step, best_ckpt; /* highest seen; -1: none */
	bool progress;                /* this generation has made progress */
	bool stepped;                 /* this generation has finished a step */
	/* why the last generation failed before its first step; ERR_NONE: it did not */
	enum err_code early;
};

void supervise_restart_init(struct restart *r, int64_t max_restarts, int64_t max_futile,
			    double backoff);
/* Whether a restart may fix a failure with this code; the table is in restart.c. */
bool supervise_restart_helps(enum err_code code);
/* This generation has finished a step, or committed a checkpoint of a step. */
void supervise_restart_step(struct restart *r, int64_t step);
void supervise_restart_ckpt(struct restart *r, int64_t step);
/* The generation is lost because of `code`. True: another one starts after *wait seconds, and is
 * counted. False: none may start, and `e` holds the reason: ERR_ABORTED if a limit is reached,
 * `code` itself if a restart does not help. */
bool supervise_restart_decide(struct restart *r, enum err_code code, double *wait, struct err *e);

#endif
