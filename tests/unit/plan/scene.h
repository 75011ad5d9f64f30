/* scene — a run's cost case for tests of the cost model. It is as a plan would have it, but the
 * stages are equal. */
#ifndef MUSTER_TESTS_UNIT_PLAN_SCENE_H
#define MUSTER_TESTS_UNIT_PLAN_SCENE_H

#include "plan/cost/step.h"

struct run {
	int heads, hidden, layers, tp, pp, chunks, devices, global, micro;
	double seconds; /* measured */
};

/* The other settings with which a table's rows were run. */
struct setting {
	const char *words, *cluster;
	const struct cost_engine *engine;
};

/* A run's case, and the objects that it borrows. */
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

/* machine: NULL means the cluster's machine. The caller frees x->stages. */
void open_scene(struct scene *x, const struct run *r, const struct setting *s,
		const struct cost_machine *machine);
struct plan_time predict_on(const struct run *r, const struct setting *s,
			    const struct cost_machine *machine);
struct plan_time predict(const struct run *r, const struct setting *s);

/* Makes a host with this many cores and slots, where every operation has a flat rate. Agents that
 * wait for one another on shared cores lose `meeting` seconds by a clock; this is measured with one
 * group of 4 among 4 agents. 0: not measured. */
void open_host(int cores, int slots, double meeting, struct cluster *c);

#endif
