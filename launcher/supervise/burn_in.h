/*
 * burn_in — measures all nodes before the first generation ([launch] preflight = full), and
 * compares them (burn_in_judge.h).
 *
 * The launch backend starts `muster-agent bench node` on every node that has passed the checks of
 * node_checks.h. Each of these processes connects to a listener of the burn-in, which has a secret
 * of its own, as agents do to that of the run. Then the supervisor gives orders, and all nodes obey
 * at the same time:
 *
 *     BURN_IN_CONNECT  until all have connected
 *     BURN_IN_NODES    products, memory and the folder of the checkpoints
 *     BURN_IN_LINKS    up to BURN_IN_ROUNDS rounds; in each, two nodes measure the link between them in
 *                      both directions. They find each other through the supervisor, which forwards
 *                      their endpoints, and use the transport that the job uses
 *
 * If a figure is bad and 30 % of the time are left, all nodes are measured once more, as far as the
 * time allows, and the better values count. A node that does not connect, does not answer, or ends
 * counts as bad. If that happens to most of several nodes, or no node connects, the fault is not
 * theirs, and the run starts with them. After [health] preflight_timeout seconds what is known is
 * judged.
 *
 * Bad nodes are reported to node_checks.h. burn_in_start.c starts the processes, and
 * burn_in_report.c prints and records the result.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_BURN_IN_H
#define MUSTER_LAUNCHER_SUPERVISE_BURN_IN_H

#include "base/auth.h"
#include "base/net.h"
#include "launcher/supervise/burn_in_judge.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor;
struct connection;
struct connections_options;
struct burn_in;

/* Starts it. True: supervise_checks_go_on() is called when it has ended, unless it is stopped.
 * False: it is not asked for, has been made, or cannot be made, which is printed. */
bool supervise_burn_in_start(struct supervisor *s);
/* To be called several times per second. */
void supervise_burn_in_tick(struct supervisor *s);
/* Ends it without a result. The loop must run once more. */
void supervise_burn_in_stop(struct supervisor *s);

/* --- For burn_in_start.c and burn_in_report.c --------------------------------------------- */

enum burn_in_phase { BURN_IN_CONNECT, BURN_IN_NODES, BURN_IN_LINKS };

struct burn_in_node {
	int number; /* in the pool */
	struct connection *line;
	int64_t order;  /* that it works on; 0: none */
	int partner;    /* the other end of the link that it measures, as an index; -1: none */
	bool lost;      /* it takes no further orders */
	char why[600];  /* why it is bad, apart from its figures; "": it is not */
	char note[600]; /* the last error about one of its links; "": none */
	int note_peer;  /* the other end of that link, as an index */
};

struct burn_in {
	struct supervisor *s;
	struct connections *connections;
	struct child *step; /* NULL: it has ended */
	char address[NET_ADDR_MAX], secret[AUTH_SECRET_HEX];
	struct burn_in_node *nodes;
	int n;
	int *partners, rounds, round;
	enum burn_in_phase phase;
	bool repeated;
	int64_t orders; /* given so far */
	int busy;       /* above 0: the loss of a connection does not make the burn-in go on */
	double began, met,
		deadline; /* times: of the start; of the first connection (-1: none); of the phase */
	struct burn_in_table table;
	struct burn_in_findings findings;
	struct err failed; /* the memory is used up */
};

/* burn_in_start.c, in this order. The burn-in measures the nodes that have passed the checks; b->n
 * may be
 * 0. The listener is on the host of the run's; its address and secret are set. */
int supervise_burn_in_take_nodes(struct burn_in *b, struct err *e);
int supervise_burn_in_listen(struct burn_in *b, struct connections_options *co, struct err *e);
int supervise_burn_in_step(struct burn_in *b,
			   void (*ended)(void *arg, int status, const char *output), struct err *e);

/* burn_in_report.c: prints and records the findings, and writes preflight.json. */
void supervise_burn_in_report(struct burn_in *b, double seconds);

#endif
