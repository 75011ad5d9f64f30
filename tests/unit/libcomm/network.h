/*
 * network — separate hosts for tests: network namespaces on one bridge.
 *
 * Each host is a namespace that a sleeping process holds. Another such process holds the bridge
 * between them. However the test ends, the kernel then ends those processes, and everything
 * disappears with them. Nothing has a name. Host k (from 0) has a loopback and the interface "net0"
 * with these addresses:
 *
 *     10.77.0.<k+1>/24    fd77::<k+1>/64    fe80::<k+1>/64
 */
#ifndef MUSTER_TESTS_NETWORK_H
#define MUSTER_TESTS_NETWORK_H

#include <sys/types.h>

enum { NETWORK_HOSTS = 4 };

struct network {
	int n;
	pid_t bridge, host[NETWORK_HOSTS];
};

/* 0, or -1 if this machine or this user may not create one (*why describes what failed). */
int network_open(struct network *net, int hosts, const char **why);
void network_close(struct network *net);
/* Moves this process, which must have one thread, to that host. */
int network_enter(const struct network *net, int host);
/* After this call, all packets of the host are dropped silently, in both directions. */
int network_cut(const struct network *net, int host);

#endif
