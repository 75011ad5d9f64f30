/*
 * process — puts a process into a known state, whatever its parent left.
 *
 * A process inherits more than arguments: ignored and blocked signals, closed descriptors, a umask.
 * A launcher whose SIGCHLD is ignored never learns that an agent has ended, and a blocked SIGTERM
 * cannot end it. Both programs therefore call process_begin first, and every program that the
 * launcher starts calls process_signals between fork and exec.
 */
#ifndef MUSTER_BASE_PROCESS_H
#define MUSTER_BASE_PROCESS_H

#include "base/err.h"

#include <sys/types.h>

/* Call this first in main, before any thread is started and any file is opened:
 *   - descriptors 0, 1 and 2 that are closed are opened on /dev/null, so that no file of muster
 *     gets one of these numbers;
 *   - signals are reset by process_signals, and then SIGXFSZ is ignored: a write beyond `ulimit -f`
 *     fails with EFBIG, which is handled like a full disk (process_write_remedy), and does not kill
 *     the process;
 *   - the umask is 077: a umask such as 0777 would make folders that muster itself cannot use. process_public_mode
 *     keeps the parent's. */
void process_begin(void);

/* The mode of a file that is made for other people: rw for all that the umask of the parent of this
 * process leaves, and for its user in any case. 0600 before process_begin. */
mode_t process_public_mode(void);

/* The umask that this process inherited, for programs of the user; 077 before process_begin. */
mode_t process_inherited_umask(void);

/* Every signal gets its default action, and none is blocked; a signal that was blocked and is
 * pending is delivered. One exception: SIGHUP that the parent ignores stays ignored, as nohup wants
 * it. SIGINT and SIGQUIT, which shells ignore for background commands, get their default action
 * too: `kill -INT` stops a run in the background as it does elsewhere. Async-signal-safe. */
void process_signals(void);

/* The remedy for a write that failed with this errno, as "; remedy": for ENOSPC and EDQUOT, and for
 * EFBIG at the limit of file sizes. "" for other errors. */
const char *process_write_remedy(int error);

/* ERR_NOMEM when `ulimit -v` leaves this process less than `bytes` of address space; the error
 * names `what` as what needs them. Without a limit it returns 0. */
int process_check_memory(const char *what, double bytes, struct err *e);
/* The limit of the address space of this process and of what it starts, in bytes; 0: there is
 * none. */
double process_address_limit(void);

#endif
