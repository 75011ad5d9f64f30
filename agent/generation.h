/*
 * generation — one generation of an agent: from the welcome, which says what it is part of, to the end
 * of its training. A process may run several, one after the other (control.h: regroup).
 *
 * Everything here belongs to one generation. What outlives it is the process, its control channel, and
 * what the libraries of the device keep.
 */
#ifndef MUSTER_AGENT_GENERATION_H
#define MUSTER_AGENT_GENERATION_H

#include "agent/boot.h"
#include "agent/control.h"
#include "agent/engine/train/phases.h"
#include "agent/engine/train/train.h"
#include "base/err.h"

struct generation;
struct ckpt_store;

/* What an agent has before the welcome. */
struct generation_start {
	struct control *control;
	const struct msg_welcome *welcome; /* borrowed until the close */
	/* PMIx, which generation_run() finishes when the ranks are wired up; NULL: the supervisor
	 * exchanges the endpoints. Its owner finishes it after a failure. */
	struct boot **boot;
	const char *host;            /* ranks of equal host share memory */
	struct ckpt_store *memory;   /* the process's copies of the state (ckpt/memory/store.h) */
	const struct phases *phases; /* of the process's start so far; NULL: it has been running */
};

/* Reads the welcome, opens the rank's log and binds the process. */
int agent_generation_open(const struct generation_start *start, struct generation **out,
			  struct err *e);
/* Wires up, and trains until the end. On failure agent_generation_blame() says which ranks' numbers are
 * wrong, if that is the reason. */
int agent_generation_run(struct generation *g, struct err *e);
const struct train_blame *agent_generation_blame(const struct generation *g);
/* The rank has failed by an error of its own, and has reported it. */
void agent_generation_fail(struct generation *g);
/* Never waits for another rank. Takes NULL. */
void agent_generation_close(struct generation *g);

#endif
