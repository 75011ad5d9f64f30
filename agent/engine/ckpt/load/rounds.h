/*
 * rounds — reads the slices of a plan and hands them round.
 *
 * Each rank goes through the same rounds (turns.h). In a round a reader sends what it has read to the
 * ranks that need it, and reads its next turn meanwhile. Ranks that share nothing in a round do not
 * wait for each other. What arrives goes straight into the box if its memory is consecutive there.
 *
 * A rank holds at most two turns, the parts of one turn that it had to gather, and what one round
 * brings it; all of this is allocated before the first round.
 *
 * Failures. A rank that cannot read, or finds a wrong digest, continues to take part: it sends
 * whatever its buffers hold and drops what it receives, so that nobody waits for it in vain. After
 * every AGREE_ROUNDS rounds and at the end all ranks agree on whether one has failed, and stop
 * together. No rank uses the boxes before the last agreement. If a rank dies, the operations of the
 * group fail on all others.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_ROUNDS_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_ROUNDS_H

#include "agent/engine/ckpt/load/landing.h"
#include "agent/engine/ckpt/load/turns.h"
#include "libcomm/comm.h"

struct rounds;

/* Allocates what the rounds need. Borrows all. watch may be NULL. */
int ckpt_rounds_open(struct comm *group, const struct pieces *p, struct landing *landing,
		     struct ckpt_provider *const *providers, const struct ckpt_watch *watch,
		     struct rounds **out, struct err *e);
void ckpt_rounds_close(struct rounds *r); /* takes NULL */

/* Collective. Every rank gets the same result and *culprit (agree.h). */
int ckpt_rounds_run(struct rounds *r, int *culprit, struct err *e);

#endif
