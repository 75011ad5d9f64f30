/*
 * goodput_checks — what must hold for any simulated run, for the tests of launcher/goodput.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_GOODPUT_CHECKS_H
#define MUSTER_TESTS_UNIT_LAUNCHER_GOODPUT_CHECKS_H

#include "launcher/goodput/study.h"

/* The parts add up to the length of the run. */
void check_sums(const struct goodput_setup *s, const struct goodput_result *r);
/* A run that is recorded is the same, and its columns and marks are all that happened. */
void check_timeline(const struct goodput_setup *s, uint64_t seed, const struct goodput_result *r);
/* Simulates so many runs, from seed 1 on. */
void sum_runs(const struct goodput_setup *s, int runs, struct goodput_sum *out);

#endif
