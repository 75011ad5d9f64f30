/* states — the memory of an optimizer's states. Only files of agent/engine/optim include this. */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_STATES_H
#define MUSTER_AGENT_ENGINE_OPTIM_STATES_H

#include "agent/engine/optim/rules.h"

/* Allocates all states of o->traits, as zeros. After a failure optim_states_close frees the
 * rest. */
int optim_states_open(struct optim *o, const char *spill_dir, struct err *e);
void optim_states_close(struct optim *o);

#endif
