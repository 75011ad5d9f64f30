/*
 * stop_cause — why whoever manages the nodes (Slurm) wants a run to stop. A signal alone does not say
 * it: the same SIGTERM comes before a time limit, on a preemption, and from scancel.
 */
#ifndef MUSTER_LAUNCHER_STOP_CAUSE_H
#define MUSTER_LAUNCHER_STOP_CAUSE_H

#include <stdbool.h>

enum stop_cause {
	STOP_BY_PERSON,  /* a signal that no manager has sent, or nothing is known */
	STOP_TIME_LIMIT, /* the job's time limit comes */
	STOP_PREEMPTED,  /* another job takes the nodes, after a grace time */
	STOP_CANCELLED,  /* the job was cancelled; its processes are being ended */
	STOP_REQUEUED,   /* the job is back in the queue; its processes are being ended */
	STOP_CAUSES
};

struct stop_answer {
	bool answered; /* the manager has answered; otherwise the cause is not known */
	enum stop_cause cause;
	double left;      /* seconds until the processes are ended; below 0: unknown */
	bool can_requeue; /* the job can be requeued */
	int restarts;     /* how often it was requeued */
	char why[200];    /* if it has not answered: the cause */
};

/* The word in events, such as "time-limit". */
const char *launcher_stop_cause_word(enum stop_cause c);
/* What people read, such as "the time limit of the job comes". */
const char *launcher_stop_cause_text(enum stop_cause c);

#endif
