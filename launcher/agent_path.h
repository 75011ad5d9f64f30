/* agent_path — finds the programs muster and muster-agent. */
#ifndef MUSTER_LAUNCHER_AGENT_PATH_H
#define MUSTER_LAUNCHER_AGENT_PATH_H

#include "base/err.h"

#include <stddef.h>

/* The path of muster-agent: $MUSTER_AGENT, otherwise the file next to this program, otherwise
 * ../libexec/muster/muster-agent. ERR_NOTFOUND names the paths that were tried. */
int launcher_agent_path(char *path, size_t size, struct err *e);
/* The path of libmuster-cuda.so, which is beside muster-agent. ERR_NOTFOUND: it is not there. */
int launcher_cuda_library(char *path, size_t size, struct err *e);
/* The path of this program, muster. */
int launcher_self_path(char *path, size_t size, struct err *e);

#endif
