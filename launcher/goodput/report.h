/*
 * report — everything that `muster simulate` reports about a job, for people and for programs.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_REPORT_H
#define MUSTER_LAUNCHER_GOODPUT_REPORT_H

#include "base/buf.h"
#include "launcher/goodput/launchers.h"
#include "launcher/goodput/study.h"
#include "launcher/goodput/timeline.h"

#include <jansson.h>

/* A part that takes a smaller share of the time is not shown. */
#define GOODPUT_LEAST_SHARE 5e-5

enum { GOODPUT_LINE = 80, GOODPUT_LINES = 24, GOODPUT_SLICES = 120 };

/* The same runs with one thing changed. */
struct goodput_line {
	char what[GOODPUT_LINE];
	struct goodput_sum sum;
};

struct goodput_lines {
	struct goodput_line of[GOODPUT_LINES];
	int n;
};

struct goodput_report {
	const char *job, *cluster; /* names */
	int devices;               /* that work */
	struct goodput_setup setup;
	struct goodput_plan plan;
	struct goodput_sum sum;
	struct goodput_history history; /* of the first run */
	struct goodput_timeline
		first; /* the first run in GOODPUT_SLICES; only if its length is given */
	struct goodput_lines settings;  /* other settings of the job */
	struct goodput_lines costs;     /* each cost that matters, twice as long */
	struct goodput_lines launchers; /* the same job under others */
	struct goodput_advice advice;
};

/* A share from 0 to 1, in percent. */
double goodput_percent(double share);

/* Simulates. setup, plan and names are set; the rest is filled, but only the sum if a run would not end. As
 * goodput_sum(). The caller closes the report, also after an error. */
int goodput_report_make(struct goodput_report *r, struct err *e);
void goodput_report_close(struct goodput_report *r);
void goodput_report_print(const struct goodput_report *r, struct buf *out);
json_t *goodput_report_json(const struct goodput_report *r); /* a new reference */
/* Appends a complete SVG document, which is well-formed for any names. ERR_UNSUPPORTED: a run would not end.
 * ERR_NOMEM. */
int goodput_report_svg(const struct goodput_report *r, struct buf *out, struct err *e);

#endif
