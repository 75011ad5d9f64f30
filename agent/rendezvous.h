/*
 * rendezvous — how the ranks of a generation find each other if some of them are agents of the last
 * one: PMIx serves only a generation of new agents, so the supervisor exchanges the endpoints over the
 * control channel, which authenticates and seals them (base/auth.h). An agent asks for those of the
 * ranks next to it (place.h), and gets no others.
 *
 * One fence, from one thread.
 */
#ifndef MUSTER_AGENT_RENDEZVOUS_H
#define MUSTER_AGENT_RENDEZVOUS_H

#include "agent/control.h"
#include "agent/place.h"
#include "base/err.h"
#include "libcomm/comm.h"

struct rendezvous;

/* Borrows the control and the place until the close. */
int agent_rendezvous_open(struct control *c, const struct agent_place *place, int rank, int size,
			  struct rendezvous **out, struct err *e);
void agent_rendezvous_close(struct rendezvous *r); /* takes NULL */
/* For comm_open(); valid until the close. */
const struct comm_bootstrap *agent_rendezvous_bootstrap(const struct rendezvous *r);

/* Reads AGENT_ENV_RANKS, "3,5-7/16": the rank of this process, `number` in the list, and the number of
 * all ranks. `number` does not matter if the list has one rank. */
int agent_rendezvous_parse(const char *ranks, int64_t number, int *rank, int *size, struct err *e);

#endif
