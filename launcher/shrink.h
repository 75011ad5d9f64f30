/*
 * shrink — the layouts that a job may have instead of its own where its own does not fit: a start on
 * fewer nodes than it asks for (fit.h), or the nodes that a loss has left (supervise/policy.h). It
 * is the one place that decides this.
 *
 * [restart] shrink says what is permitted:
 *     keep   no other layout
 *     dp     the same layout with the highest dp that fits
 *     any    as dp, or the degrees and the schedule are planned again
 * Of several possible layouts the one with the shortest predicted step is taken, and the lower dp if
 * two are equal. The global batch never changes: each replica has more micro-batches instead.
 *
 * A job that names the device of each of its ranks fits one number of ranks, so it has no other
 * layout.
 */
#ifndef MUSTER_LAUNCHER_SHRINK_H
#define MUSTER_LAUNCHER_SHRINK_H

#include "launcher/deployment.h"

#include <stdbool.h>
#include <stdint.h>

enum shrink_way { SHRINK_WAY_DP, SHRINK_WAY_REPLAN, SHRINK_WAYS };

/* A layout that was examined. */
struct shrink_candidate {
	enum shrink_way way;
	struct deployment *deployment; /* NULL: it is impossible */
	bool possible;
	double step_s;  /* predicted seconds of a step; 0: none is predicted */
	char text[240]; /* the layout, or why it is impossible */
};

struct shrink_request {
	const struct job *job;         /* its layout is kept with a lower dp; no key is open */
	int64_t dp_most, dp_least;     /* the values of dp to try, from the highest one */
	const struct job *again;       /* the job that is planned again */
	uint32_t open;                 /* its keys that were left to muster from the beginning */
	const struct cluster *cluster; /* the nodes and devices that are left; borrowed */
	enum job_shrink permitted;
	/* The job as it was asked for: if it does not name the devices of the ranks, the
	 * planner has chosen their speeds, and chooses again. */
	const struct job *asked;
};

/* Whether the job names the device of each rank ([launch] speeds or threads). */
bool launcher_shrink_names_devices(const struct job *job);

/* Plans `job` with this dp and these open keys on a copy of the cluster. Sets all of *out but `way`.
 * Returns whether it is possible; the caller owns out->deployment. */
bool launcher_shrink_try(const struct job *job, int64_t dp, uint32_t open, const struct cluster *c,
			 struct shrink_candidate *out);
/* Sets the text and the time of *out to those of a deployment. */
void launcher_shrink_describe(const struct deployment *d, struct shrink_candidate *out);

/* Each one examines one way, whether or not it is permitted. True: it is possible, and the caller
 * owns out->deployment. */
bool launcher_shrink_dp(const struct shrink_request *r, struct shrink_candidate *out);
bool launcher_shrink_replan(const struct shrink_request *r, struct shrink_candidate *out);

/* Examines the ways that are permitted, in the order of enum shrink_way. Returns their number.
 * Only *fastest, one of `out` or NULL, has a deployment, which the caller owns. */
int launcher_shrink(const struct shrink_request *r, struct shrink_candidate out[SHRINK_WAYS],
		    struct shrink_candidate **fastest);

#endif
