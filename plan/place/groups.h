/*
 * groups — the communicators of a layout, as lists of ranks.
 *
 * A group's ranks are in the order of its collectives' ring. Every rank is in one group of each
 * kind (a group of one rank if the degree is 1). Only ranks of the first and the last pipeline rank
 * are in a GROUP_TIE.
 */
#ifndef MUSTER_PLAN_PLACE_GROUPS_H
#define MUSTER_PLAN_PLACE_GROUPS_H

#include "plan/spec/layout.h"

#include <stdbool.h>

enum group_kind {
	GROUP_TP,
	GROUP_CP,
	GROUP_EP,
	GROUP_DP,  /* the replicas of all parameters but experts: cp × dp */
	GROUP_EDP, /* the replicas of an expert: cp × dp / ep */
	GROUP_PP,  /* a chain; its ends exchange messages too if a rank has several chunks */
	GROUP_TIE, /* the two holders of a tied embedding */
	GROUP_KINDS
};
/* "tp", "cp", …; GROUP_DP is "dp", GROUP_EDP is "expert dp". */
const char *place_group_word(enum group_kind kind);

/* The number of ranks in each group. */
int place_group_size(const struct layout *l, enum group_kind kind);
/* Whether the rank is the first of its group. */
bool place_group_leads(const struct layout *l, enum group_kind kind, int rank);
/* The ranks of the group whose first rank is `lead`, [place_group_size]. */
void place_group_ranks(const struct layout *l, enum group_kind kind, int lead, int *ranks);

#endif
