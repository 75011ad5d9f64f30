/*
 * process — how muster and muster-agent begin, whatever their parent left them.
 *
 * A parent hands down more than arguments: ignored and blocked signals, closed
 * descriptors, a umask. A launcher whose SIGCHLD is ignored never learns that
 * an agent has ended, and a blocked SIGTERM cannot end it. Both programs
 * therefore call process_begin first, and whatever the launcher starts calls
 * process_signals between fork and exec.
 */
#ifndef MUSTER_BASE_PROCESS_H
#define MUSTER_BASE_PROCESS_H

#include "base/err.h"

/* The first call of a main, before any thread and any file:
 *   - descriptors 0, 1 and 2 that are closed are opened on /dev/null, so that no file of muster
 *     gets one of these numbers;
 *   - signals as by process_signals, and then SIGXFSZ is ignored: a write beyond `ulimit -f` fails
 *     with EFBIG, which is handled like a full disk (process_full), and does not kill the process;
 *   - the umask is 077: a umask such as 0777 would make folders that muster itself cannot use. */
void process_begin(void);

/* Every signal gets its default action, and none is blocked; a signal that was blocked and is
 * pending is delivered. One exception: SIGHUP that the parent ignores stays ignored, as nohup wants
 * it. SIGINT and SIGQUIT, which shells ignore for background commands, get their default action
 * too: `kill -INT` stops a run in the background as it does elsewhere. Async-signal-safe. */
void process_signals(void);

/* What a person can do about a write that failed with this errno: "; remedy" when there is no room
 * for it (ENOSPC, EDQUOT, or EFBIG at the limit of file sizes), else "". */
const char *process_full(int error);

/* ERR_NOMEM when `ulimit -v` leaves this process fewer than `bytes` of address space; `what` needs
 * them. Without a limit always 0. */
int process_room(const char *what, double bytes, struct err *e);
/* The limit of the address space of this process and of what it starts, in bytes; 0: there is
 * none. */
double process_address_limit(void);

#endif
