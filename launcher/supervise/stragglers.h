/*
 * stragglers — names ranks that are slow, and ranks that stood still for a while.
 *
 * In a synchronous step all ranks wait for the slowest one, so the time of a step names nobody. The
 * agents report the seconds of their steps in which they waited for no other rank (message
 * progress). In windows of [health] slow_window seconds these are compared:
 *
 *     pace         seconds per step, the largest of
 *                  - those that the rank spent on its samples, forward and backward;
 *                  - those in which its process did not run at all;
 *                  - those in which it had no core, less the longest such time of its peers (of
 *                    those on other nodes, if there are any; 0 without peers). They count if they
 *                    are more than STRAGGLER_NO_CORE of the window, because on a host with more
 *                    busy processes than cores all ranks wait, some longer by chance. Ranks that
 *                    wait equally long hide each other.
 *                  The last two may fall into its waits for others, which soon wait for it
 *     reference    the lower median of the paces of its peers: the ranks of its pipeline stage on
 *                  nodes of its kind, itself among them. Without peers: its own median in its last
 *                  windows that were not slow
 *     slow         pace > slow_factor × reference, and what is above the reference is at least
 *                  STRAGGLER_SHARE of the window
 *
 * A rank that is slow in STRAGGLER_WINDOWS windows in a row is a straggler: it is printed and
 * recorded with its node, since when, and the likely reason, once; and again when it has been as
 * fast as the others for as many windows, or if another reason has been the strongest one for as
 * many windows. The reason comes from evidence.h. If several ranks of a node become stragglers in
 * one window, one line names the node with them. A rank whose agent was silent for [health] pause
 * seconds and came back (SIGSTOP, a paused virtual machine, swapping, a network that stood still)
 * is recorded, too.
 *
 * A straggler is evidence against its node, and so are PAUSES_SUSPECT pauses of its ranks
 * (suspects.h). What the run does about a straggler is decided in exclude.h.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STRAGGLERS_H
#define MUSTER_LAUNCHER_SUPERVISE_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	STRAGGLER_WINDOWS = 3,
	STRAGGLER_STEPS = 3,    /* the least number of steps of each rank in a window */
	STRAGGLER_HISTORY = 15, /* windows of a rank without peers */
	STRAGGLER_REASONS = 3, /* reports of another reason, from when it is slow until it is not */
	PAUSE_REPORT_S = 60,   /* from one report of a rank's pauses to the next */
	PAUSES_SUSPECT = 3     /* reports of a rank's pauses that make its node a suspect */
};

#define STRAGGLER_SHARE 0.1
/* The part of a window from which the time without a core, beyond that of the peers, counts. */
#define STRAGGLER_NO_CORE 0.3

/* What a rank has reported: sums since its agent started. */
struct pace_sums {
	int64_t done;   /* steps */
	double own;     /* seconds of them, without waits for others */
	double delay;   /* seconds in which it had no core */
	double stalled; /* seconds in which its process did not run at all */
};

struct pace {
	struct pace_sums now, begin; /* begin: of the window */
	int rank;
	int group;        /* ranks of one group are peers */
	double delay;     /* seconds of the last window in which it had no core */
	double pace;      /* seconds per step, of the last window */
	bool alone;       /* it has no peers */
	double reference; /* the pace that it should have; 0: unknown */
	double history[STRAGGLER_HISTORY];
	int windows;       /* so far */
	int slow, fast;    /* windows in a row */
	bool straggler;    /* it is reported as one */
	double since;      /* time at which its slow windows began */
	bool news;         /* it became a straggler in this window, or is none any more */
	char reason[32];   /* the kind of the cause that was reported last; "": none was found */
	char other[32];    /* another kind, which explains more now … */
	int others;        /* … for that many windows in a row */
	int reasons;       /* other reasons that were reported */
	double considered; /* time at which the run last considered to leave its node; 0: never */
	/* of warn.c: now.delay when it looked last, and what the rank had reported then */
	double waited;
	int64_t data_us, step_us;
	double data; /* the share of a step in which it waited for samples */
	int starved; /* reports in a row in which that was much */
	int above;   /* windows in a row in which it took longer than [warn] slow permits … */
	int64_t above_steps; /* … and the steps of these */
	double reported;     /* time of the last report of a pause */
	int pauses;          /* that were reported */
};

struct stragglers {
	int world;
	struct pace *ranks;  /* [world] */
	struct pace **order; /* [world]: room to sort the ranks (paces.c) */
	int *news;           /* [nodes]: ranks of the node that became stragglers in this window */
	double begun;        /* time of the window; 0: none */
};

struct supervisor;
struct msg_progress;

/* A generation has started: no rank has reported anything. */
void supervise_stragglers_reset(struct supervisor *s);
void supervise_stragglers_note(struct supervisor *s, int rank, const struct msg_progress *m);
/* A message came from the rank, after this many seconds of silence. */
void supervise_stragglers_note_silence(struct supervisor *s, int rank, double seconds);
void supervise_stragglers_tick(struct supervisor *s);
void supervise_stragglers_close(struct supervisor *s);

#endif
