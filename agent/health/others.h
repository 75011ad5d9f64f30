/*
 * others — which process uses the cores of this one most. It reads a file of every process of the
 * node, so it is asked only if there is a suspicion.
 */
#ifndef MUSTER_AGENT_HEALTH_OTHERS_H
#define MUSTER_AGENT_HEALTH_OTHERS_H

#include <stdbool.h>

struct health_others;

/* Notes the CPU time of all processes but `self`. root: NULL for "/". NULL: no memory. */
struct health_others *health_others_begin(const char *root, int self);

struct health_user {
	int pid, cpu;
	char name[20]; /* without control characters */
	double share;  /* of one core */
};
/* The process that used the most CPU time in the `seconds` since then, among those that ran last on
 * a CPU of the list, such as "0-3,8"; NULL or "": any CPU. False: none did. Frees `o`. */
bool health_others_end(struct health_others *o, const char *cpus, double seconds,
		       struct health_user *out);

#endif
