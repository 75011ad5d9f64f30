/*
 * gate — who may connect to the embedded PMIx server.
 *
 * libpmix listens on a TCP port of the loopback interface, which every user of this host can
 * reach. It believes the user id that a client sends; and it reads a new connection's first
 * words on its only working thread, so one connection that says nothing would stop it. The gate
 * stands before that: every connection that libpmix accepts is closed at once unless
 * its other end belongs to a process of our own user (base/owner.h).
 *
 * libpmix has no hook at this place, so the gate is this program's own accept(2), which the
 * dynamic linker finds before libc's. It does what libc's does until local_gate_close_to_others.
 *
 * Where the kernel cannot tell the owner, what is left are the namespace, which cannot be guessed
 * and which only the agents' environment holds, and the seal of all that agents publish
 * (agent/boot.h).
 */
#ifndef MUSTER_LAUNCHER_PMIX_GATE_H
#define MUSTER_LAUNCHER_PMIX_GATE_H

#include <stdbool.h>

/* From here on accept() in this process returns connections of our own user alone. False: this
 * kernel cannot tell, and nothing has changed. */
bool local_gate_close_to_others(void);

#endif
