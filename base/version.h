/* version — the version of muster. */
#ifndef MUSTER_BASE_VERSION_H
#define MUSTER_BASE_VERSION_H

#ifndef MUSTER_VERSION
#define MUSTER_VERSION "0.1"
#endif

#endif
