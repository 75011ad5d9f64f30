/* bench_ops — times the kernels' operations as training calls them, for the measured machines of
 * plan/cost/measured.h. bench_rig.h has the calls. */
#ifndef MUSTER_AGENT_TOOLS_BENCH_OPS_H
#define MUSTER_AGENT_TOOLS_BENCH_OPS_H

#include "base/err.h"
#include "plan/cost/measured.h"

enum { BENCH_OPS_MAX = 256 };

/* Must be in memory that forked processes share. */
struct bench_ops {
	int agents, threads;
	bool low_precision; /* bf16 instead of fp32 */
	double seconds;     /* for each operation and size */
	bool quick;         /* only small sizes */
	/* seconds: the mean over the agents of their medians */
	struct measured_point points[BENCH_OPS_MAX];
	int n;
};

/* Runs b->agents agents at the same time. All of them run the same operation at once. */
int bench_ops_run(struct bench_ops *b, struct err *e);
#endif
