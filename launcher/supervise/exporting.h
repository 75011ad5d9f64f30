/*
 * exporting — tells the exports of the run (launcher/exports/exports.h) what the supervisor knows.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_EXPORTING_H
#define MUSTER_LAUNCHER_SUPERVISE_EXPORTING_H

struct supervisor;

void supervise_exporting_open(struct supervisor *s);
/* Every rank is ready. */
void supervise_exporting_begin(struct supervisor *s);
void supervise_exporting_tick(struct supervisor *s);
void supervise_exporting_close(struct supervisor *s);

#endif
