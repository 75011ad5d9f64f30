/*
 * predecessors — before an agent joins, the agents of earlier generations on its host must be gone.
 *
 * Such an agent may be stopped, stuck in the kernel, or cut off from the supervisor, and may still
 * hold the device, its memory and files of the run. The supervisor cannot tell; only a process on
 * the same host can. It names them in its welcome (launcher/supervise/predecessors.h), and every
 * new agent of the host ends those that still exist.
 *
 * A process is touched only if it is that agent: same boot, PID namespace, pid and start time, the
 * same user, and the same program as the caller. It is identified through a pidfd, so the signal
 * cannot hit another process that gets the pid in the meantime. Several agents of a host may end
 * the same one at the same time.
 *
 * Sources: pidfd_open(2), pidfd_send_signal(2), pid_namespaces(7).
 */
#ifndef MUSTER_AGENT_PREDECESSORS_H
#define MUSTER_AGENT_PREDECESSORS_H

#include "base/err.h"

#include <jansson.h>

struct predecessors_gate {
	const char *node; /* for messages */
	double patience;  /* seconds in which a killed process must end; 0: PREDECESSORS_PATIENCE */
	/* Ends a process as pidfd_send_signal(2) with SIGKILL does, which NULL stands for. fd is -1
	 * on a kernel without pidfds. Tests replace it. */
	int (*kill)(int fd, int pid);
};

#define PREDECESSORS_PATIENCE 10.0

/*
 * Ends those that still exist and waits until they are gone. list: of struct msg_predecessor; NULL:
 * none. ERR_UNSUPPORTED: one remains; the error names it, its state and the remedy. ERR_PROTO: the
 * list is malformed, and no process was touched. A warning names the processes that were ended;
 * another one names each that cannot be seen because it is in another PID namespace.
 */
int agent_predecessors_end(const struct predecessors_gate *gate, const json_t *list, struct err *e);

#endif
