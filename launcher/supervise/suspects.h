/*
 * suspects — notes what speaks against a node, in the run's events and in the list of suspect nodes
 * that is kept across runs (launcher/suspects).
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_SUSPECTS_H
#define MUSTER_LAUNCHER_SUPERVISE_SUSPECTS_H

#include "launcher/suspects/suspects.h"

struct supervisor;

/* node: its number in the pool. evidence: what was seen, a clause for people. did: what the run did about
 * it; "": nothing. A list that cannot be written is reported once. */
void supervise_suspect_note(struct supervisor *s, int node, enum suspect_kind kind,
			    const char *evidence, const char *did);

#endif
