/*
 * dump — the flight recorders of a world as a file (recorder.h has its format). comm_dump is here.
 *
 * The first error is dumped before it is returned, where comm_options.dump_dir says so: into a file
 * of each rank, comm-<rank>.json. That must not keep anybody waiting for a disk that does not
 * answer, so a thread of its own writes, which is left to itself after DUMP_WAIT_MS.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_DUMP_H
#define MUSTER_LIBCOMM_FLIGHT_DUMP_H

#include "libcomm/world.h"

enum { DUMP_WAIT_MS = 1000 };

/* Takes the folder, which is made when it is first needed; a file of an earlier world's is
 * removed from it. */
int comm_dump_open(struct world *w, const char *dir, struct err *e);
void comm_dump_close(struct world *w);
/* The first error is known. What goes wrong is kept for comm_world_report_error. */
void comm_dump_first_error(struct world *w);

#endif
