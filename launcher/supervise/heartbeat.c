#include "launcher/supervise/heartbeat.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>

double supervise_heartbeat(const struct supervise_limits *l, int world)
{
	double shared = world / l->heartbeats;
	return fmax(l->heartbeat, fmin(shared, l->silent / HEARTBEATS_SILENT));
}

double supervise_heartbeat_late(const struct supervisor *s)
{
	const struct supervise_limits *l = &s->o.limits;
	return supervise_heartbeat(l, s->world) - l->heartbeat;
}
