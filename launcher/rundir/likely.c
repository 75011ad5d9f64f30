#include "launcher/rundir/likely.h"

#include "base/human.h"

#include <stdio.h>

const char *rundir_likely_print(double measured, double least, double most, char out[RUNDIR_LIKELY])
{
	char from[HUMAN], to[HUMAN];
	*out = '\0';
	if (measured > 0 && least > 0 && most > 0)
		snprintf(out, RUNDIR_LIKELY, "%s the likely %s to %s",
			 measured < least  ? "below"
			 : measured > most ? "above"
					   : "within",
			 human_seconds(least, from), human_seconds(most, to));
	return out;
}
