/*
 * rank_map — draws which rank is on which device.
 *
 * Up to eight nodes: a box for each tensor-parallel group, with its coordinates above its ranks.
 * More nodes: a table in which nodes with the same pattern share a line. For plan/show/plan_text.c
 * only.
 */
#ifndef MUSTER_PLAN_SHOW_RANK_MAP_H
#define MUSTER_PLAN_SHOW_RANK_MAP_H

#include "plan/plan.h"

void show_rank_map_print(const struct cluster *c, const struct plan *p, struct buf *out);

#endif
