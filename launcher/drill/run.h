/* run — one run of a drill: the child process `muster run`, and what its files say. */
#ifndef MUSTER_LAUNCHER_DRILL_RUN_H
#define MUSTER_LAUNCHER_DRILL_RUN_H

#include "launcher/child.h"
#include "launcher/drill/drill.h"
#include "launcher/drill/processes.h"
#include "launcher/drill/scratch.h"
#include "launcher/drill/story.h"

/* The variable that holds PATH without r->programs, for the programs there. */
#define DRILL_PATH_VARIABLE "DRILL_PATH"

/* What all runs of a drill share. */
struct drill {
	const struct drill_options *o;
	struct drill_scratch scratch;
	uv_loop_t loop;
	uv_timer_t tick;
	uv_signal_t signals[3];
	int interrupted; /* the signal; 0: none */
	int64_t steps;
	struct drill_story reference; /* the undisturbed run */
	double step_s, run_s;         /* of the undisturbed run: longest step, and all of it */
	bool slurm;                   /* in an allocation */
};

/* The words of one run. */
enum { DRILL_WORDS = 16, DRILL_WORD = JOB_PATH + 64 };

struct drill_run {
	struct drill *d;
	const struct injection *injection; /* NULL: the undisturbed run */
	char name[64], path[RUN_PATH], mark[DRILL_MARK];
	char words[DRILL_WORDS][DRILL_WORD]; /* of this run only */
	int n_words;
	struct rundir_follower *follow;
	struct drill_story story;
	struct child *child; /* NULL: it does not run */
	int status;          /* exit status; 128 + N: signal N ended it */
	bool ended;
	double injected;         /* time of the fault; 0: there was none yet */
	int shm;                 /* names in /dev/shm before it */
	int job_steps;           /* under Slurm: of agents, before it */
	char programs[RUN_PATH]; /* a folder that stands first in its PATH; "": none */
	char cgroup[RUN_PATH];   /* in which it runs; "": that of the drill */
	int64_t cgroup_bytes;    /* the limit of its memory */
	/* for undo */
	pid_t stopped;
	char node[128];
	/* AGENT_ENV_DRILL_FAULT; "": none */
	char agent_fault[80];
	int64_t corrupted; /* the step of the checkpoint that was damaged */
};

int drill_run_open(struct drill *d, const struct injection *injection, const char *name,
		   struct drill_run **out, struct err *e);
/* Adds section.key=value to the job's words. */
void drill_run_word(struct drill_run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Starts `muster run`, or starts it again in the same folder. */
int drill_run_start(struct drill_run *r, struct err *e);
/* Waits until the condition holds. ERR_TIMEOUT, with `what` as what did not come; ERR_PEER: the run
 * ended before; ERR_ABORTED: a signal came. until: NULL: it waits for that time, and returns 0. */
int drill_run_wait(struct drill_run *r, bool (*until)(const struct drill_run *r), double seconds,
		   const char *what, struct err *e);
/* Waits for the run's end. */
int drill_run_finish(struct drill_run *r, double seconds, struct err *e);
/* Ends the run if it is still there, with all its processes. */
void drill_run_close(struct drill_run *r);

/* Up to `most` processes that are left some seconds after the end of the run. */
int drill_run_left(const struct drill_run *r, pid_t *pids, int most);

#endif
