/* event_lines: reads what a supervisor under test wrote into its run folder. */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_EVENT_LINES_H
#define MUSTER_TESTS_UNIT_LAUNCHER_EVENT_LINES_H

/* Returns how many lines of events.jsonl in `folder` hold both texts, or -1 if there is no such
 * file. */
int count_events_in(const char *folder, const char *a, const char *b);

#endif
