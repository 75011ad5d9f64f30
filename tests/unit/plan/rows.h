/*
 * rows — published training steps, read from tests/unit/plan/rows/ (its README.md describes the
 * format), and what the planner predicts for them.
 */
#ifndef MUSTER_TESTS_UNIT_PLAN_ROWS_H
#define MUSTER_TESTS_UNIT_PLAN_ROWS_H

#include "plan/cost/engine.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

#include <stdbool.h>

enum { ROW_WORDS = 48, ROW_FILES = 8 };

/* The forms in which sources publish a speed (rows/README.md). */
enum row_measure {
	ROW_TOKENS,
	ROW_SAMPLES,
	ROW_MFU_FULL,
	ROW_TFLOPS_FULL,
	ROW_TFLOPS_SC21,
	ROW_SECONDS,
	ROW_MEASURES
};

/* Words point into the file's text. */
struct row {
	const char *groups, *cluster, *model, *source;
	const char *engine;
	bool fitted;
	enum row_measure measure;
	double value;
	double peak;                  /* published bytes of the fullest GPU; 0: not published */
	const char *words[ROW_WORDS]; /* keys of the job file, without the model's */
	int n;
};

struct row_files;

/* Reads sources.txt and the other .txt files of the folder. The test fails if one is not valid. */
struct row_files *rows_open(const char *folder);
void rows_close(struct row_files *f);
int rows_count(const struct row_files *f);
const struct row *rows_at(const struct row_files *f, int i);
/* Whether the row's list of groups names this one. */
bool rows_is_in(const struct row *r, const char *group);

struct row_prediction {
	char refusal[512]; /* why there is no plan, even with unlimited memory; or "" */
	bool fits;         /* the row's memory holds it */
	char lack[384];    /* what the fullest rank needs if it does not */
	double memory;     /* bytes of the fullest rank */
	double seconds;    /* predicted step */
	double published;  /* seconds of the published step */
	int devices;
	int64_t seq;
};
void rows_predict(const struct row_files *f, const struct row *r, struct row_prediction *out);

#endif
