/*
 * hparams — a run in TensorBoard's page of hyperparameters, where runs are compared.
 *
 * Each function appends whole records (tfevents.h) to `out`. TensorBoard reads them from the files
 * of the run, in any of its parts; the last one of a kind counts.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_HPARAMS_H
#define MUSTER_LAUNCHER_EXPORTS_HPARAMS_H

#include "base/buf.h"
#include "plan/spec/job/job.h"

/* Tags of the numbers that the page compares (tensorboard.h writes them). */
#define EXPORTS_TAG_LOSS      "train/loss"
#define EXPORTS_TAG_EVAL_LOSS "eval/loss"

/* The keys of the job that describe model, layout and training. No path is among them. */
void exports_hparams_start(struct buf *out, double time, const struct job *job);

enum exports_tf_status { TF_UNKNOWN, TF_SUCCESS, TF_FAILURE, TF_RUNNING };
/* How the run has ended. */
void exports_hparams_end(struct buf *out, double time, enum exports_tf_status status);

#endif
