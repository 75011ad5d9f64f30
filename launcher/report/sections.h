/*
 * sections — the parts of the page, in its order.
 *
 * To add a section: write its function in a file of its own, and call it in report.c. A section
 * whose data are missing writes a sentence that says so, or nothing if it does not apply.
 */
#ifndef MUSTER_LAUNCHER_REPORT_SECTIONS_H
#define MUSTER_LAUNCHER_REPORT_SECTIONS_H

#include "launcher/report/report.h"
#include "launcher/report/run.h"

/* How the run stands, in one look. */
void report_summary(struct buf *out, const struct report_run *r);
/* What differs between several runs. */
void report_differences(struct buf *out, const struct report_run *runs, int n);
/* Rows of a table: the keys of job.ini that differ. */
void report_job_differences(struct buf *out, const struct report_run *runs, int n);
/* Loss, gradient norm, learning rate and speed over the steps, of all runs together. */
void report_curves(struct buf *out, const struct report_run *runs, int n);

/* Of one run each. */
void report_account(struct buf *out, const struct report_run *r);
/* A table of it: the time of each generation. */
void report_goodput(struct buf *out, const struct report_run *r);
void report_story(struct buf *out, const struct report_run *r);
/* The tables below the time line. */
void report_losses(struct buf *out, const struct report_run *r);
void report_warnings(struct buf *out, const struct report_run *r);
void report_generations(struct buf *out, const struct report_run *r);
void report_rank_map(struct buf *out, const struct report_run *r);
void report_schedule(struct buf *out, const struct report_run *r);
void report_contract(struct buf *out, const struct report_run *r);
void report_checkpoints(struct buf *out, const struct report_run *r);
void report_job(struct buf *out, const struct report_run *r);

/* <section> with its heading; id follows the run's own. */
void report_section_open(struct buf *out, const struct report_run *r, const char *id,
			 const char *title);
void report_section_close(struct buf *out);

#endif
