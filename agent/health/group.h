/*
 * group — the limits of the cgroups that this process is in (version 2, or the controllers cpu and
 * memory of version 1). The group of a process may change while it runs, so each call looks again.
 */
#ifndef MUSTER_AGENT_HEALTH_GROUP_H
#define MUSTER_AGENT_HEALTH_GROUP_H

#include <stdbool.h>

enum { HEALTH_GROUP = 512 };

struct health_group {
	char dir[HEALTH_GROUP];  /* its folder below the root, "sys/fs/cgroup/cpu/job" */
	char name[HEALTH_GROUP]; /* as in /proc/self/cgroup, "/job" */
	double limit;            /* cores, or bytes */
	bool v2;
};

/* The group with the tightest limit, among that of the process and those that contain it. False:
 * there is no limit. pid: 0 for this process. */
bool health_group_cpu(const char *root, int pid, struct health_group *out);
bool health_group_memory(const char *root, int pid, struct health_group *out);
/* The process' own group of version 2 below the root of the hierarchy; limit is 0. */
bool health_group_own(const char *root, int pid, struct health_group *out);

#endif
