/*
 * progress — what the ranks say of their progress: each by itself (message progress), or the first rank
 * of a node for those of its node (message node_progress, agent/node_relay.h).
 *
 * The reports of one rank may come on both ways, as when its relay was stopped for a while. Its counts
 * never fall, so a report with a lower count is an older one, and is left out. The messages of MSG_REPORTS
 * (base/rank_rows.h), which may be rows of node_progress too, have numbers for that; one whose body is
 * invalid costs the rank that it is of, not the one that has handed it on.
 *
 * Only a row of progress counts as news of its rank: the rank has sent it, or its counts would be lower. So a
 * rank that is stopped falls silent behind a relay that lives as if there were none.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_PROGRESS_H
#define MUSTER_LAUNCHER_SUPERVISE_PROGRESS_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct supervisor;
struct rank_state;

/* A message of the rank, or a report about it that is no older one, has come. */
void supervise_progress_heard(struct supervisor *s, int rank);
/* The bodies of the two messages, by which rank they were sent. ERR_PROTO: the message is invalid. */
int supervise_progress_note(struct supervisor *s, int rank, const json_t *body, struct err *e);
int supervise_progress_note_node(struct supervisor *s, int rank, const json_t *body, struct err *e);
/* The rank is in this step and phase. */
void supervise_progress_set(struct supervisor *s, struct rank_state *k, int64_t step,
			    const char *phase);
/* Reads what waits in the sockets of the rank and of the one that reports for its node. A change of the
 * generation ends it. */
void supervise_progress_read_out(struct supervisor *s, int rank);

#endif
