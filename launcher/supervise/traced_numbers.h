/*
 * traced_numbers — the ranks that wrong numbers were traced to (agent/engine/train/diagnose.h and
 * replicas.h): events for people, and suspects.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_TRACED_NUMBERS_H
#define MUSTER_LAUNCHER_SUPERVISE_TRACED_NUMBERS_H

#include "base/err.h"

#include <jansson.h>

struct supervisor;
struct lost_rank;

/* Reads the member `blame` of a message failed. Records it unless it is already recorded for this
 * generation, and makes *loss the loss of the rank that it names: that rank instead of the one that
 * reported it first; -1 if it names several. ERR_PROTO: the member is malformed, or *loss is not
 * one of wrong numbers. */
int supervise_traced_numbers_note(struct supervisor *s, const json_t *blame, struct lost_rank *loss,
				  struct err *e);

#endif
