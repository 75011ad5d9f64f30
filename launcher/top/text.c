#include "launcher/top/text.h"

#include <math.h>
#include <stdio.h>

const char *top_text_duration(double seconds, char out[HUMAN])
{
	static const struct {
		int below, unit, part;
		const char *name, *part_name;
	} units[] = { { 60, 1, 0, "s", "" },
		      { 3600, 60, 1, "min", "s" },
		      { 86400, 3600, 60, "h", "min" },
		      { 0, 86400, 3600, "d", "h" } };
	int s = (int)lround(fmin(fmax(seconds, 0), 1e9));
	int u = 0;
	while (units[u].below && s >= units[u].below)
		u++;
	int rest = units[u].part ? s % units[u].unit / units[u].part : 0;
	if (rest)
		snprintf(out, HUMAN, "%d %s %d %s", s / units[u].unit, units[u].name, rest,
			 units[u].part_name);
	else
		snprintf(out, HUMAN, "%d %s", s / units[u].unit, units[u].name);
	return out;
}

const char *top_text_seconds(double seconds, char out[HUMAN])
{
	return isfinite(seconds) ? human_seconds(seconds, out) : "-";
}

const char *top_text_bytes(double bytes, char out[HUMAN])
{
	return isfinite(bytes) ? human_bytes(bytes, out) : "-";
}

enum top_style top_text_state_style(enum rundir_state_id id)
{
	switch (id) {
	case RUNDIR_STATE_TRAINING:
	case RUNDIR_STATE_DONE:
		return TOP_GOOD;
	case RUNDIR_STATE_RESTARTING:
	case RUNDIR_STATE_WAITING:
	case RUNDIR_STATE_STOPPED:
		return TOP_WARN;
	case RUNDIR_STATE_FAILED:
	case RUNDIR_STATE_GAVE_UP:
	case RUNDIR_STATE_LOST:
		return TOP_BAD;
	default:
		return TOP_STRONG;
	}
}
