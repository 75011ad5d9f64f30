/*
 * history — what has happened to a run, from all of its files: its generations, losses, restarts,
 * checkpoints and evaluations, and its steps.
 *
 * The files may be missing, cut off or damaged, and the run may go on. A line that is not whole is
 * counted and skipped. Of each kind of thing at most RUNDIR_HISTORY_MOST are kept, the first ones;
 * the others are counted.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_HISTORY_H
#define MUSTER_LAUNCHER_RUNDIR_HISTORY_H

#include "base/err.h"
#include "launcher/rundir/columns.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUNDIR_HISTORY_MOST = 1 << 16 };

/* Times are seconds since 1970, NAN if a thing did not happen. Steps are -1 if unknown. */
struct rundir_generation {
	int64_t number;
	double begin, ready, first_step, end; /* end: a loss, or the end of muster run */
	double last_line;                     /* of metrics.jsonl */
	int64_t resumed;                      /* finished steps when its ranks were ready */
	int64_t last_step, steps;             /* steps: lines of metrics.jsonl */
	int world, tp, cp, ep, dp, pp;
	double predicted_s; /* of a step; NAN: unknown */
	bool lost;          /* it ended with a loss */
};

/* A loss that ended a generation. Texts are never NULL. */
struct rundir_loss {
	int64_t generation;
	double time;
	int rank; /* -1: none in particular */
	char *node, *how, *fault, *text, *remedy;
	double still_s;   /* from the last progress until it was found, for a hang; otherwise NAN */
	double restart_s; /* until the first step of a later generation; NAN: there is none */
	int64_t repeated; /* steps; -1: unknown, because no generation became ready after it */
};

struct rundir_checkpoint {
	double time, seconds, stall_s;
	int64_t step, bytes;
	char *path;
	bool local; /* in the folders of the nodes */
};

struct rundir_evaluation {
	int64_t step;
	double time, loss;
};

/* Another event that people should see on a time line. */
struct rundir_mark {
	const char *event; /* a constant */
	double time;
	int64_t generation;
	char *text;
};

/* A rank of the last generation that had any. */
struct rundir_seat {
	char *node;    /* NULL: it has not connected */
	double factor; /* its time over that of its peers; NAN: unknown */
	bool slow;     /* as the run has judged */
};

struct rundir_history {
	struct rundir_generation *generations;
	struct rundir_loss *losses;
	struct rundir_checkpoint *checkpoints;
	struct rundir_evaluation *evaluations;
	struct rundir_mark *marks;
	struct rundir_seat *seats; /* by rank */
	size_t n_generations, n_losses, n_checkpoints, n_evaluations, n_marks, n_seats;
	struct rundir_columns steps;
	double begin, end; /* of the first and the last line of any file; NAN: there is none */
	json_t *contract;  /* the last event `contract`; NULL: none */
	const char *ended; /* "done", "stopped", "failed" or "gave-up"; NULL: no end was written */
	char *reason;      /* of the end; NULL: none */
	int64_t runs;      /* calls of muster run that started a generation */
	int64_t restarts;  /* of all of them */
	int64_t damaged;   /* lines */
	int64_t left_out;  /* things beyond RUNDIR_HISTORY_MOST, or without memory */
};

/* Reads the run in this folder. ERR_NOTFOUND: there is no such folder. ERR_IO, ERR_CORRUPT: a file
 * cannot be read. ERR_UNSUPPORTED: a newer muster wrote it. The caller calls rundir_history_fini() in any case. */
int rundir_history_read(const char *run, struct rundir_history *out, struct err *e);
void rundir_history_fini(struct rundir_history *h);

/* For rundir_history_read() and tests: takes a line of events.jsonl. */
struct rundir_line;
void rundir_history_event(struct rundir_history *h, const struct rundir_line *l);

#endif
