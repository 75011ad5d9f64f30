/*
 * csv — the metrics of a run as a table (RFC 4180).
 *
 * The first line names the columns: time, generation, the fields of the message `metrics`
 * (base/messages.h), predicted_s, and eval_loss, the loss of an evaluation after this step. Lines
 * end with CR LF. A value that is not known is empty. Each step that counts (series.h) is one line.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_CSV_H
#define MUSTER_LAUNCHER_EXPORTS_CSV_H

#include "base/err.h"

#include <stdint.h>
#include <stdio.h>

/* damaged: as exports_series_read(). */
int exports_csv(const char *run, FILE *out, int64_t *damaged, struct err *e);

#endif
