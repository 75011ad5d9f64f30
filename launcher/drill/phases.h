/* phases — the phases of a recovery, from the times of a run's events. It is pure arithmetic. */
#ifndef MUSTER_LAUNCHER_DRILL_PHASES_H
#define MUSTER_LAUNCHER_DRILL_PHASES_H

#include <stdint.h>

/* clang-format off */

/* kind, the event's name in events.jsonl (launcher/rundir/events.h); the others do not matter here */
#define DRILL_EVENTS(X) \
	X(DRILL_PLAN,       "plan") \
	X(DRILL_START,      "generation-start") \
	X(DRILL_CONNECTED,  "connected") \
	X(DRILL_READY,      "ready") \
	X(DRILL_FIRST_STEP, "first-step") \
	X(DRILL_LOST,       "rank-lost") \
	X(DRILL_GONE,       "fault") \
	X(DRILL_STOP,       "stop") \
	X(DRILL_WARNING,    "log")

/* field, heading of the table, doc */
#define DRILL_PHASES(X) \
	X(detect, "detect", "from the fault until the supervisor counts a rank as lost, stops, or warns") \
	X(fence,  "fence",  "until the other agents have left the generation, or no process of it is left") \
	X(plan,   "plan",   "until the next generation starts: survey, decision, and any back-off") \
	X(start,  "start",  "until every agent has connected") \
	X(load,   "load",   "until every agent has loaded the checkpoint") \
	X(step,   "step",   "until the first step is done")

/* clang-format on */

enum drill_event_kind {
	DRILL_OTHER,
#define DRILL_EVENT_ENUM(kind, name) kind,
	DRILL_EVENTS(DRILL_EVENT_ENUM)
#undef DRILL_EVENT_ENUM
};

struct drill_event {
	enum drill_event_kind kind;
	double mono; /* seconds of the monotonic clock */
	int64_t generation;
};

/* Seconds; NAN: the phase did not happen, or cannot be measured. */
struct drill_phases {
#define DRILL_PHASE_MEMBER(field, heading, doc) double field;
	DRILL_PHASES(DRILL_PHASE_MEMBER)
#undef DRILL_PHASE_MEMBER
};

/* The kind of the event of this name. */
enum drill_event_kind drill_event_kind(const char *name);

/*
 * The phases of the recovery from a fault at the time `injected`. The events are in their order. If
 * a restart fails, the next one counts, and `plan` includes the failed one. Without a lost rank the
 * phases before `start` are unknown, except `detect`, which then ends with a stop or a warning.
 */
struct drill_phases drill_phases_of(const struct drill_event *events, int n, double injected);

#endif
