/*
 * tensorboard — a run as an event file of TensorBoard.
 *
 * The tags are train/…, eval/…, speed/…, step_parts/… (base/step_parts.h) and checkpoint/…; the
 * texts are job and plan. One step is one record of about 500 bytes.
 *
 * The first function creates a file of the name that TensorBoard looks for, which no other process
 * has; the others append records to `out`. They are for the export of a run that goes on
 * (tensorboard.c) and for that of one that has ended (from_run.h).
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_TENSORBOARD_H
#define MUSTER_LAUNCHER_EXPORTS_TENSORBOARD_H

#include "base/buf.h"
#include "base/err.h"
#include "base/messages.h"
#include "base/run_paths.h"

/* The folder exists. */
int exports_tb_create(const char *folder, char path[RUN_PATH], int *fd, struct err *e);
void exports_tb_step(struct buf *out, double time, const struct msg_metrics *m, double predicted_s);
void exports_tb_eval(struct buf *out, double time, int64_t step, double loss);
void exports_tb_checkpoint(struct buf *out, double time, int64_t step, double seconds,
			   double stall_s);

#endif
