/*
 * stacks — what the ranks of a hang do, found out before their processes are ended: who hung first,
 * and in what.
 *
 * The suspects are the rank that the watchdog named and those that the flight recorders blame
 * (verdict.c). Each of them is examined (agent/stacks), and one rank that waits for them, for
 * comparison. An agent whose control thread answers examines itself. Otherwise another agent of its
 * host does it, or, if the host is this one, this process. All of them are examined at the same
 * time.
 *
 * The first suspect that is stopped, stuck in the kernel or in a system call, or computing, hung
 * first: the others wait for it. If each of them only waits, the flight recorders decide. The
 * result becomes the event hang and a line for people, and the loss is that of the rank that hung
 * first.
 *
 * [restart] stacks_timeout limits the time of all of this.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STACKS_H
#define MUSTER_LAUNCHER_SUPERVISE_STACKS_H

#include "base/messages.h"
#include "launcher/rundir/events.h"
#include "launcher/supervise/faults.h"

#include <stdbool.h>

enum { STACKS_RANKS = 64, STACKS_BLAMED = 4, STACKS_WORD = 16, STACKS_TEXT = 400 };

struct supervisor;
struct child;

struct stacks_look {
	struct supervisor *s;
	int rank, by;        /* by: the rank whose agent was asked; -1: this process looks */
	bool suspect;        /* false: it is examined for comparison */
	bool done;           /* it has answered, or will not */
	struct child *child; /* of this process */
	char kind[STACKS_WORD], text[STACKS_TEXT]; /* of the answer; "": there is none */
};

struct stacks_state {
	struct stacks_look looks[STACKS_RANKS];
	int n;
	double began;
	/* of the flight recorders; "": no verdict */
	char finding[STACKS_WORD], verdict[1000];
	int blamed[STACKS_BLAMED], n_blamed;
	enum hang_cause cause;
};

/* A generation begins. */
void supervise_stacks_reset(struct supervisor *s);
/* What the flight recorders show. */
void supervise_stacks_note_verdict(struct supervisor *s, const struct rundir_verdict *v);
/* Starts to examine the ranks if the loss is a hang or a silence. False: there is nothing to wait
 * for. */
bool supervise_stacks_start(struct supervisor *s);
/* The answer of the agent `by`. */
void supervise_stacks_note(struct supervisor *s, int by, const struct msg_examined *m);
/* Whether every answer that can come has come. */
bool supervise_stacks_ready(struct supervisor *s);
/* Names the rank that hung first, in s->cause too. Gives up what is still under way. */
void supervise_stacks_finish(struct supervisor *s);
/* Gives up what is under way. */
void supervise_stacks_stop(struct supervisor *s);

#endif
