/*
 * phases — the time of an agent by phase: seconds by name, in the order of first use.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_PHASES_H
#define MUSTER_AGENT_ENGINE_TRAIN_PHASES_H

#include <jansson.h>

enum { PHASES_MAX = 16 };

struct phases {
	struct {
		const char *name; /* a literal */
		double seconds;
	} rows[PHASES_MAX];
	int n;
};

/* Adds the time since *since (clock_s) to the phase and sets *since to now. Names beyond PHASES_MAX
 * are added to the last one. Returns the seconds that it added. */
double train_phases_lap(struct phases *p, const char *name, double *since);

/* Returns {name: seconds, …}, a new reference. */
json_t *train_phases_json(const struct phases *p);

#endif
