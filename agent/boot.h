/*
 * boot — an agent's first moments: who am I, and where are the others?
 *
 * The only file that speaks PMIx as a client. Slurm's server and muster's own
 * serve it alike. PMIx is finalized before training: while a rank is connected
 * to Slurm's server its death takes the whole step along, after PMIx_Finalize
 * the rest of the step lives on.
 *
 * Whoever reaches a PMIx server may read what ranks publish there, and may publish
 * in their names: libpmix believes the user id that a client sends, and Slurm's
 * server is out of our hands. So what is published is sealed (base/seal.h) with a key that the
 * ranks of one generation have been given elsewhere, and is bound to its rank and its fence. What
 * does not open ends the start with an error.
 *
 * Calls come from one thread.
 */
#ifndef MUSTER_AGENT_BOOT_H
#define MUSTER_AGENT_BOOT_H

#include "base/err.h"
#include "base/net.h"
#include "libcomm/comm.h"

#include <stdbool.h>
#include <stdint.h>

struct boot;

enum { BOOT_HOST = 256 };

/* The name of this rank's host: ranks with equal ones share memory. Several slurmd on one
 * machine count as several hosts. */
void agent_boot_host(char out[BOOT_HOST]);
/* This host's address (without port) on the way to the node that launched the step, as Slurm tells
 * it. False when nobody told. */
bool agent_boot_address(char out[NET_ADDR_MAX]);

/* The value of an environment variable in memory of its own; the variable is removed and its
 * bytes are wiped, so that neither children nor /proc/PID/environ show it. NULL when it is not
 * set or there is no memory. */
char *agent_boot_take_env(const char *name);

/* PMIx_Init. ERR_NOTFOUND when nobody offers PMIx to this process. */
int agent_boot_open(struct boot **out, struct err *e);
/* PMIx_Finalize, and PMIx's variables leave the environment. Takes NULL. */
void agent_boot_finish(struct boot *b);

int agent_boot_rank(const struct boot *b);
int agent_boot_size(const struct boot *b);

/* The key of what the ranks of this generation publish: 64 hex digits, of the group's secret that
 * only they know. Must come before the first fence. */
int agent_boot_seal(struct boot *b, const char *group_secret, uint32_t generation, struct err *e);

/* Values put between two fences travel together: one PMIx_Put, one fence, and one
 * PMIx_Get a rank that is asked for. The fence always carries data, because one without is no
 * barrier under Slurm. Valid until agent_boot_finish. */
const struct comm_bootstrap *agent_boot_bootstrap(const struct boot *b);

#endif
