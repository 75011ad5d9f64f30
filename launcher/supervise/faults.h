/*
 * faults — the table of faults: what was seen, whose fault it is, and whether another start can
 * help. It is the one place that decides this; policy.h decides where the next generation runs.
 *
 * symptoms.h collects what was seen. The signs in faults.c, in their order, lead to a row of the
 * table: the most precise sign comes first.
 *
 * To add a fault: add its row to FAULTS and its signs (faults.c), its row to the table of
 * tests/unit/launcher/test_faults.c, and, if `muster drill` can cause it, its row in
 * launcher/drill/injections.c.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_FAULTS_H
#define MUSTER_LAUNCHER_SUPERVISE_FAULTS_H

#include "base/err.h"
#include "launcher/survey.h"
#include "launcher/suspects/suspects.h"

#include <stdbool.h>

/* Who can mend it. */
enum fault_owner {
	OWNER_JOB,     /* the person: the job, its files, its program */
	OWNER_NODE,    /* a node or a device */
	OWNER_NETWORK, /* the network between nodes */
	OWNER_SERVICE, /* a service of the site: slurmctld, munged, the file system */
	OWNER_UNKNOWN,
	FAULT_OWNERS
};

/* The word of an owner in events, such as "node". */
const char *supervise_owner_word(enum fault_owner o);

enum fault_retry {
	RETRY_NEVER, /* another start meets the same fault */
	RETRY_ONCE,  /* another start helps only if what worked before was disturbed */
	RETRY_NOW,   /* another start may succeed, with the back-off of restart.h */
	RETRY_WAIT   /* it passes by itself: wait up to [restart] patience, without counting */
};

struct fault {
	const char *name; /* one word, for events and for muster drill, such as "agent-killed" */
	enum fault_owner owner;
	enum fault_retry retry;
	bool counts; /* against max_restarts and max_futile; false if retry is RETRY_WAIT */
	/* SUSPECT_NONE: otherwise it counts as a fault of the node ([restart] exclude_after), and
	 * the list of suspects gets this line about the node */
	enum suspect_kind suspect;
	const char *text;   /* what was seen, for people: a clause such as "the disk is full" */
	const char *remedy; /* what the person can do: one sentence; "": nothing */
};

/* How a rank was lost. */
enum lost_how {
	LOST_CLOSED = 1,
	LOST_EXITED,
	LOST_FAILED,
	LOST_PROTOCOL,
	LOST_SILENT,
	LOST_HUNG,
	LOST_START
};

/* What Slurm's programs said in the launch log; a later one is more precise. */
enum slurm_word {
	SLURM_SAID_NOTHING,
	SLURM_SAID_CANCELLED,   /* the job step was ended: by a limit, or by scancel */
	SLURM_SAID_NO_MEMORY,   /* there is no memory for the step, as after slurmctld's start */
	SLURM_SAID_EXPIRED,     /* the job has ended */
	SLURM_SAID_NODE_FAILED, /* a node of the step failed */
	SLURM_SAID_NO_CONTROLLER,
	SLURM_SAID_NO_MUNGE,
	SLURM_SAID_NO_PMIX,
	SLURM_SAID_NO_PROGRAM, /* slurmstepd cannot execute the agent */
	SLURM_WORDS
};

/* What the rank that hung first was found in (stacks.h), as far as it is a fault of its own. */
enum hang_cause {
	HANG_UNKNOWN,
	HANG_COLLECTIVES, /* ranks wait for each other in different collectives */
	HANG_STOPPED,     /* its process is stopped */
	HANG_KERNEL       /* a thread is stuck in the kernel */
};

/* What is known about the loss that ended a generation. A member that is 0 is not known. */
struct symptom {
	enum lost_how how;
	enum err_code code;   /* the agent's, or the nearest one */
	int signal;           /* that ended the process; 0: none, or unknown */
	int status;           /* its exit status; 0: none, or unknown */
	bool started;         /* the agent had connected */
	bool out_of_memory;   /* the kernel ended a process for want of memory */
	enum slurm_word said; /* by Slurm's programs */
	enum node_state node; /* of the rank's node */
	bool manager_silent;  /* the survey got no answer */
	bool wrong_results;   /* the numbers tell of a fault of hardware */
	bool helper_lost;     /* that of the rank's node has ended, or could not start its agents */
	enum hang_cause hang; /* of a hang or a silence: what its rank was found in */
	bool program;         /* the run has a program of the user (job.program) */
	bool pmix_refused;    /* the agents could not use the system's PMIx server */
};

/* The fault that explains these symptoms best; never NULL. */
const struct fault *supervise_fault_of(const struct symptom *s);
/* The fault of this name; NULL: there is none. */
const struct fault *supervise_fault_named(const char *name);
/* The rows of the table, for `muster drill` and the documents: *n rows. */
const struct fault *supervise_faults(int *n);

#endif
