/*
 * symmetry — which devices and which ranks are equal, so that a search need not try both.
 *
 * A permutation of devices is a symmetry if it keeps the path of every pair: its bandwidth and
 * latency, and which shared links it has in common with other paths (link_load.h). A map and its
 * image under a symmetry cost the same. A permutation of ranks is a symmetry if it maps the groups
 * of each kind to groups of that kind, with the same flows. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_SYMMETRY_H
#define MUSTER_PLAN_PLACE_SYMMETRY_H

#include "plan/place/link_load.h"
#include "plan/place/place.h"

struct symmetry;

/* n: at most PLACE_EXACT. ERR_NOMEM. */
int place_symmetry_open(const struct link_load *load, const struct cluster_slot *devices, int n,
			struct symmetry **out, struct err *e);
void place_symmetry_close(struct symmetry *s);
/* Whether a symmetry maps device a to device b and keeps each of the `fixed` devices. Devices are
 * named by their index in the list. */
bool place_symmetry_exists(struct symmetry *s, const int *fixed, int n_fixed, int a, int b);

/* Whether there is a symmetry of ranks that shifts tp, cp and dp cyclically and maps rank 0 to this
 * rank. one_unit: all devices are in one unit of link_load.h. */
bool place_symmetry_of_ranks(const struct layout *l, const struct traffic *t, bool one_unit,
			     int rank);

#endif
