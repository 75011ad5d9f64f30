/*
 * calibration — what was measured on this machine and on its GPUs, for the planner.
 *
 * `muster bench calibrate` writes the file. `muster bench comm --calibrate` and `muster bench gemm
 * --calibrate` each write their part and keep the parts that the others wrote on this machine.
 * `muster plan` and `muster run` read it.
 *
 * Links predict any number of ranks and bytes. An all-reduce over n ranks counts as a ring: 2 (n -
 * 1) messages of 1/n of the tensor, each taking alpha + beta × its bytes. alpha and beta are
 * fitted, for each transport, to measured all-reduces of all groups of a size at once. Machines and
 * exchanges (topo/measured.h) predict what was measured more exactly, so they take precedence.
 *
 * Chips (topo/measured_chip.h) are models of GPUs. They count wherever a node has that model, on
 * whatever host they were measured; everything else counts for this host and those like it. Both
 * halves are kept independently of one another.
 *
 * The file is one JSON object. "links" has at most two entries; if it has none, "ranks" is 0.
 * "gemm" (matrix products on all cores together), "machines", "exchanges" and "chips" are optional,
 * but a file without links has at least one of them:
 *
 *     {"version": 2, "kind": "muster-calibration", "host": "n1", "cpu": "model name", "cores": 2, "ranks": 8,
 *      "date": "2026-11-21T05:00:00Z",
 *      "links": [{"transport": "shm", "pattern": "all_reduce", "alpha_s": 2e-5, "beta_s_per_byte": 4e-10,
 *                 "error": 0.2, "points": 14}, …],
 *      "gemm": {"flops": 2e11}, "machines": […], "exchanges": […], "chips": […]}
 */
#ifndef MUSTER_PLAN_COST_CALIBRATION_H
#define MUSTER_PLAN_COST_CALIBRATION_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/cost/measured.h"
#include "topo/cluster.h"
#include "topo/measured_chip.h"

#include <stdbool.h>

enum {
	CALIBRATION_SHM = MEASURED_SHM,
	CALIBRATION_TCP = MEASURED_TCP,
	CALIBRATION_TRANSPORTS = MEASURED_TRANSPORTS
};

enum { CALIBRATION_CHIPS = 8 };

struct calibration_link {
	bool known;
	double alpha, beta; /* seconds; seconds per byte */
	double error;       /* mean relative error over the points */
	int points;
};

struct calibration {
	char host[64], cpu[128], date[32];
	int cores; /* of the machine */
	int ranks; /* that exchanged data at the same time; 0: no link is known */
	struct calibration_link links[CALIBRATION_TRANSPORTS];
	double flops; /* FLOP/s of matrix products on all cores; 0: not measured */
	struct measured measured;
	int n_chips; /* each of another name */
	struct measured_chip chips[CALIBRATION_CHIPS];
};

/* One measured all-reduce. */
struct calibration_sample {
	int ranks;
	double bytes, seconds;
};

/* Least squares on the relative error; alpha and beta are not negative. Returns false if
 * the samples do not determine them. */
bool calibration_fit(const struct calibration_sample *samples, int n, struct calibration_link *out);
double calibration_predict(const struct calibration_link *link, int ranks, double bytes);

/* Sets host, cpu, cores and date to this machine's and now. */
int calibration_here(struct calibration *c, struct err *e);
void calibration_write(const struct calibration *c, struct buf *out);
/* name: the file's, for errors. ERR_USAGE. */
int calibration_parse(const char *text, size_t n, const char *name, struct calibration *out,
		      struct err *e);

/* For the tools that measure. Sets path to `word`, or to the default file if word is NULL, and
 * makes its folder. *out receives the content of that file if it was measured on this machine;
 * otherwise only its chips, this machine and the time. Fails if the folder cannot be made. */
int calibration_begin(const char *word, char *path, size_t size, struct calibration *out,
		      struct err *e);
/* For the tools that compare with it: reads the file that [launch] calibration names; NULL: auto.
 * ERR_NOTFOUND: `none`, or there is no default file. ERR_USAGE: it is damaged, or of another
 * machine. */
int calibration_find(const char *word, struct calibration *out, struct err *e);
/* Replaces a chip of that name. ERR_NOMEM: there are CALIBRATION_CHIPS others. */
int calibration_add_chip(struct calibration *c, const struct measured_chip *chip, struct err *e);
int calibration_save(const struct calibration *c, const char *path, struct err *e);

/* Puts the measured figures, and a copy of `measured` if there are machines or exchanges, into the
 * kinds of nodes that are this host or like it, and records that in the cluster's `figures`. word:
 * [launch] calibration. transport: [network] backend. With `auto`, a file that is missing, damaged
 * or of another machine is skipped; with a named file that is ERR_USAGE. Kinds of nodes with GPUs,
 * also those of presets, get a copy of their chip, and of its exchanges if they have as many GPUs
 * as the host where these were measured. If the file has only other chips, `figures` says so. */
int calibration_apply(const char *word, const char *transport, struct cluster *cluster,
		      struct err *e);

#endif
