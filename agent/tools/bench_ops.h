/* bench_ops — the kernels' operations, timed as training calls them: the machines of
 * plan/cost/measured.h. */
#ifndef MUSTER_AGENT_TOOLS_BENCH_OPS_H
#define MUSTER_AGENT_TOOLS_BENCH_OPS_H

#include "base/err.h"
#include "plan/cost/measured.h"

enum { BENCH_OPS_MOST = 256 };

/* Lies in memory that forked processes share. */
struct bench_ops {
	int agents, threads;
	bool narrow;
	double seconds; /* for each operation and size */
	bool quick;     /* small sizes alone */
	/* seconds: the mean over the agents of their medians */
	struct measured_point points[BENCH_OPS_MOST];
	int n;
};

/* Runs the agents side by side, each operation on all of them at once. */
int bench_ops_run(struct bench_ops *b, struct err *e);
#endif
