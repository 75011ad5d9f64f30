/* namespace — the name of the PMIx namespace of a generation that muster's own servers serve. */
#ifndef MUSTER_LAUNCHER_NAMESPACE_H
#define MUSTER_LAUNCHER_NAMESPACE_H

#include <stdint.h>

enum { LAUNCHER_NAMESPACE = 64 };

/* A random name, because anyone who knows it can read the namespace's contents from libpmix. */
void launcher_namespace_new(char out[LAUNCHER_NAMESPACE], uint32_t generation);

#endif
