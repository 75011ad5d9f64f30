/*
 * topo_measured_chip — how fast one model of GPU computes, and how fast the GPUs of the host that
 * measured it exchange data, as `muster bench calibrate` measured them.
 *
 * Times of single operations are kept as they were measured, with the sizes of each; the planner
 * makes its curves from them (plan/cost/chip.h). So a change of the planner's model needs no new
 * measurement. An operation has
 *
 *     a product     [tokens, in, out], of y[tokens, out] = x[tokens, in] · w[out, in]ᵀ, and its
 *                   backward forms
 *     attention     [keys, dim, FLOPs], of one head's keys and dim; the FLOPs that are not masked
 *     anything else [bytes], read and written together
 *
 * as in enum rate_class (measured.h). Exchanges are those of measured.h, in groups of `group` GPUs,
 * all groups of the host at the same time; they count for nodes with as many GPUs. The types are
 * flat: they are copied by = and freed by free(). In the calibration file (plan/cost/calibration.h)
 * a chip is
 *
 *     {"name": "NVIDIA H200", "units": 132, "capability": 90, "memory": 1.5e11, "devices": 8,
 *      "date": "2026-11-24T05:00:00Z", "driver": 13000, "cuda": 13000, "cublaslt": 130100,
 *      "nccl": 22707, "to_host": 5.1e10, "from_host": 5.3e10,
 *      "ops": {"bf16": {"product_fwd": [[8192, 4096, 4096, 3.9e-4], …],
 *                       "attention_fwd": [[2048, 64, 1.7e10, 5e-5], …],
 *                       "norm_fwd": [[3.3e7, 9e-6], …]}, "fp8": {…}},
 *      "exchanges": [{"transport": "nccl", "op": "all_reduce", "group": 2, "seconds": [[1024, 1e-5], …]}, …]}
 *
 * The last number of each operation is its seconds. A version of 0 is unknown; to_host and
 * from_host are bytes/s, and 0 if not measured.
 */
#ifndef MUSTER_TOPO_MEASURED_CHIP_H
#define MUSTER_TOPO_MEASURED_CHIP_H

#include "topo/measured.h"

struct node_kind;

enum measured_storage {
	MEASURED_FP32,
	MEASURED_BF16,
	MEASURED_FP16,
	MEASURED_FP8, /* products only: both operands have 8 bits */
	MEASURED_STORAGES
};
/* "fp32", "bf16", … */
const char *topo_measured_storage_word(enum measured_storage storage);

enum { CHIP_NAME = 64, CHIP_OPS = 512, CHIP_EXCHANGES = 48, CHIP_SIZES = 3 };

struct measured_chip_op {
	enum rate_class class;
	enum measured_storage storage;
	double size[CHIP_SIZES]; /* unused ones are 0 */
	double seconds;
};

struct measured_chip {
	char name[CHIP_NAME], date[32]; /* name: as the driver calls it */
	int units, capability;          /* multiprocessors; compute capability × 10 */
	double memory;
	int devices; /* of the host that was measured */
	int driver, cuda, cublaslt, nccl;
	double to_host, from_host;
	bool staged; /* exchanges went through host memory, without NCCL */
	int n_ops, n_exchanges;
	struct measured_chip_op ops[CHIP_OPS];
	struct measured_exchange exchanges[CHIP_EXCHANGES]; /* transport and crowd are unused */
};

/* How many numbers name the size of such an operation. */
int topo_measured_chip_sizes(enum rate_class class);
/* The work of an operation: FLOPs or bytes, as its rate_class counts them. */
double topo_measured_chip_work(const struct measured_chip_op *op);
/* Whether a kind of node has this chip: the same model, and as much memory, within a tenth. */
bool topo_measured_chip_is_of(const struct measured_chip *chip, const struct node_kind *k);

/* A new reference, NULL if memory is lacking. */
json_t *topo_measured_chip_json(const struct measured_chip *chip);
/* Reads a chip after checking its ranges. name: the file's, for errors. ERR_USAGE. */
int topo_measured_read_chip(json_t *o, const char *name, struct measured_chip *out, struct err *e);

#endif
