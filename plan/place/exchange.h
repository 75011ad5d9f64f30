/*
 * exchange — the seconds of exchanges between agents on one host, from what was measured there
 * (topo/measured.h).
 */
#ifndef MUSTER_PLAN_PLACE_EXCHANGE_H
#define MUSTER_PLAN_PLACE_EXCHANGE_H

#include "topo/measured.h"

/* Seconds of one exchange over m->transport with `crowd` ranks on the host, as if each rank had a
 * core; multiplied by place_exchange_share it is the time that a clock shows. Group sizes between
 * measured ones are interpolated. Returns 0 if it is unknown. */
double place_exchange_seconds(const struct measured *m, enum measured_op op, int group, int crowd,
			      double bytes);
/* Seconds of a meeting after `work` seconds of work; otherwise as above. */
double place_exchange_meeting(const struct measured *m, int group, int crowd, double work);
/* How much longer everything takes if `busy` threads run: busy / cores, at least 1. */
double place_exchange_share(const struct measured *m, double busy);

#endif
