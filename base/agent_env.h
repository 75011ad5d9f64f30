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

/* the fault that a drill wants an agent to cause: "KIND RANK STEP"; agent/drill.h. Its name does not
 * begin with MUSTER_, because launch backends remove those of the supervisor's environment */
#define AGENT_ENV_DRILL "DRILL_FAULT"

#endif
