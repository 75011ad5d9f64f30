/*
 * exclude — what the run does about the node of a slow rank.
 *
 * With [health] slow_policy = warn it does nothing. With exclude the generation writes a checkpoint
 * and ends, and the next one runs without the node, where policy.h finds room for it: on a spare
 * node, or with the fewer ranks that [restart] shrink permits. It stays instead, and says why, if
 *
 *     - the step without the node is not predicted to become POLICY_GAIN_MIN times as fast. The
 *       prediction is corrected by what was measured:
 *           H = S - D, the step without the slow rank's delay
 *           P' × H / P × POLICY_GAIN_MIN > S: it stays
 *       S: measured seconds of a step; D: seconds per step by which the rank exceeds its peers; P, P':
 *       predicted seconds of a step of this plan and of the next one;
 *     - it has left this node before, and came back to it because nothing else was left;
 *     - it has left a node for this reason less than EXCLUDE_REST_S ago: what is slow may not be the node;
 *     - no other node is usable.
 *
 * With exclude, the node of a rank that stays slow is considered again every EXCLUDE_REST_S: a spare
 * may be usable by then.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_EXCLUDE_H
#define MUSTER_LAUNCHER_SUPERVISE_EXCLUDE_H

#include <stdbool.h>

enum { EXCLUDE_REST_S = 600 };

struct exclude_state {
	double at;        /* time at which the run left a node; 0: it has not */
	char reason[160]; /* of the stop that is under way */
};

struct supervisor;

/* A rank was found slow; delay: D in seconds; evidence: a clause for people. Notes it against the
 * node, and decides what to do. again: that it is slow is no news, so nothing is noted or
 * said if the node stays. True: the generation stops in order to leave the node. */
bool supervise_exclude_consider(struct supervisor *s, int rank, double delay, const char *evidence,
				bool again);

#endif
