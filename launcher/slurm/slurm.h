/*
 * slurm — muster inside and in front of a Slurm cluster, through its commands.
 *
 *     submit.c    `muster submit`: the sbatch script from templates/sbatch.in
 *     script.c    that template, filled in
 *     step.c      launch_slurm: a generation is one srun step of the allocation
 *     srun.c      that step's command line, environment and host file
 *     auth.c      whether the control channel's ends show MUNGE credentials
 *     address.c   where the supervisor can be reached from the allocation's nodes
 *     tool.c      one of the agent's tools as a step of the allocation
 *
 * No shell is involved anywhere, and no command line holds a secret.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SLURM_H
#define MUSTER_LAUNCHER_SLURM_SLURM_H

#include "base/err.h"
#include "base/munge.h"
#include "base/net.h"
#include "launcher/launch.h"

/* The launch backend of an allocation: one srun step per generation. */
extern const struct launch_ops launch_slurm;

/* What to do when one of Slurm's commands cannot be executed; for child.h. */
#define SLURM_ABSENT "; are Slurm's commands in PATH?"

/*
 * The address, without a port, of this host as the nodes of the allocation see it: the NodeAddr of
 * the node that we run on, else what SLURM_LAUNCH_NODE_IPADDR says, else the host's name. Loopback
 * only when that is what Slurm itself uses (all nodes on one host). [network] interface goes before
 * it: the caller asks net_local_address then.
 */
int slurm_address(char out[NET_ADDR_MAX], struct err *e);

/*
 * The word of AGENT_ENV_AUTH for this run's agents: MUNGE credentials wherever Slurm itself uses
 * them (AuthType is auth/munge; AuthInfo tells munged's socket). The secret alone when AuthType is
 * another one, when the person says so (MUSTER_AUTH=secret, for nodes where agents cannot reach
 * munged), and, with a warning, when no credential can be made here: nobody on the network can
 * bring that about, and the agents are told so over Slurm.
 */
void slurm_auth(char word[MUNGE_WORD], struct err *warning);

/* Becomes srun, which runs `agent argv[0] argv[1] …` once a device of the allocation, with PMIx.
 * Returns only when it cannot. */
int slurm_tool(const char *agent, int argc, char **argv, struct err *e);

#endif
