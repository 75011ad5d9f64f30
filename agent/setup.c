#include "agent/setup.h"

#include "agent/predecessors.h"
#include "base/log.h"
#include "base/pin.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void agent_setup_bind(const struct msg_welcome *w)
{
	struct err e = ERR_INIT;
	if (pin_cpus(w->cpus, &e) || pin_memory(w->numa, &e))
		log_warn("device %d: %s; the agent runs on the cores where it was started",
			 w->device, e.text);
	else if (*w->cpus)
		log_info("device %d: bound to cpus %s; prefers memory of NUMA domain %d", w->device,
			 w->cpus, w->numa);
}

int agent_setup_end_predecessors(struct control *c, const struct msg_welcome *w, struct err *e)
{
	const struct predecessors_gate gate = { .node = w->node };
	agent_control_progress(c, 0, "predecessors");
	return agent_predecessors_end(&gate, w->predecessors, e);
}
