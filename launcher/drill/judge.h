/* judge — whether a run ended as its fault allows. */
#ifndef MUSTER_LAUNCHER_DRILL_JUDGE_H
#define MUSTER_LAUNCHER_DRILL_JUDGE_H

#include "launcher/drill/run.h"

/* Checks a run that has ended: exit status, losses, samples, the fault's name, processes and names
 * in /dev/shm that are left. first_status: of the `muster run` that got the fault. The error says
 * what is wrong. */
int drill_judge(const struct drill_run *r, int first_status, struct err *e);

/* The number of job steps of agents in this allocation; 0 if squeue does not answer. */
int drill_steps_count(void);

/* Returns true if the list, whose names have commas between them, has the name. */
bool drill_list_has(const char *list, const char *name);

#endif
