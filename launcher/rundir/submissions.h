/*
 * submissions — which jobs of Slurm's queue belong to a run: submissions.jsonl.
 *
 * A line is an object with the fields of RUNDIR_SUBMISSION_FIELDS, one for each queued job, in the
 * order of the queue. `muster submit` appends them, and a run whose job queues the next one of its
 * chain (launcher/supervise/chain.h). Both may write at the same time: each line is one append
 * under a lock of the file. Lines that are damaged, because the disk was full, are skipped.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_SUBMISSIONS_H
#define MUSTER_LAUNCHER_RUNDIR_SUBMISSIONS_H

#include "base/err.h"
#include "base/fields.h"

/* clang-format off */

#define RUNDIR_SUBMISSION_FIELDS(F) \
	F(submission, INT,    REQUIRED, "the number in submit-<n>.ini; the jobs of a chain have the same") \
	F(job,        TEXT,   REQUIRED, "the id of the job") \
	F(time,       NUMBER, REQUIRED, "when it was queued, in seconds since 1970") \
	F(by,         TEXT,   OPTIONAL, "the id of the job that has queued this one, as the next one of its chain") \
	F(resumed,    COUNT,  OPTIONAL, "the step from which the job `by` had continued")

/* clang-format on */

struct rundir_submission {
	RUNDIR_SUBMISSION_FIELDS(FIELDS_MEMBER)
};

struct rundir_submissions {
	struct rundir_submission *of; /* their texts are borrowed from `lines` */
	int n;
	json_t *lines;
};

/* run: the run folder. The member `time` is set here. */
int rundir_submissions_append(const char *run, const struct rundir_submission *s, struct err *e);

/* A run without the file has no submissions. Free them with rundir_submissions_free(). */
int rundir_submissions_read(const char *run, struct rundir_submissions *out, struct err *e);
void rundir_submissions_free(struct rundir_submissions *s);

/* For rundir_submissions_read(): `text` is the content of the file. ERR_NOMEM. */
int rundir_submissions_parse(const char *text, size_t len, struct rundir_submissions *out,
			     struct err *e);

/* The index of the last line of this job; -1: there is none. */
int rundir_submissions_find(const struct rundir_submissions *s, const char *job);

#endif
