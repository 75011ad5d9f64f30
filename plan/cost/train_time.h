/*
 * train_time — the time to train: steps, the checkpoints between them, and the cost of failures.
 *
 * Failures come at random, on average `mtbf` seconds apart (exponentially distributed). A failure
 * costs the work since the last committed checkpoint, and then `restart`. Frequent checkpoints cost
 * the time to save them, rare ones the work that is repeated:
 *
 *     Young, "A First Order Approximation to the Optimum Checkpoint Interval", CACM 17(9), 1974:
 *                               √(2 d M)
 *     Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
 *     FGCS 22, 2006, equation (37):
 *                               √(2 d M) (1 + √(d / 2M) / 3 + d / 2M / 9) - d, and M where d ≥ 2M
 *     expected time, Daly's equation (20):   M e^{R / M} (e^{(t + d) / M} - 1) W / t
 *
 * M is the mtbf, d the time for which a checkpoint stops training, t the work between two
 * checkpoints, R the cost of a failure besides the lost work, W all work. muster writes checkpoints
 * in the background. Training waits for the snapshot only (d). Until `write` seconds later the
 * previous checkpoint is the one that counts; so `write` is lost work that adds to R, and no
 * interval is shorter than it.
 */
#ifndef MUSTER_PLAN_COST_TRAIN_TIME_H
#define MUSTER_PLAN_COST_TRAIN_TIME_H

#include <stdint.h>

/* Seconds. */
struct train_costs {
	double step;     /* a step without checkpoint or failure */
	double snapshot; /* for which training waits at a checkpoint */
	double write;    /* from the snapshot to its commit */
	/* from a failure to the first step after it: detect, re-plan, respawn, load */
	double restart;
	double mtbf; /* of all devices together; 0: nothing ever fails */
};

struct train_time {
	int64_t every;   /* steps between checkpoints */
	double failures; /* expected number */
	/* lost: repeated work and restarts. total: the sum; INFINITY if training would never end */
	double work, saving, lost, total;
};

/* The number of steps between checkpoints that costs the least: from 1 to `steps`; `steps` if
 * nothing ever fails. */
int64_t cost_train_interval(const struct train_costs *c, int64_t steps);
/* every: steps between checkpoints; 0: only at the end. */
void cost_train_expect(const struct train_costs *c, int64_t steps, int64_t every,
		       struct train_time *out);

struct job;
struct cluster;
struct plan;
/*
 * The costs of a plan, from the job's own figures of its cluster: restart.node_mtbf and respawn,
 * checkpoint.node_bandwidth and bandwidth. Every rank saves an equal part of the parameters in fp32
 * and of the optimizer's states (plan/spec/optimizers.h), whatever the ZeRO stage. After a failure
 * each rank reads what it holds of them.
 *
 * The defaults: Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783. Section 3.3.4:
 * 419 unexpected interruptions in 54 days of 16,384 GPUs on 2,048 nodes, one in 6,300 hours a node
 * (Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
 * arXiv 2410.21680: 6.5 in a thousand node-days, one in 3,700 hours, on A100s; 2.3, or 10,400
 * hours, on another cluster). Section 3.3.1: storage that sustains 2 TB/s, 1 GB/s for each of those
 * nodes. Jiang et al., "MegaScale", arXiv 2402.15627, section 3.5: communicators of 10,000 GPUs in
 * less than 30 s.
 */
void cost_train_costs_of(const struct job *job, const struct cluster *cluster, const struct plan *p,
			 struct train_costs *out);

#endif
