/*
 * slow_checkpoints — names a folder of checkpoints that has become slow, or is too slow for the
 * run.
 *
 * A checkpoint is slow if
 *
 *     - it took more than SLOW_CKPT_FACTOR times the median of the earlier ones that were not slow, and
 *       SLOW_CKPT_LEAST_S more. There must be SLOW_CKPT_KNOWN earlier ones; or
 *     - training waited for it for SLOW_CKPT_SHARE of the time since the last one, and for
 *       SLOW_CKPT_LEAST_S, for the second time in a row: each checkpoint waits for the one before. The
 *       last checkpoint of a run may wait for one that was begun just before.
 *
 * The first slow one is printed and recorded, with what the nodes show about their disks
 * (evidence.h), and so is the first one that is not slow any more.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_SLOW_CHECKPOINTS_H
#define MUSTER_LAUNCHER_SUPERVISE_SLOW_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

enum { SLOW_CKPT_FACTOR = 3, SLOW_CKPT_LEAST_S = 2, SLOW_CKPT_KNOWN = 3, SLOW_CKPT_HISTORY = 15 };

#define SLOW_CKPT_SHARE 0.1

/* Of the whole run: the next generation writes to the same folder. */
struct slow_checkpoints {
	double seconds[SLOW_CKPT_HISTORY]; /* of the last ones that were not slow */
	int n;                             /* checkpoints that were not slow */
	int waits;                         /* checkpoints in a row for which training waited */
	bool slow;                         /* it was reported */
	uint32_t generation;               /* of the last one */
	double at;                         /* time of the last one */
};

struct supervisor;
struct msg_ckpt;

/* A checkpoint was committed. */
void supervise_slow_checkpoints_note(struct supervisor *s, const struct msg_ckpt *m);

#endif
