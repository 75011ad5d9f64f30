/* descriptors — how many files a launcher holds open: two for each rank, and some of its own. */
#ifndef MUSTER_LAUNCHER_DESCRIPTORS_H
#define MUSTER_LAUNCHER_DESCRIPTORS_H

#include "base/err.h"

/* Raises the soft limit where `ranks` need more, as far as the hard one allows; ERR_UNSUPPORTED when that is too few.
 * What is started afterwards inherits the limit. */
int descriptors_allow(int ranks, struct err *e);

#endif
