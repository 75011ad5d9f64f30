/* bench_exchange — measures collectives among the ranks of this host, in groups of several sizes
 * that run at the same time: the exchanges of plan/cost/measured.h. */
#ifndef MUSTER_AGENT_TOOLS_BENCH_EXCHANGE_H
#define MUSTER_AGENT_TOOLS_BENCH_EXCHANGE_H

#include "plan/cost/measured.h"

/* Adds every operation in groups of 2, 4, … `crowd` ranks; `crowd` ranks run. seconds: for each
 * operation, group and size. */
int bench_exchange(enum measured_transport transport, int crowd, double seconds,
		   struct measured *out, struct err *e);

#endif
