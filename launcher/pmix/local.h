/* local — the launch backend for one host: the embedded PMIx server and fork. */
#ifndef MUSTER_LAUNCHER_PMIX_LOCAL_H
#define MUSTER_LAUNCHER_PMIX_LOCAL_H

#include "launcher/launch.h"

extern const struct launch_ops launch_local;

#endif
