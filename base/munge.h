/*
 * munge — credentials that prove a user id across the nodes of a cluster.
 *
 * Every node of a Slurm cluster runs munged. It gives a process a credential that contains the
 * process's user id and a text; munged on any node with the same key can check it, once. Our texts
 * are those of the control channel's handshake (base/auth.h), and only our own user can check our
 * credentials: to anybody else, including Slurm, they are useless.
 *
 * libmunge is loaded when it is first needed. munged takes 0.05 ms to make a credential and as long
 * to check one. A munged that hangs blocks the caller for 10 s, so an event loop uses a thread.
 */
#ifndef MUSTER_BASE_MUNGE_H
#define MUSTER_BASE_MUNGE_H

#include "base/auth.h"

enum { MUNGE_WORD = AUTH_SOCKET + 8 };

/* Reads a value of AGENT_ENV_AUTH. NULL or "secret": 0, the secret alone. "munge" or "munge:SOCKET":
 * 1, and *by is set. Any other value is an error, never read as a weaker one. */
int munge_parse(const char *word, struct voucher *by, struct err *e);
/* The value for munged at a socket ("": libmunge's default). */
void munge_word(const char *socket, char word[MUNGE_WORD]);

/* Makes a credential as a test; fails if this node cannot make one. */
int munge_try(const struct voucher *by, struct err *e);

#endif
