/*
 * links — describes the links of each kind of group in common terms: fills struct
 * place_links for a map. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_LINKS_H
#define MUSTER_PLAN_PLACE_LINKS_H

#include "plan/place/place.h"
#include "plan/place/group_costs.h"

void place_links_of(const struct cluster *c, const struct layout *l, const struct traffic *t,
		    struct group_costs *w, const struct cluster_slot *slots,
		    struct place_links out[GROUP_KINDS]);

#endif
