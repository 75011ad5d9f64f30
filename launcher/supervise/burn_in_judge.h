/*
 * burn_in_judge — compares the figures of the nodes, and finds those that are too bad.
 *
 * A node's figure is compared with the median of its peers: the same figure of the other nodes of
 * its kind, of all their devices. It is bad if it is worse than that by more than the factor, to
 * the power of the figure's exponent (base/burn_in_figures.h). Of an even number of peers the worse
 * of the two in the middle counts. A node without a peer is not compared.
 *
 * A link belongs to two nodes. The figure of a node is that of its best link, so that one slow link
 * blames neither end: a node is blamed if all its links are slow. A slow link between two nodes
 * that are not blamed is a finding of its own.
 *
 * Figures that were measured twice count with their better value, because something else on the
 * machine can only make them worse. The functions are pure. They take nodes as numbers from 0.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_BURN_IN_JUDGE_H
#define MUSTER_LAUNCHER_SUPERVISE_BURN_IN_JUDGE_H

#include "base/buf.h"
#include "base/burn_in_figures.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct burn_in_figure {
	int node, peer; /* peer: the other end of a link; -1: the figure is not of a link */
	enum burn_in_what what;
	int device;
	double value; /* 0: the link does not work */
	double own;   /* by the node's calibration; 0: unknown */
	int before; /* the node's row before this one; -1: none; supervise_burn_in_add() sets it */
};

struct burn_in_table {
	struct burn_in_figure *rows;
	int n, cap;
	int *last; /* by node: the number of its last row, counted from 1; 0: none */
	int n_nodes;
};
int supervise_burn_in_table_init(struct burn_in_table *t, int n_nodes, struct err *e);
void supervise_burn_in_table_fini(struct burn_in_table *t);

/* Adds a figure. If the same one is there, the better value stays. */
int supervise_burn_in_add(struct burn_in_table *t, const struct burn_in_figure *f, struct err *e);
/* Adds what a node has sent: the list `figures` of the message burn_in_result. peer: as above.
 * ERR_PROTO: a figure is invalid, or does not belong there; those before it were added. */
int supervise_burn_in_read(struct burn_in_table *t, int node, int peer, const json_t *figures,
			   struct err *e);

enum burn_in_fault {
	BURN_IN_PEERS, /* the node is worse than its peers */
	BURN_IN_LINK,  /* the link from `node` to `peer` (or back) is worse than the others */
	BURN_IN_OWN    /* the node is worse than its calibration says */
};
struct burn_in_finding {
	enum burn_in_fault fault;
	struct burn_in_figure figure;
	double reference; /* the median, or the calibration */
	double excess;    /* how many times worse than it may be; above 1 */
};
struct burn_in_findings {
	struct burn_in_finding *of;
	int n, cap;
};
void supervise_burn_in_findings_fini(struct burn_in_findings *f);

/* Replaces `out` by the findings, the one with the largest excess first. kinds[node]: the kind of
 * each of the n_nodes nodes. */
int supervise_burn_in_judge(const struct burn_in_table *t, const int *kinds, int n_nodes,
			    double factor, struct burn_in_findings *out, struct err *e);

/* The median over all nodes; 0: nobody has the figure. */
double supervise_burn_in_median(const struct burn_in_table *t, enum burn_in_what what);

const char *supervise_burn_in_word(enum burn_in_what what);
/* Appends "product rate 30.2 GFLOP/s". */
void supervise_burn_in_print(enum burn_in_what what, double value, struct buf *out);
/* Appends "product rate 12.1 GFLOP/s, the median of its peers is 30.2". names: of the nodes. */
void supervise_burn_in_describe(const struct burn_in_finding *f, const char *const *names,
				struct buf *out);

/* --- Which nodes measure a link with each other ------------------------------------------- */

enum { BURN_IN_ROUNDS = 4 };

/* The nodes form a ring, and each node has links with those at distance 1 and 2. partners[i *
 * BURN_IN_ROUNDS + r] is the node with which node i measures in round r; -1: none. Every node has
 * at least one link if there are two nodes, and two if there are three. Returns the number of
 * rounds that are needed. */
int supervise_burn_in_pairs(int n_nodes, int *partners);

#endif
