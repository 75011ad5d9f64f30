/*
 * missing — what the descriptions of a plan's nodes lack, and what is assumed in its place, for people
 * and for programs. Presets and machines that were examined lack little; files may lack a lot
 * (topo/read/assume.h).
 */
#ifndef MUSTER_PLAN_SHOW_MISSING_H
#define MUSTER_PLAN_SHOW_MISSING_H

#include "plan/plan.h"

#include <jansson.h>

/* p: only the nodes that have its ranks count; NULL: all nodes count. */
/* A heading and one line per phrase; nothing if nothing is missing. */
void show_missing_print(const struct cluster *c, const struct plan *p, struct buf *out);
/* A list of objects with the name of a kind of node and its phrases; a new reference. */
json_t *show_missing_json(const struct cluster *c, const struct plan *p);

#endif
