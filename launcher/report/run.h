/*
 * run — what the report knows of one run: its files, read once.
 *
 * Files may be missing or damaged. What cannot be read is left out, and `notes` says so in words.
 */
#ifndef MUSTER_LAUNCHER_REPORT_RUN_H
#define MUSTER_LAUNCHER_REPORT_RUN_H

#include "base/buf.h"
#include "base/err.h"
#include "base/run_paths.h"
#include "launcher/report/parts.h"
#include "launcher/rundir/goodput.h"
#include "launcher/rundir/history.h"
#include "launcher/rundir/state.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stdbool.h>

/* What time.jsonl says. */
struct run_time {
	bool known;
	double parts[TIME_PART_COUNT]; /* seconds of all ranks */
	double sum, wall_s, goodput;
	int devices;
	struct rundir_goodput generations;
};

struct report_run {
	char path[RUN_PATH];
	char name[256]; /* of the folder */
	char id[16];    /* "r1": begins the ids of its figures */
	int number;     /* from 0: its colour */
	struct rundir_history history;
	enum rundir_state_id state; /* RUNDIR_STATE_COUNT: nothing has started in the folder */
	struct run_time time;
	json_t *plan;     /* of the last generation; NULL: none could be read */
	struct buf job;   /* the text of job.ini; "": none */
	struct job *keys; /* job.ini; NULL: it could not be read */
	struct buf notes; /* paragraphs of HTML */
	/* Of the last 100 steps without the first of a generation; NAN: there are none. */
	double step_s, predicted_s;
	double *tokens_s;  /* [history.steps.n] */
	double *planned_s; /* the same, as the plan predicted it */
	double *restarts;  /* the first step after each restart */
	size_t n_restarts;
};

/* Reads the run in this folder. The result must be freed in any case. */
int report_run_read(const char *folder, int number, struct report_run *out, struct err *e);
void report_run_fini(struct report_run *r);

/* "training": for people. */
const char *report_state_word(const struct report_run *r);

/* A column of the run's steps. */
const double *report_column(const struct report_run *r, enum rundir_column column);
/* Its value in the last step; NAN: there is no step. */
double report_last(const struct report_run *r, enum rundir_column column);
/* Whether the run is of a program of the user, and whether that has reported no step. */
bool report_has_program(const struct report_run *r);
bool report_is_opaque(const struct report_run *r);
/* The generation that ran last; NULL: none did. */
const struct rundir_generation *report_last_generation(const struct report_run *r);

#endif
