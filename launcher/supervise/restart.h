/*
 * restart — whether and when to start again after a loss: pure arithmetic.
 *
 * A generation made progress when it committed a checkpoint of a later step
 * than any before, or trained a step that no generation of this launcher had
 * reached. A restart whose generation made none was futile. The first restart
 * is at once, and so is each one after progress; after k futile restarts in a
 * row the wait is backoff · 2^(k-1) seconds, RESTART_WAIT_MAX at most. It
 * ends after max_restarts in all, after max_futile futile ones in a row (a
 * crash that comes back at the same step), and when a rank fails before its
 * first step for a reason that starting again cannot mend (a wrong job, damaged
 * data, something not built): at once in the first generation, later when it
 * comes twice in a row, as what worked before may have been disturbed.
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
	/* what happened so far */
	int64_t restarts, futile;
	int64_t best_step, best_ckpt; /* highest seen; -1: none */
	bool progress;                /* of the generation under way */
	bool stepped;                 /* it finished a step */
	/* why the last generation failed before its first step; ERR_NONE */
	enum err_code early;
};

void supervise_restart_init(struct restart *r, int64_t max_restarts, int64_t max_futile,
			    double backoff);
/* Whether starting again may mend a failure with this code; the table is in restart.c. */
bool supervise_restart_mends(enum err_code code);
/* Steps done, of the generation under way. */
void supervise_restart_step(struct restart *r, int64_t step);
void supervise_restart_ckpt(struct restart *r, int64_t step);
/* The generation is lost because of `code`: true and *wait when another one may start (it is
 * counted), else false and why in `e`: ERR_ABORTED when tried enough, the code itself when trying
 * is no use. */
bool supervise_restart_decide(struct restart *r, enum err_code code, double *wait, struct err *e);

#endif
