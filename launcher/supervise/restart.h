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
 *   - for a fault that a restart does not fix (RETRY_NEVER in faults.h);
 *   - for a fault that a restart fixes only if something was disturbed (RETRY_ONCE). If the first
 *     generation has it before its first step, once is enough. Later it takes two generations in a
 *     row, the second of which ended before its first step.
 *
 * A restart counts when it starts, because the decision that one may start can still lead to a wait
 * for nodes, to a requeue or to the end of the run.
 *
 * An outage (RETRY_WAIT) is waited out. These restarts do not count, and they are futile neither.
 * Their waits grow from 1 s to OUTAGE_WAIT_MAX. The outage may last `patience` seconds, from the
 * first loss that it caused; a loss with another fault, or progress, ends it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_RESTART_H
#define MUSTER_LAUNCHER_SUPERVISE_RESTART_H

#include "base/err.h"
#include "launcher/supervise/faults.h"

#include <stdbool.h>
#include <stdint.h>

enum { RESTART_WAIT_MAX = 60, OUTAGE_WAIT_MAX = 15 };

struct restart_limits {
	int64_t max_restarts, max_futile;
	double backoff, patience; /* seconds */
};

struct restart {
	struct restart_limits limits;
	/* so far: */
	int64_t restarts, futile; /* started ones that count, and those in a row without progress */
	int64_t best_step, best_ckpt; /* highest seen; -1: none */
	bool progress;                /* this generation has made progress */
	bool stepped;                 /* this generation has finished a step */
	bool counts;                  /* the next start is a restart that counts */
	const struct fault *last;     /* of the last generation; NULL: none was lost */
	int64_t outages;              /* losses in a row that an outage caused */
	double outage_at;             /* time of the first one */
};

void supervise_restart_init(struct restart *r, const struct restart_limits *limits);
/* This generation has finished a step, or committed a checkpoint of a step. */
void supervise_restart_step(struct restart *r, int64_t step);
void supervise_restart_ckpt(struct restart *r, int64_t step);
/* This generation has made progress that neither steps nor checkpoints show. */
void supervise_restart_progress(struct restart *r);
/* The generation is lost by this fault at the time `now`, in seconds. elsewhere: its node will not be
 * used again, so the fault does not return. True: another one may start after
 * *wait seconds. False: none may start, and `e`
 * holds the reason: ERR_ABORTED if a limit is reached, ERR_TIMEOUT if an outage lasted too long,
 * ERR_UNSUPPORTED if a restart does not help. */
bool supervise_restart_decide(struct restart *r, const struct fault *fault, bool elsewhere,
			      double now, double *wait, struct err *e);
/* A generation starts that supervise_restart_decide() permits, or that follows without a loss.
 * Returns whether it counts as a restart. */
bool supervise_restart_start(struct restart *r);
/* Another generation follows without a loss. */
void supervise_restart_go_on(struct restart *r);

#endif
