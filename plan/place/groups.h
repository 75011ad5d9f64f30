/*
 * groups — who talks to whom: the communicators of a layout, as lists of ranks.
 *
 * A group's ranks come in the order of its collectives' ring. Every rank is in one group of each
 * kind (of one rank, where the degree is 1); GROUP_TIE has only the first and last pipeline ranks'.
 */
#ifndef MUSTER_PLAN_PLACE_GROUPS_H
#define MUSTER_PLAN_PLACE_GROUPS_H

#include "plan/spec/layout.h"

#include <stdbool.h>

enum group_kind {
	GROUP_TP,
	GROUP_CP,
	GROUP_EP,
	GROUP_DP,  /* the replicas of what is not an expert: cp × dp */
	GROUP_EDP, /* the replicas of an expert: cp × dp / ep */
	GROUP_PP,  /* a chain; its ends talk too where a rank has several chunks */
	GROUP_TIE, /* a tied embedding's two holders */
	GROUP_KINDS
};
/* "tp", "cp", …; of the replicas "dp" and "expert dp". */
const char *place_group_word(enum group_kind kind);

/* Ranks of each group. */
int place_group_size(const struct layout *l, enum group_kind kind);
/* Whether the rank is the first of its group: each group has one such. */
bool place_group_leads(const struct layout *l, enum group_kind kind, int rank);
/* The ranks of the group that `lead` leads, [place_group_size]. */
void place_group_ranks(const struct layout *l, enum group_kind kind, int lead, int *ranks);

#endif
