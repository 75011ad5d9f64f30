/*
 * topo_measured — how fast a host's processors compute and its agents exchange data, as `muster
 * bench calibrate` measured it.
 *
 * Agents that run at the same time share caches, memory and cores. So everything is measured with
 * as many of them as will train:
 *   machines   rates of operations, by `agents` side by side with `threads` each, in one storage
 *              type
 *   exchanges  seconds of a collective over its bytes, in groups of `group` ranks, all groups at
 *              once of `crowd` ranks on the host. If there are more ranks than cores, waking the
 *              others is most of a small exchange's time; the seconds include it.
 *
 * The types are flat: they are copied by = and freed by free(). plan/cost/measured.h predicts from
 * them. In the calibration file (plan/cost/calibration.h) they are
 *
 *     "machines": [{"agents": 2, "threads": 1, "storage": "fp32", "op_s": 0, "packing": [7e9, 3e9, 0],
 *                   "rates": {"product_fwd": [[1e6, 5e10], …], …}}, …]
 *     "exchanges": [{"transport": "shm", "op": "all_reduce", "group": 2, "crowd": 8, "seconds": [[1024, 1e-5], …]}, …]
 */
#ifndef MUSTER_TOPO_MEASURED_H
#define MUSTER_TOPO_MEASURED_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* --- Rates of operations ------------------------------------------------------ */

enum { RATE_POINTS = 16 };

/* The rate over the size of one operation. x ascends. Between two points the rate is linear in log
 * x; beyond the ends it is constant. */
struct rate_curve {
	int n; /* 0: unknown */
	double x[RATE_POINTS], rate[RATE_POINTS];
};

enum rate_class {
	/* FLOPs: 2 n in out. */
	RATE_PRODUCT_FWD,
	RATE_PRODUCT_INPUT,
	RATE_PRODUCT_WEIGHT,
	/* FLOPs of what is not masked: forward 4 × (visible query-key pairs) × heads × dim,
	 * backward 2.5 times that. x is the number of elements of a head's keys: keys × dim. */
	RATE_ATTENTION_FWD,
	RATE_ATTENTION_BWD,
	/* Bytes, read and written together. */
	RATE_NORM_FWD,
	RATE_NORM_BWD,
	RATE_GELU_FWD,
	RATE_GELU_BWD,
	RATE_SWIGLU_FWD,
	RATE_SWIGLU_BWD,
	RATE_ROPE,
	RATE_XENT,     /* its three passes together: read, read and written, read and written */
	RATE_SUM_ROWS, /* gradients of biases */
	RATE_MOVED,    /* copies, sums, embedding, rows of experts */
	/* AdamW's seven words per parameter; the rate includes what else a step does to each
	 * parameter (zeroing, the norm, rounding) */
	RATE_OPTIMIZER,
	RATE_CLASSES
};

/* "product_fwd", "norm_bwd", … */
const char *topo_rate_class_word(enum rate_class class);

struct machine_rates {
	/* FLOP/s or bytes/s. A class without a curve takes that of its kind: PRODUCT_FWD's,
	 * ATTENTION_FWD's (otherwise PRODUCT_FWD's), MOVED's. */
	struct rate_curve rates[RATE_CLASSES];
	/* bytes/s at which each form of a product packs its weights; 0: included in its rate */
	double packing[RATE_PRODUCT_WEIGHT + 1];
	double op; /* seconds that each operation takes in addition */
};

/* --- Measured figures ---------------------------------------------------------- */

enum { MEASURED_MACHINES = 32, MEASURED_EXCHANGES = 256, MEASURED_AGENTS = 65536 };

enum measured_transport { MEASURED_SHM, MEASURED_TCP, MEASURED_TRANSPORTS };

/* Bytes are: of the tensor that is reduced; of all that is gathered or scattered; of all that a
 * rank sends; of the message that each rank sends to the next one while it receives. A meeting is
 * the extra time that equal work takes if the ranks wait for one another after it, without the
 * exchange itself: the system disturbs one rank or another, and of ranks that share a core one is
 * always late. Instead of bytes it has the microseconds of work. Longer work than the longest that
 * was measured does not make it take longer. */
enum measured_op {
	MEASURED_ALL_REDUCE,
	MEASURED_ALL_GATHER,
	MEASURED_REDUCE_SCATTER,
	MEASURED_ALL_TO_ALL,
	MEASURED_MESSAGE,
	MEASURED_MEETING,
	MEASURED_OPS
};

struct measured_machine {
	int agents, threads;
	bool low_precision; /* 2-byte storage */
	struct machine_rates machine;
};

struct measured_exchange {
	enum measured_transport transport;
	enum measured_op op;
	int group, crowd;
	int n;
	double bytes[RATE_POINTS], seconds[RATE_POINTS]; /* bytes ascend */
};

struct measured {
	int cores;
	enum measured_transport transport; /* the one that the job uses */
	int n_machines, n_exchanges;
	struct measured_machine machines[MEASURED_MACHINES];
	struct measured_exchange exchanges[MEASURED_EXCHANGES];
};

const char *topo_measured_transport_word(enum measured_transport transport);
/* "all_reduce", "all_gather", … */
const char *topo_measured_op_word(enum measured_op op);

/* Replaces an entry of the same kind. An entry for which there is no room is dropped. */
void topo_measured_add_machine(struct measured *m, const struct measured_machine *machine);
void topo_measured_add_exchange(struct measured *m, const struct measured_exchange *exchange);

/* New references, NULL if memory is lacking. */
json_t *topo_measured_machines_json(const struct measured *m);
json_t *topo_measured_exchanges_json(const struct measured *m);
/* Adds the entries of `list` to *m after checking their ranges. name: the file's, for errors.
 * ERR_USAGE. */
int topo_measured_read_machines(json_t *list, const char *name, struct measured *m, struct err *e);
int topo_measured_read_exchanges(json_t *list, const char *name, struct measured *m, struct err *e);

#endif
