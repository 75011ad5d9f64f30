/* seating — places a layout's ranks on a machine made by hand, for tests of placement. */
#ifndef MUSTER_TESTS_PLAN_SEATING_H
#define MUSTER_TESTS_PLAN_SEATING_H

#include "machines.h"

#include "plan/place/place.h"

enum { SEATING_MOST = 512 };

struct seating {
	struct cluster_slot slots[SEATING_MOST];
	struct placement p;
};

struct layout seating_grid(int tp, int cp, int dp, int ep, int pp);
/* A training step's usual proportions: tp moves most, then ep and cp, dp once, and pp least. */
struct traffic seating_traffic(void);
/* Places at most SEATING_MOST ranks with that traffic. Free the result with
 * place_placement_free. */
void seating_take(const struct cluster *c, struct layout l, struct seating *s);
/* Checks that every rank has a device and that no device has two ranks. */
void seating_must_be_a_map(const struct cluster *c, const struct cluster_slot *slots, int world);

#endif
