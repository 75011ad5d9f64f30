/*
 * hostlist — expands Slurm's compact lists of nodes and of counts.
 *
 * Host lists: names separated by commas. A name may contain any number of ranges in brackets; a
 * range keeps the width of its first number:
 * `n[1-3,07-09],login` and `rack[0-1]-n[00-11]`.
 * Counts, as in SLURM_TASKS_PER_NODE: `4(x2),3` is 4, 4, 3.
 *
 * The text comes from outside: any text gives either a list or an error.
 */
#ifndef MUSTER_TOPO_HOSTLIST_H
#define MUSTER_TOPO_HOSTLIST_H

#include "base/err.h"

enum { HOSTLIST_NAME = 64, HOSTLIST_MAX = 65536 };

struct hostlist {
	char (*names)[HOSTLIST_NAME];
	int n, cap;
};

/* The names in the order of the text; duplicates are kept. */
int topo_hostlist_expand(const char *text, struct hostlist *out, struct err *e);
void topo_hostlist_free(struct hostlist *h);

/* Fills counts[0..n). The text must contain exactly n counts from 0 to 1000000. */
int topo_hostlist_counts(const char *text, int *counts, int n, struct err *e);

#endif
