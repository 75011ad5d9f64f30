/*
 * parts — what the time of a simulated run is spent on. Each second is in exactly one part. While a run trains with
 * fewer replicas, the share of the time that the missing ones would have added is LOWER.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_PARTS_H
#define MUSTER_LAUNCHER_GOODPUT_PARTS_H

/* name, doc */
#define GOODPUT_PARTS(X) \
	X(TRAINED, "trained", "steps that count") \
	X(SAVING, "saving", "waiting for snapshots of checkpoints and copies") \
	X(LOST, "lost steps", "steps that are repeated") \
	X(LOWER, "fewer ranks", "what the missing replicas would have done") \
	X(SLOW, "slow nodes", "waiting for a node that computes more slowly") \
	X(DETECT, "detection", "from a fault until it is known") \
	X(RESTART, "restarts", "from there until training goes on") \
	X(WAIT, "waiting", "no node is there to replace one") \
	X(START, "starts", "starts of all processes: the first one, and after planned stops") \
	X(PERSON, "by hand", "until a person has begun the run again")

enum goodput_part {
#define GOODPUT_PART_ENUM(id, ...) GOODPUT_##id,
	GOODPUT_PARTS(GOODPUT_PART_ENUM)
#undef GOODPUT_PART_ENUM
		GOODPUT_PART_COUNT
};

const char *goodput_part_name(enum goodput_part p);
const char *goodput_part_doc(enum goodput_part p);

#endif
