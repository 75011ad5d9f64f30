/*
 * place — which ranks are next to this one when its world is wired up: what the welcome says of it, for
 * comm_open() and for the exchange of endpoints.
 */
#ifndef MUSTER_AGENT_PLACE_H
#define MUSTER_AGENT_PLACE_H

#include "base/err.h"
#include "base/msg.h"
#include "libcomm/comm.h"

struct agent_place {
	struct comm_place comm; /* points to `here` */
	int *here;
	int *wants; /* the ranks whose endpoints this rank needs, each once */
	int n_wants;
};

/* apart: each rank counts as a host, because [network] backend is "tcp". */
int agent_place_read(const struct msg_welcome *w, bool apart, struct agent_place *out,
		     struct err *e);
void agent_place_fini(struct agent_place *p);

#endif
