/*
 * patience — how long a test waits before it considers something stuck.
 *
 * Nothing that works comes near to it: under a sanitizer, on two cores that other tests use too,
 * code runs fifty times slower than alone, and a limit close to the usual duration fails good code.
 */
#ifndef MUSTER_TESTS_UNIT_PATIENCE_H
#define MUSTER_TESTS_UNIT_PATIENCE_H

enum {
	PATIENCE_S = 900,     /* a process that has not ended by then hangs */
	PATIENT_WAIT_S = 600, /* a time-out that no test waits for */
};

#endif
