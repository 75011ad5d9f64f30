/* run_words — words that the commands which read a run have in common. */
#ifndef MUSTER_LAUNCHER_CLI_RUN_WORDS_H
#define MUSTER_LAUNCHER_CLI_RUN_WORDS_H

#include "base/err.h"

#include <stdbool.h>

/* Reads a time for people: 90s, 10m, 2h or 3d ago; 14:05 or 14:05:30, the last one there was;
 * 2027-01-31, or 2027-01-31 14:05. now, *out: seconds since 1970. */
int command_time_read(const char *text, double now, double *out, struct err *e);
/* "2027-01-31 14:05:30", local time; "-" if it is not finite. */
const char *command_time_text(double time, char out[32]);

/* Waits before the files of a run are looked at again. Returns false, soon, after SIGINT or SIGTERM,
 * for which command_follow_begin() watches, or if nobody reads the standard output any more. */
void command_follow_begin(void);
bool command_follow_wait(void);

#endif
