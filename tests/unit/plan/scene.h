/* scene — a run's cost case, as a plan would have it but with equal stages, for tests of the
 * cost model. */
#ifndef MUSTER_TESTS_UNIT_PLAN_SCENE_H
#define MUSTER_TESTS_UNIT_PLAN_SCENE_H

#include "plan/cost/step.h"

struct run {
	int heads, hidden, layers, tp, pp, chunks, devices, global, micro;
	double seconds; /* measured */
};

/* How a table's rows were run, besides. */
struct setting {
	const char *words, *cluster;
	const struct engine *engine;
};

/* A run's case, and what it borrows. */
struct scene {
	struct job job;
	struct layout layout;
	struct model_shape shape;
	struct cost_units units;
	struct group_links group_links[GROUP_KINDS];
	struct cost_machine machine;
	struct stage *stages;
	struct cost_case of;
};

/* machine: NULL, the cluster's. x->stages is freed by the caller. */
void open_scene(struct scene *x, const struct run *r, const struct setting *s,
		const struct cost_machine *machine);
struct plan_time predict_on(const struct run *r, const struct setting *s,
			    const struct cost_machine *machine);
struct plan_time predict(const struct run *r, const struct setting *s);

/* This host as if it had so many cores and slots, every operation at a flat rate; agents that wait
 * for one another on cores that they share lose `meeting` seconds by a clock, in groups of four of
 * four. 0: not measured. */
void open_host(int cores, int slots, double meeting, struct cluster *c);

#endif
