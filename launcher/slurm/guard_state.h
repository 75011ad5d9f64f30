/*
 * guard_state — what a guard does next (launcher/slurm/guard.h). It does no I/O and reads no clock:
 * the caller reports what happens with the time, in seconds of any monotonic clock, and asks
 * slurm_guard_next() for the next action.
 *
 * While signs of life come, the guard waits. If the connection closes, or nothing comes for
 * `silent` seconds, it connects anew every `retry` seconds. After `grace` seconds without success
 * it asks Slurm's controller about the job every `ask` seconds, and decides:
 *
 *     no answer                             ask again: the controller may be away for long
 *     the job ends, has ended, or waits     leave
 *     the job has no batch script           leave: the person at the terminal decides
 *     the batch host does not answer, or    act, if it has not answered for `dead` seconds
 *     Slurm counts it as down
 *     the same, and the job has GPUs        act once Slurm counts the host as down, or after
 *                                           `down` seconds
 *     it answers, nobody listens there      ask again: the batch script still runs, and the job
 *                                           ends with it
 *     it answers, the supervisor is mute    act after `patience` seconds: the supervisor may be
 *                                           stopped (SIGSTOP)
 *
 * To act is to requeue the job if it may be requeued, otherwise to cancel it. The guard repeats
 * this until the controller confirms that the job no longer runs. If the controller refuses to
 * requeue it REFUSALS_MAX times, the guard cancels it.
 *
 * A sign of life at any time makes the guard wait again.
 *
 * Slurm 22.05.8 loses the GPUs of a job if one of the nodes that the job is being requeued from is
 * counted as down during that: the job then starts again without GPUs. Only the requeue of a job
 * with GPUs waits for SlurmdTimeout for this reason. A site whose SlurmdTimeout is 0 counts no node
 * as down, so the wait has a limit.
 */
#ifndef MUSTER_LAUNCHER_SLURM_GUARD_STATE_H
#define MUSTER_LAUNCHER_SLURM_GUARD_STATE_H

#include <stdbool.h>

struct guard_limits { /* seconds */
	double silent, retry, grace, ask, dead, patience, down;
};

/* silent: as the supervisor's limit for an agent. The sum of silent, grace, dead and some answers
 * of the controller is below 40 s, so that a job without GPUs is requeued within a minute. */
#define GUARD_LIMITS \
	{ \
		.silent = 15, .retry = 1, .grace = 5, .ask = 5, .dead = 5, .patience = 600, \
		.down = 3600 \
	}

enum guard_action {
	GUARD_WAIT,
	GUARD_CONNECT, /* close the connection, if there is one, and start another */
	GUARD_ASK,
	GUARD_REQUEUE,
	GUARD_CANCEL,
	GUARD_LEAVE
};

enum guard_line {
	GUARD_NO_LINE,
	GUARD_CONNECTING,
	GUARD_MUTE, /* the host has accepted the connection; the supervisor has said nothing yet */
	GUARD_ALIVE
};

/* What Slurm's controller and the batch host say. */
struct guard_answer {
	bool answered; /* the controller has answered; otherwise the rest is unknown */
	bool running;  /* the job runs: it neither ends nor waits */
	bool batch;    /* it has a batch script */
	bool may_requeue;
	bool gpus;         /* the job has requested GPUs, or another gres */
	bool host_answers; /* slurmd of the batch host accepts connections */
	bool host_down;    /* Slurm counts the batch host as down */
};

struct guard_state {
	struct guard_limits limits;
	bool requeue; /* [slurm] requeue */
	enum guard_line line;
	bool lost;    /* no sign of life since lost_at */
	double heard; /* time of the last sign of life; at first, of the start */
	double lost_at, next_connect, next_ask;
	double dead_since; /* the batch host has not answered since then; 0: it answers */
	int refusals;
	bool acting, acted, may_requeue, over;
	const char *why;   /* of the action or of leaving, for people; a literal */
	const char *waits; /* why it does not act yet, for people; NULL: it does not wait */
};

void slurm_guard_init(struct guard_state *g, const struct guard_limits *limits, bool requeue,
		      double now);
/* The next action. After GUARD_CONNECT one of the next three calls follows, after GUARD_ASK
 * slurm_guard_answered(), after GUARD_REQUEUE or GUARD_CANCEL slurm_guard_acted(). */
enum guard_action slurm_guard_next(struct guard_state *g, double now);

/* The batch host has accepted the connection. */
void slurm_guard_accepted(struct guard_state *g);
/* The supervisor has sent a message, which proves the secret. */
void slurm_guard_heard(struct guard_state *g, double now);
/* The connection was closed or refused, or could not be made. */
void slurm_guard_unlinked(struct guard_state *g, double now);
/* The guard itself did not run for this long (it was stopped), so nobody is blamed for the gap. */
void slurm_guard_slept(struct guard_state *g, double seconds);
/* The supervisor has released the guard. */
void slurm_guard_released(struct guard_state *g);

void slurm_guard_answered(struct guard_state *g, const struct guard_answer *a, double now);
/* done: the controller has accepted the action. */
void slurm_guard_acted(struct guard_state *g, bool done, double now);

#endif
