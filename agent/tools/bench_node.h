/*
 * bench_node — the files of `muster bench node`, the burn-in of one node.
 *
 *     bench_node.c          the command line; measures and prints if it was started by hand
 *     bench_node_measure.c  products and memory of each device
 *     bench_node_disk.c     the folder of checkpoints
 *     bench_node_link.c     the link to another node
 *     bench_node_serve.c    does what the supervisor orders (launcher/supervise/burn_in.h)
 *
 * The figures and their units are those of base/burn_in_figures.h. Every measurement is bounded in
 * time, whatever the machine does.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_NODE_H
#define MUSTER_AGENT_TOOLS_BENCH_NODE_H

#include "agent/connection.h"
#include "base/burn_in_figures.h"
#include "base/err.h"
#include "libcomm/comm.h"

#include <jansson.h>
#include <stdbool.h>

struct bench_node {
	const char *backend; /* as of backend_open_device() */
	int devices;         /* 0: as many as can be opened; one that cannot is not noticed */
	const char *dir;     /* of the checkpoints; it need not exist; NULL: it is not measured */
	const char *calibration; /* [launch] calibration; NULL: auto */
	struct comm_options comm;
};

enum { NODE_DEVICES = 64, NODE_FIGURES = 3 * NODE_DEVICES };
struct node_figure {
	enum burn_in_what what;
	int device;
	double value, own; /* own: by the calibration; 0: unknown */
};
struct node_figures {
	struct node_figure of[NODE_FIGURES];
	int n;
	struct err
		trouble; /* the first thing that could not be measured, or is wrong; code 0: none */
};
/* Drops a figure for which there is no room. */
void bench_node_add(struct node_figures *f, enum burn_in_what what, int device, double value);
const char *bench_node_word(enum burn_in_what what);

/* Measures products and memory of all devices at the same time, for about `seconds`. A product is
 * also repeated on the same numbers: other bits in the result are `trouble`. */
void bench_node_devices(const struct bench_node *b, double seconds, struct node_figures *out);
/* Measures the folder of checkpoints. If the folder does not answer within a few times `seconds`,
 * that is `trouble`, and a thread stays behind that waits for it. */
void bench_node_disk(const char *dir, double seconds, struct node_figures *out);
/* Everything above, and what the calibration of this node says about it. */
void bench_node_all(const struct bench_node *b, double seconds, struct node_figures *out);

/* Measures the link of two ranks in both directions, each for about seconds / 2. */
int bench_node_link(const struct bench_node *b, const struct comm_bootstrap *pair, double seconds,
		    struct node_figures *out, struct err *e);

/* Does what the supervisor orders until it closes the connection. host: name of this node. */
int bench_node_serve(const struct bench_node *b, const char *host, struct err *e);

#endif
