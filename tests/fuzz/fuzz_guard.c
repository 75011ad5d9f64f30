/* Any bytes as what scontrol prints about a job, a node or the configuration, as a guard reads
 * them. */
#include "launcher/slurm/guard_ask.h"
#include "launcher/slurm/setting.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guard_job job;
	char address[GUARD_NAME + 16], port[8];
	char *text = strndup((const char *)data, size);
	if (!text)
		return 0;
	if (slurm_guard_job_parse(text, &job) && strlen(job.host) >= sizeof job.host)
		abort();
	if (slurm_guard_node_parse(text, 6818, address, sizeof address) && !strchr(address, ':'))
		abort();
	slurm_setting(text, "SlurmdPort", port, sizeof port);
	free(text);
	return 0;
}
