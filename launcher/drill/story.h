/* story — what the files of a run say, in the form that a drill needs. */
#ifndef MUSTER_LAUNCHER_DRILL_STORY_H
#define MUSTER_LAUNCHER_DRILL_STORY_H

#include "base/err.h"
#include "base/run_paths.h"
#include "launcher/drill/phases.h"
#include "launcher/rundir/follow.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A line of metrics.jsonl. */
struct drill_step {
	int64_t step, generation;
	double loss, norm, mono;
};

/* An agent that has connected. */
struct drill_agent {
	int rank;
	int64_t generation;
	pid_t pid;
};

struct drill_layout {
	int world, tp, cp, ep, dp, pp;
};

struct drill_story {
	struct drill_event *events;
	struct drill_step *steps;
	struct drill_agent *agents;
	int n_events, n_steps, n_agents;
	int launches;             /* events generation-start */
	int64_t generation;       /* of the last line */
	int checkpoints;          /* committed */
	char ckpt_path[RUN_PATH]; /* of the last one */
	int64_t ckpt_step;        /* its step */
	int64_t ckpt_seen;        /* last finished step when its event came */
	int64_t ready_step;       /* from which the last generation continued; -1: none did */
	int64_t last_step;        /* of the last line of metrics */
	int warnings;             /* that ranks logged */
	struct drill_layout first, last; /* of the first and of the last generation */
	bool relaid;                     /* a generation had another layout than the first */
	/* of the first lost rank, otherwise of the first stop, failure or warning */
	char fault[64], how[64], said[1000];
	char faults[256];   /* of all generations, with commas between them */
	int64_t peak_bytes; /* of the rank that reports metrics */
	bool lost, blamed;
	int lost_rank; /* -1: no rank in particular */
	/* of the first hang; hung_kind: "": there was none */
	int hung_rank;
	char hung_kind[16], hung_text[1000];
	bool failed_memory; /* a line could not be kept */
};

void drill_story_fini(struct drill_story *s);
/* Add what a line says. For struct rundir_reader; arg: the story. */
void drill_story_event(void *story, const struct rundir_line *l);
void drill_story_metrics(void *story, const struct rundir_line *l);

/* The pid of the rank in the last generation; 0: it has not connected. */
pid_t drill_story_agent(const struct drill_story *s, int rank);
/* The number of lines of metrics for a step that has an earlier line. */
int64_t drill_story_redone(const struct drill_story *s);
/* Whether each step has the same loss and gradient norm in both runs. tolerance: relative; 0: the
 * same bits. The last line of a step counts. The error names the first step that differs. */
int drill_story_compare(const struct drill_story *reference, const struct drill_story *s,
			double tolerance, struct err *e);

#endif
