/* looks — looks at many runs at once, because a supervisor that does not answer, or a slow share, makes
 * each of them wait. */
#ifndef MUSTER_LAUNCHER_CONSOLE_LOOKS_H
#define MUSTER_LAUNCHER_CONSOLE_LOOKS_H

#include "launcher/console/look.h"

#include <stdbool.h>
#include <stddef.h>

struct console_looks {
	const char *run;  /* its folder; borrowed */
	struct look look; /* console_look_fini() ends it, unless it has failed */
	bool failed;      /* nothing is known about the run: see `why` */
	struct err why;
};

/* Fills in the looks of n runs, with LOOK_QUICK. */
void console_looks(struct console_looks *all, size_t n);

#endif
