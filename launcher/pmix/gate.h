/*
 * gate — only processes of our own user may connect to the embedded PMIx server.
 * launcher/connections.h describes all checks that an agent passes.
 *
 * libpmix listens on a TCP port of the loopback interface, which every user of this host can reach.
 * It trusts the user id that a client sends. It also reads the first bytes of a new connection on
 * its only worker thread, so a connection that sends nothing would block the server. Therefore the
 * gate closes every connection that libpmix accepts unless its other end belongs to a process of
 * our own user (base/owner.h).
 *
 * libpmix has no hook for this: it calls accept(2) itself and reports no new connection before it
 * has read from it. So gate.c defines accept(). The dynamic linker finds this definition before
 * libc's, also for the calls in libpmix. It behaves like libc's until local_gate_close_to_others().
 *
 * If the kernel cannot name the owner, two protections remain: the namespace, which is random and
 * only in the agents' environment, and the seal on all that agents publish (agent/boot.h).
 */
#ifndef MUSTER_LAUNCHER_PMIX_GATE_H
#define MUSTER_LAUNCHER_PMIX_GATE_H

#include <stdbool.h>

/* From now on accept() in this process returns only connections of our own user. False: this kernel
 * cannot name the owner, and nothing has changed. */
bool local_gate_close_to_others(void);

#endif
