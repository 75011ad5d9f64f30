/*
 * drill — injects faults on purpose into runs of its own, and reports how muster recovers.
 *
 * The job runs once undisturbed, and then once per fault, in the folder run_dir/drill-<name>. Each
 * run is a child process `muster run`, which is tied to this process: whatever ends the drill also
 * ends the run. The run of the job itself is never touched.
 *
 *     drill.c       one drill after another: starts a run, waits, injects, judges
 *     injections.c  the table of faults (inject_*.c: what they do)
 *     story.c       what a run's files say
 *     phases.c      the phases of recovery, from a list of events
 *     judge.c       whether the result is right
 *     processes.c   finds and signals the processes of a run
 *     scratch.c     the folder of the drills
 *     report.c      the table for people, and JSON
 */
#ifndef MUSTER_LAUNCHER_DRILL_DRILL_H
#define MUSTER_LAUNCHER_DRILL_DRILL_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/drill/phases.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stdbool.h>

struct injection;

/* Everything is borrowed. */
struct drill_options {
	const struct job *job;
	const char *file;         /* the job file */
	const char *const *words; /* section.key=value, ends with NULL */
	const char *faults;       /* names with commas between them; NULL: all */
	int64_t steps;            /* of each run; 0: the drill chooses */
	bool allow_node_faults;   /* nodes may be drained and set down */
	bool keep;                /* the folders of the runs remain */
	const char *agent;        /* path of muster-agent */
	/* Called before each run, for people who wait; may be NULL. */
	void (*begins)(const char *name);
};

enum drill_outcome { DRILL_RIGHT, DRILL_WRONG, DRILL_SKIPPED };

struct drill_result {
	const struct injection *injection;
	enum drill_outcome outcome;
	char why[1000];  /* it is wrong, or was skipped; "" otherwise */
	char fault[64];  /* as the supervisor named it; "": it did not */
	char how[64];    /* in which way a rank was lost, such as "closed, signal 9"; "": none */
	char said[1000]; /* the message; "": none */
	struct drill_phases phases;
	int64_t redone; /* steps that were computed twice */
	int status;     /* exit status of the last `muster run`; -1: none */
};

struct drill_results {
	struct drill_result *rows;
	int n;
	int64_t steps;                    /* of each run */
	char folder[JOB_PATH + JOB_TEXT]; /* of the runs that remain; "": none */
};

/* Runs the drills. ERR_USAGE: a fault of that name does not exist. ERR_ABORTED: a signal interrupted
 * it. Another error: the undisturbed run failed. In each case no process is left. */
int drill_run(const struct drill_options *o, struct drill_results *out, struct err *e);
void drill_results_fini(struct drill_results *r);
/* Returns true if every drill that ran is right, and at least one ran. */
bool drill_results_right(const struct drill_results *r);

/* The table for people, at most 100 columns wide. */
void drill_print(const struct drill_results *r, struct buf *out);
json_t *drill_json(const struct drill_results *r);
/* The list of the faults, for the help page. */
void drill_list(struct buf *out);

#endif
