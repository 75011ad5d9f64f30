/*
 * munge — credentials that prove a user id across the nodes of a cluster.
 *
 * munged, which every node of a cluster under Slurm runs, hands a process a
 * credential that names its user id and carries what the process wants to
 * say; munged on any node with the same key checks it, once. Ours carry
 * what the control channel's handshake asks for (base/auth.h), and only our own
 * user can have them checked: to anybody else, Slurm included, they are worth nothing.
 *
 * libmunge is loaded when it is first needed. A credential takes munged 0.05 ms
 * to make and as long to check; a munged that hangs keeps the caller for 10 s,
 * so that a loop hands the work to a thread.
 */
#ifndef MUSTER_BASE_MUNGE_H
#define MUSTER_BASE_MUNGE_H

#include "base/auth.h"

enum { MUNGE_WORD = AUTH_SOCKET + 8 };

/* Reads the word of AGENT_ENV_AUTH: NULL or "secret": 0, the secret alone; "munge" or
 * "munge:SOCKET": 1 and *by. Any other is an error, never taken for less. */
int munge_parse(const char *word, struct voucher *by, struct err *e);
/* That word, for munged at a socket ("": where libmunge looks). */
void munge_word(const char *socket, char word[MUNGE_WORD]);

/* Makes a credential: fails when none can be made on this node. */
int munge_try(const struct voucher *by, struct err *e);

#endif
