/*
 * burn_in_figures — what is measured on each node before a run starts ([launch] preflight = full).
 *
 * The burn-in of a node (agent/tools/bench_node.h) measures the figures, and the supervisor
 * (launcher/supervise/burn_in_judge.h) compares them. To add a figure, add its row here, and
 * measure it in agent/tools/bench_node_*.c.
 */
#ifndef MUSTER_BASE_BURN_IN_FIGURES_H
#define MUSTER_BASE_BURN_IN_FIGURES_H

/* clang-format off */

/* id, word, name for people, unit for people, how many of the figure's unit that is, whether less is
 * better, exponent of the factor by which it may differ from its peers', value that is never bad
 *
 * A figure's own unit is FLOP/s, bytes/s or seconds. Figures of a link are those of one node: it
 * sends to, or receives from, one other node. The folder of checkpoints is one that all nodes share,
 * so its figures differ more without any fault, and a fast one needs no comparison. */
#define BURN_IN_FIGURES(X) \
	X(BURN_IN_PRODUCT,    "product",    "product rate",                       "GFLOP/s", 1e9,  false, 1, 0) \
	X(BURN_IN_MEMORY,     "memory",     "memory bandwidth",                   "GB/s",    1e9,  false, 1, 0) \
	X(BURN_IN_DISK_WRITE, "disk-write", "write rate of the checkpoints",      "MB/s",    1e6,  false, 2, 500e6) \
	X(BURN_IN_DISK_READ,  "disk-read",  "read rate of the checkpoints",       "MB/s",    1e6,  false, 2, 500e6) \
	X(BURN_IN_DISK_SYNC,  "disk-sync",  "time of an fsync of the checkpoints", "ms",     1e-3, true,  2, 0.1) \
	X(BURN_IN_SEND,       "send",       "rate of sending",                    "GB/s",    1e9,  false, 1, 0) \
	X(BURN_IN_RECEIVE,    "receive",    "rate of receiving",                  "GB/s",    1e9,  false, 1, 0)

enum burn_in_what {
#define BURN_IN_ENUM(id, word, name, unit, scale, less, exponent, harmless) id,
	BURN_IN_FIGURES(BURN_IN_ENUM)
#undef BURN_IN_ENUM
	BURN_IN_COUNT
};

/* clang-format on */

#endif
