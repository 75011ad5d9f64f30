/* Any bytes as scontrol's descriptions of jobs, nodes and partitions. The first byte chooses the
 * reader. */
#include "launcher/slurm/job_record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_job(const char *text)
{
	struct job_record r;
	if (slurm_job_record_parse(text, "7", &r, NULL))
		return;
	if (!r.state[0] || r.cpus_per_task < 1 || r.tasks_per_node < 0)
		abort();
	slurm_job_record_free(&r);
}

static void read_nodes(const char *text)
{
	struct node_record r;
	while (slurm_node_record_next(&text, &r))
		if (!r.name[0] || !r.host[0] || r.port < 1 || r.port > 65535 ||
		    r.state == NODE_LEFT)
			abort();
	if (*text)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;
	if (!text)
		return 0;
	if (data[0] == 'j')
		read_job(text);
	else if (data[0] == 'n')
		read_nodes(text);
	else if (data[0] == 'p' && slurm_partition_nodes(text) < 0)
		abort();
	else
		slurm_node_state(text);
	free(text);
	return 0;
}
