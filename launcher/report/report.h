/*
 * report — one HTML file that shows runs: how they stand, what they learned, where their time went,
 * and what happened to them.
 *
 * The file needs no network and no script: charts are SVG that is drawn here. A small script adds
 * the values under the pointer. templates/report/ has the page, its style sheet and the script.
 */
#ifndef MUSTER_LAUNCHER_REPORT_REPORT_H
#define MUSTER_LAUNCHER_REPORT_REPORT_H

#include "base/buf.h"
#include "base/err.h"

enum { REPORT_RUNS = 16 };

/* Writes the page of the runs in these n folders, 1 to REPORT_RUNS. */
int report_write(const char *const runs[], int n, struct buf *out, struct err *e);

#endif
