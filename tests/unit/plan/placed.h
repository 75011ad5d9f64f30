/* placed — places a layout's ranks on a machine made by hand, for tests of placement. */
#ifndef MUSTER_TESTS_UNIT_PLAN_PLACED_H
#define MUSTER_TESTS_UNIT_PLAN_PLACED_H

#include "machines.h"

#include "plan/place/place.h"

enum { PLACED_MAX = 512 };

struct placed_ranks {
	struct cluster_slot slots[PLACED_MAX];
	struct placement p;
};

struct layout placed_layout(int tp, int cp, int dp, int ep, int pp);
/* A training step's usual proportions: tp moves most, then ep and cp, dp once, and pp least. */
struct traffic placed_traffic(void);
/* Places at most PLACED_MAX ranks with that traffic. Free the result with
 * place_placement_free. */
void place_by_traffic(const struct cluster *c, struct layout l, struct placed_ranks *s);
/* Checks that every rank has a device and that no device has two ranks. */
void must_be_a_map(const struct cluster *c, const struct cluster_slot *slots, int world);

#endif
