/*
 * progress_comment — tells Slurm's users, and scripts that choose which job to preempt, what the end of
 * this job would cost now, and how it stands.
 *
 * After a checkpoint the comment of the job becomes, for example,
 *
 *     muster step=1200/5000 saved=2026-11-22T14:03:10 next=2026-11-22T14:13:05 stop_s=9 nodes=4
 *     eta=2026-11-22T16:55:00 goodput=0.97
 *
 * in one line:
 *
 *     step     of the checkpoint, and the last one of the run
 *     saved    when it was committed: a job that is killed loses the time since then on `nodes` nodes
 *     next     when the next checkpoint is expected: the next moment at which little is lost; absent
 *              after the last one
 *     stop_s   seconds that a stop with a checkpoint takes, for a grace time; a multiple of what was
 *              measured, as in stop.h
 *     eta      when the last step is expected to be done; absent after it
 *     goodput  the share of the time of all devices so far that counts (base/time_parts.h)
 *
 * Times are in the local time of this host. The comment is set at most once in COMMENT_S seconds, so
 * that many jobs do not load slurmctld. A comment of the user's own ([slurm] comment) stays.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_PROGRESS_COMMENT_H
#define MUSTER_LAUNCHER_SUPERVISE_PROGRESS_COMMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { COMMENT_S = 60, COMMENT_TEXT = 200 };

struct supervisor;
struct child;

struct progress_comment {
	struct child *child; /* that sets it; NULL: none runs */
	bool due;            /* a checkpoint was committed since it was set */
	bool warned;         /* that it cannot be set */
	double set;          /* when it was set last; 0: never */
	int64_t step;        /* of the last checkpoint */
	time_t saved;        /* when that was committed */
};

void supervise_comment_note_ckpt(struct supervisor *s, int64_t step);
void supervise_comment_tick(struct supervisor *s);
void supervise_comment_close(struct supervisor *s);

#endif
