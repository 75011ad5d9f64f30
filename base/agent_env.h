/*
 * agent_env — the environment variables that every agent gets, however it was started.
 *
 * They are all that a launch backend gives an agent before the control channel is up. PMIx's own
 * variables come from PMIx.
 */
#ifndef MUSTER_BASE_AGENT_ENV_H
#define MUSTER_BASE_AGENT_ENV_H

/* host:port of the control channel */
#define AGENT_ENV_ADDRESS "MUSTER_SUPERVISOR"
/* 64 hex digits; the agent removes it from its environment at once */
#define AGENT_ENV_SECRET "MUSTER_SECRET"
/* number of this launch, from 1 */
#define AGENT_ENV_GENERATION "MUSTER_GENERATION"
/* what both ends must prove besides the secret; munge_parse() reads it */
#define AGENT_ENV_AUTH "MUSTER_AUTH"
/* "3,5-7/16": the ranks whose agents are started, and the number of all ranks. If there are several,
 * SLURM_PROCID selects one of the list. It is set in a generation that continues with agents of the last
 * one: they get no PMIx, and the supervisor exchanges their endpoints. It is also set if the agents run a
 * program: then PMIx is for the program. */
#define AGENT_ENV_RANKS "MUSTER_RANKS"

/* The two variables of a drill (launcher/drill). Their names do not begin with MUSTER_, because launch
 * backends remove those of the supervisor's environment. */
/* marks the processes of one run of a drill */
#define AGENT_ENV_DRILL_MARK "DRILL_MARK"
/* the fault that an agent is to cause: agent/drill.h; without the mark it means nothing */
#define AGENT_ENV_DRILL_FAULT "DRILL_FAULT"

#endif
