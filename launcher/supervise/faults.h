/*
 * faults — the table of faults: what was seen, whose fault it is, and whether another start can
 * help. It is the one place that decides this; policy.h decides where the next generation runs.
 *
 * To add a fault: add its row to FAULTS, its condition to supervise_fault_of() (faults.c), its row
 * to the table of tests/unit/launcher/test_faults_table.c, and the way in which `muster drill`
 * causes it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_FAULTS_H
#define MUSTER_LAUNCHER_SUPERVISE_FAULTS_H

#include "base/err.h"
#include "launcher/survey.h"

#include <stdbool.h>

/* Who can mend it. */
enum fault_owner {
	OWNER_JOB,     /* the person: the job, its files, its program */
	OWNER_NODE,    /* a node or a device */
	OWNER_NETWORK, /* the network between nodes */
	OWNER_SERVICE, /* a service of the site: slurmctld, munged, the file system */
	OWNER_UNKNOWN
};

enum fault_retry {
	RETRY_NEVER, /* another start meets the same fault */
	RETRY_NOW,   /* another start may succeed, with the back-off of restart.h */
	RETRY_WAIT   /* it passes by itself: wait up to [restart] patience, without counting */
};

struct fault {
	const char *name; /* one word, for events and for muster drill, such as "agent-killed" */
	const char *text; /* what was seen, for people */
	enum fault_owner owner;
	enum fault_retry retry;
	bool counts;        /* against max_restarts and max_futile */
	bool blames_node;   /* it counts as a fault of the node: [restart] exclude_after */
	const char *remedy; /* what the person can do; "": nothing */
};

/* How a rank was lost. */
enum lost_how {
	LOST_CLOSED,
	LOST_EXITED,
	LOST_FAILED,
	LOST_PROTOCOL,
	LOST_SILENT,
	LOST_HUNG,
	LOST_START
};

/* What is known about the loss that ended a generation. */
struct symptom {
	enum lost_how how;
	enum err_code code;   /* the agent's, or the nearest one */
	const char *said;     /* the error message; "": none */
	int signal;           /* that ended the process; 0: none, or unknown */
	int status;           /* its exit status; -1: unknown */
	bool out_of_memory;   /* the node's counter of OOM kills has grown */
	bool stepped;         /* the generation had finished a step */
	enum node_state node; /* of the rank's node */
	bool manager_silent;  /* the survey got no answer */
};

/* The fault that explains these symptoms best; never NULL. */
const struct fault *supervise_fault_of(const struct symptom *s);
/* The rows of the table, for `muster drill` and the documents: *n rows. */
const struct fault *supervise_faults(int *n);

#endif
