/*
 * likely — a measured time of a step beside the interval in which the plan expects it (least_s and
 * most_s of events and of the state).
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_LIKELY_H
#define MUSTER_LAUNCHER_RUNDIR_LIKELY_H

enum { RUNDIR_LIKELY = 64 };

/* Writes "within the likely 1.05 s to 1.20 s", or "below …", or "above …"; "" if one of the
 * numbers is not above 0. Returns out. */
const char *rundir_likely_print(double measured, double least, double most,
				char out[RUNDIR_LIKELY]);

#endif
