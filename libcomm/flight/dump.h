/*
 * dump — writes the flight recorders of a world to a file (recorder.h has the format). comm_dump, and
 * the tape of comm.h, are here.
 *
 * The first error is dumped before it is returned if comm_options.dump_dir is set: each rank writes
 * comm-<rank>.json. A disk that does not answer must not block the ranks, so a separate thread
 * writes; after DUMP_WAIT_MS it is detached.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_DUMP_H
#define MUSTER_LIBCOMM_FLIGHT_DUMP_H

#include "libcomm/world.h"

enum { DUMP_WAIT_MS = 1000 };

/* Sets the folder, which is created when it is first needed, and removes an earlier world's dump
 * from it. */
int comm_dump_open(struct world *w, const char *dir, struct err *e);
void comm_dump_close(struct world *w);
/* Called when the first error is known. Failures are kept for comm_world_report_error. */
void comm_dump_first_error(struct world *w);

#endif
