#include "launcher/slurm/guard_ask.h"
#include "launcher/slurm/job_record.h"
#include "topo/discover/scontrol.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool slurm_guard_job_parse(const char *text, struct guard_job *out)
{
	char flag[8];
	*out = (struct guard_job){ 0 };
	if (!topo_scontrol_field(text, "JobState", out->state, sizeof out->state))
		return false;
	out->running = slurm_job_state_is_running(out->state);
	out->batch = topo_scontrol_field(text, "BatchFlag", flag, sizeof flag) &&
		     strcmp(flag, "0") != 0;
	out->may_requeue = topo_scontrol_field(text, "Requeue", flag, sizeof flag) &&
			   !strcmp(flag, "1");
	out->gpus = slurm_job_has_gres(text);
	if (!topo_scontrol_field(text, "BatchHost", out->host, sizeof out->host))
		out->host[0] = '\0';
	return true;
}

bool slurm_guard_node_down(const char *text)
{
	char state[256];
	return topo_scontrol_field(text, "State", state, sizeof state) &&
	       slurm_node_state(state) == NODE_DOWN;
}

bool slurm_guard_node_parse(const char *text, int port, char *out, int size)
{
	char address[GUARD_NAME], number[8];
	if (!topo_scontrol_field(text, "NodeAddr", address, sizeof address))
		return false;
	if (topo_scontrol_field(text, "Port", number, sizeof number))
		port = atoi(number);
	bool v6 = strchr(address, ':') && address[0] != '[';
	return port > 0 && port < 65536 &&
	       snprintf(out, (size_t)size, v6 ? "[%s]:%d" : "%s:%d", address, port) < size;
}
