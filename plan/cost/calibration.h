/*
 * calibration — what this machine was measured at, for the planner.
 *
 * `muster bench calibrate` writes the file; `muster bench comm --calibrate` and `muster bench gemm
 * --calibrate` each write their part and keep what the others wrote here before; `muster plan` and
 * `muster run` read it.
 *
 * Links are what is known of any number of ranks and bytes: a sum over n ranks is a ring on paper:
 * 2 (n - 1) messages of 1/n of the tensor, each taking alpha + beta × its bytes, fitted to measured
 * all-reduces of all groups of a size at once, for each transport. Machines and exchanges
 * (measured.h) tell more exactly what was measured: they come first where there are any.
 *
 * The file, one JSON object. links has one entry or two, or none, and then ranks is 0; gemm, matrix
 * products on all cores together, machines and exchanges may lack, but not all of them:
 *
 *     {"version": 2, "kind": "muster-calibration", "host": "n1", "cpu": "model name", "cores": 2, "ranks": 8,
 *      "date": "2026-11-21T05:00:00Z",
 *      "links": [{"transport": "shm", "pattern": "all_reduce", "alpha_s": 2e-5, "beta_s_per_byte": 4e-10,
 *                 "error": 0.2, "points": 14}, …],
 *      "gemm": {"flops": 2e11}, "machines": […], "exchanges": […]}
 */
#ifndef MUSTER_PLAN_COST_CALIBRATION_H
#define MUSTER_PLAN_COST_CALIBRATION_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/cost/measured.h"
#include "topo/cluster.h"

#include <stdbool.h>

enum {
	CALIBRATION_SHM = MEASURED_SHM,
	CALIBRATION_TCP = MEASURED_TCP,
	CALIBRATION_TRANSPORTS = MEASURED_TRANSPORTS
};

struct calibration_link {
	bool known;
	double alpha, beta; /* seconds; seconds a byte */
	double error;       /* mean relative error over the points */
	int points;
};

struct calibration {
	char host[64], cpu[128], date[32];
	int cores, ranks; /* of the machine; that talked at once, 0: no link is known */
	struct calibration_link links[CALIBRATION_TRANSPORTS];
	double flops; /* of matrix products on all cores, a second; 0: not measured */
	struct measured measured;
};

/* One measured all-reduce. */
struct calibration_sample {
	int ranks;
	double bytes, seconds;
};

/* Least squares on the relative error; alpha and beta are not negative. False when the samples
 * do not tell. */
bool calibration_fit(const struct calibration_sample *samples, int n, struct calibration_link *out);
double calibration_predict(const struct calibration_link *link, int ranks, double bytes);

/* Sets host, cpu, cores and date to this machine's and now. */
int calibration_here(struct calibration *c, struct err *e);
void calibration_write(const struct calibration *c, struct buf *out);
/* name: the file's, for errors. ERR_USAGE. */
int calibration_parse(const char *text, size_t n, const char *name, struct calibration *out,
		      struct err *e);

/* For the tools that measure. path: `word`, or when it is NULL the default file. *out: what that
 * file holds when it is this machine's, else nothing but this machine and now. Fails when the
 * folder cannot be made. */
int calibration_begin(const char *word, char *path, size_t size, struct calibration *out,
		      struct err *e);
int calibration_save(const struct calibration *c, const char *path, struct err *e);

/* Puts the measured figures and, where there are machines or exchanges, a copy of `measured` into
 * the kinds of a cluster that is this host, or like it, and says so in its `figures`. word:
 * [launch] calibration. transport: [network] backend. `auto` passes over a file that is missing,
 * damaged or another machine's; a named one is refused then: ERR_USAGE. Presets keep their figures.
 */
int calibration_apply(const char *word, const char *transport, struct cluster *cluster,
		      struct err *e);

#endif
