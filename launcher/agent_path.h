/* launcher_agent_path — where muster-agent is installed. */
#ifndef MUSTER_LAUNCHER_AGENT_PATH_H
#define MUSTER_LAUNCHER_AGENT_PATH_H

#include "base/err.h"

#include <stddef.h>

/* The path of muster-agent: $MUSTER_AGENT, or else the file beside this program, or else
 * ../libexec/muster/muster-agent. ERR_NOTFOUND names the places that were tried. */
int launcher_agent_path(char *path, size_t size, struct err *e);

#endif
