/*
 * predict — what the planner predicts for this machine's GPU, beside what the programs of make
 * check-gpu measure: of a step of one device, and of one op. By the published constants, or by a
 * calibration of the device that this process measured itself.
 */
#ifndef MUSTER_TESTS_GPU_PREDICT_H
#define MUSTER_TESTS_GPU_PREDICT_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "tests/gpu/kernel_rows.h"
#include "topo/cluster.h"

/* A node with the first device; free k->chip. backend_name: ERR_UNSUPPORTED if it is not cuda,
 * whose devices alone are known by data sheets. */
int predict_open(const char *backend_name, struct node_kind *k, struct err *e);
/* Sets k->chip to what it measures in bf16: sizes of up to `elements` elements, `seconds` each. */
int predict_calibrate(struct node_kind *k, double seconds, int64_t elements, struct err *e);
/* Seconds of a step of the job on one such device. */
int predict_step(const struct node_kind *k, const struct job *job, double *seconds, struct err *e);
/* Seconds of an op of the table in bf16, which moves `bytes`. */
double predict_row(const struct node_kind *k, const struct kernel_row *r, const char *op,
		   double bytes);

#endif
