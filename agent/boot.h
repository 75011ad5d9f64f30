/*
 * boot — an agent's start: which rank it is, and how it reaches the others.
 *
 * It is the only file that is a PMIx client. Slurm's server and muster's own both serve it. PMIx is
 * finalized before training: as long as a rank is connected to Slurm's server, its death ends the
 * whole job step; after PMIx_Finalize the other ranks continue.
 *
 * Whoever reaches a PMIx server may read what ranks publish there, and may publish in their names:
 * libpmix trusts the user id that a client sends, and Slurm's server is not under our control. So
 * everything published is sealed (base/seal.h) with a key that the ranks of one generation got from
 * the supervisor, and is bound to its rank and its fence. A value that does not open ends the start
 * with an error.
 *
 * All calls come from one thread.
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

/* The name of this rank's host. Ranks with equal names share memory. Several slurmd on one machine
 * count as several hosts. */
void agent_boot_host(char out[BOOT_HOST]);
/* The address, without port, of the interface that leads to the node that launched the step, from
 * Slurm's environment. False: Slurm does not name that node. */
bool agent_boot_address(char out[NET_ADDR_MAX]);

/* A copy of an environment variable. The variable is removed and its bytes are wiped, so that
 * neither children nor /proc/PID/environ show it. NULL: it is not set, or there is no memory. */
char *agent_boot_take_env(const char *name);

/* PMIx_Init. ERR_NOTFOUND: this process has no PMIx server. */
int agent_boot_open(struct boot **out, struct err *e);
/* PMIx_Finalize; also removes PMIx's variables from the environment. Takes NULL. */
void agent_boot_finish(struct boot *b);

int agent_boot_rank(const struct boot *b);
int agent_boot_size(const struct boot *b);

/* Sets the key of what the ranks of this generation publish: 64 hex digits, the group secret that
 * only these ranks know. Call before the first fence. */
int agent_boot_seal(struct boot *b, const char *group_secret, uint32_t generation, struct err *e);

/* The bootstrap for comm_open(). Values put between two fences travel together: one PMIx_Put, one
 * fence, and one PMIx_Get per rank asked for. The fence always carries data, because under Slurm a
 * fence without data is no barrier. Valid until agent_boot_finish(). */
const struct comm_bootstrap *agent_boot_bootstrap(const struct boot *b);

#endif
