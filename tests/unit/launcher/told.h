/* told — reads what a supervisor under test wrote into its run folder. */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_TOLD_H
#define MUSTER_TESTS_UNIT_LAUNCHER_TOLD_H

/* Returns how many lines of events.jsonl in `folder` hold both texts, or -1 if there is no such
 * file. */
int told_in(const char *folder, const char *a, const char *b);

#endif
