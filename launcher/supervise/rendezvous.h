/*
 * rendezvous — the ranks of a generation that does not use PMIx publish their endpoints to the
 * supervisor, and say whose they need: those of the ranks next to them (wiring.h). Once all have come,
 * each is sent these, and no others.
 *
 * So a rank of a node of k ranks costs at most k + 3 times the size of one rank's endpoints, whatever
 * the size of the world, and most ranks cost that of one. A long list goes in parts: only one of them is
 * queued for a rank at a time. A generation of only new agents uses PMIx.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_RENDEZVOUS_H
#define MUSTER_LAUNCHER_SUPERVISE_RENDEZVOUS_H

#include "base/err.h"
#include "base/msg.h"

#include <jansson.h>

struct supervisor;

struct rendezvous_state {
	struct published *ranks; /* NULL: none has come */
	int n;                   /* that have come */
	int world;               /* of the generation; the length of the list */
};

/* A generation begins. */
void supervise_rendezvous_reset(struct supervisor *s);
void supervise_rendezvous_close(struct supervisor *s);
/* What a rank publishes. After the last one's all ranks get what they need. Once another plan is chosen, what
 * comes late from the generation before it is skipped. ERR_PROTO: it has published
 * before, the generation uses PMIx, or it asks for a rank that does not exist. */
int supervise_rendezvous_note(struct supervisor *s, int rank, const struct msg_endpoints *m,
			      struct err *e);
/* The connection of the rank takes more. */
void supervise_rendezvous_go_on(struct supervisor *s, int rank);

#endif
