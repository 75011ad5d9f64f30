/*
 * state — what the run does now, for state.json and for consoles (launcher/rundir/state.h).
 *
 * The file is replaced whenever the state changes, every STATE_S seconds, and at the end. A file that
 * cannot be written, because the disk is full, is tried again with the next one; people are told
 * once.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STATE_H
#define MUSTER_LAUNCHER_SUPERVISE_STATE_H

#include "base/process_id.h"
#include "launcher/rundir/state.h"

#include <limits.h>

enum { STATE_S = 5, STATE_SPOTS = 32 /* ranks and nodes that stand out, at most */ };

struct supervisor;
struct msg_metrics;
struct msg_ckpt;

struct state_view {
	enum rundir_state_id id;
	double opened, since; /* in seconds since 1970; 0: nothing was written yet */
	double next;          /* time of the next file */
	bool failed;          /* the last file could not be written */
	struct process_id process;
	char host[256], folder[PATH_MAX];
	double grad_norm, lr, tokens_s; /* of the last step; tokens_s: smoothed */
	int64_t eval_step;
	struct rundir_state_ckpt ckpt; /* the last one, without its path */
};

void supervise_state_note_metrics(struct supervisor *s, const struct msg_metrics *m);
void supervise_state_note_eval(struct supervisor *s, int64_t step);
void supervise_state_note_ckpt(struct supervisor *s, const struct msg_ckpt *m);

/* Several times per second. */
void supervise_state_tick(struct supervisor *s);
/* Writes the file now. */
void supervise_state_write(struct supervisor *s);

/* A new object; NULL: no memory. */
json_t *supervise_state_json(struct supervisor *s);
/* The list of these ranks, of struct rundir_state_rank. */
json_t *supervise_state_ranks_json(const struct supervisor *s, int first, int count);

/* spots.c: ranks and nodes that stand out, a list of struct rundir_state_spot. NULL: no memory. */
json_t *supervise_spots_json(const struct supervisor *s);

#endif
