/*
 * agent_env — the environment that every agent finds, whichever way it was started.
 *
 * It is the whole of what a launcher tells an agent before the control channel
 * is up; PMIx's own variables come from PMIx.
 */
#ifndef MUSTER_BASE_AGENT_ENV_H
#define MUSTER_BASE_AGENT_ENV_H

#define AGENT_ENV_ADDRESS "MUSTER_SUPERVISOR" /* host:port of the control channel */
#define AGENT_ENV_SECRET \
	"MUSTER_SECRET" /* 64 hex digits; the agent wipes it from its environment at once */
#define AGENT_ENV_GENERATION "MUSTER_GENERATION" /* of this launch, from 1 */
#define AGENT_ENV_AUTH \
	"MUSTER_AUTH" /* what is asked of both ends besides the secret, as munge_parse reads it */

#endif
