/*
 * node — the PMIx server and the agents of the node that a helper runs on (helper.h).
 *
 * All calls and callbacks are on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_HELPER_NODE_H
#define MUSTER_LAUNCHER_HELPER_NODE_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/helper/start.h"

#include <stdint.h>
#include <uv.h>

struct node;

struct node_options {
	uv_loop_t *loop;
	const struct helper_start *start; /* borrowed until helper_node_close() */
	uint32_t generation;
	/* The node's ranks have entered a fence, and have put this before it. */
	void (*put)(void *arg, const struct buf *data);
	/* As in launcher/pmix/agents.h. */
	void (*exited)(void *arg, int rank, int status);
	void (*all_gone)(void *arg);
	void *arg;
};

/* Starts the server and then the agents; takes about 20 ms. On failure nothing is left. */
int helper_node_open(const struct node_options *o, struct node **out, struct err *e);
/* Ends the oldest open fence: what the ranks of all nodes have put before it. */
void helper_node_answer(struct node *n, const struct buf *all);
void helper_node_kill(struct node *n);
void helper_node_signal(struct node *n, int signal);
/* Ends the server and removes its files. Frees the node once the loop has closed its handles. Called
 * after all_gone(). Takes NULL. */
void helper_node_close(struct node *n);

#endif
