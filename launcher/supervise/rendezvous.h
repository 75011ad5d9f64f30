/*
 * rendezvous — the ranks of a generation that does not use PMIx publish their endpoints to the
 * supervisor, which sends those of all ranks to each of them, once all have come.
 *
 * It moves world² times the size of one rank's endpoints through this process: for 1,024 ranks of 300
 * bytes 300 MiB. Each rank is sent one part of the list at a time, so only that part is queued for it.
 * A generation of only new agents uses PMIx.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_RENDEZVOUS_H
#define MUSTER_LAUNCHER_SUPERVISE_RENDEZVOUS_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

struct supervisor;

struct rendezvous_state {
	json_t **values; /* of each rank; NULL: they have not come */
	int n;           /* that have come */
	int room;        /* of the list */
	/* all of them as messages, each for all ranks; NULL: they have not all come */
	struct buf *parts;
	int n_parts;
};

/* A generation begins. */
void supervise_rendezvous_reset(struct supervisor *s);
void supervise_rendezvous_close(struct supervisor *s);
/* What a rank publishes. After the last one's all ranks get everything. ERR_PROTO: it has published
 * before, or the generation uses PMIx. */
int supervise_rendezvous_note(struct supervisor *s, int rank, json_t *values, struct err *e);
/* The connection of the rank takes more. */
void supervise_rendezvous_go_on(struct supervisor *s, int rank);

#endif
