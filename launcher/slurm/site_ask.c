/* Asks Slurm's commands for the texts that site.c parses. */
#include "launcher/slurm/site.h"

#include "launcher/child.h"
#include "launcher/slurm/slurm.h"

#define ASK_TIMEOUT 30.0

static int run_command(char *const *argv, struct buf *output, struct err *e)
{
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	return launcher_child_run(&c, ASK_TIMEOUT, output, e);
}

int slurm_site_ask(struct site *out, struct err *e)
{
	char *partition[] = { "scontrol", "--all", "--oneliner", "show", "partition", NULL };
	char *node[] = { "sinfo", "--all", "--noheader", "--exact", "-o", SITE_NODES_FORMAT, NULL };
	struct buf partitions = BUF_INIT, nodes = BUF_INIT;
	int rc = run_command(partition, &partitions, e) || run_command(node, &nodes, e) ? -1 : 0;
	/* Without some of the nodes, the job could be refused wrongly. */
	bool whole = nodes.len < CHILD_OUTPUT_MAX;
	rc = rc ? rc : slurm_site_parse(buf_str(&partitions), whole ? buf_str(&nodes) : "", out, e);
	buf_fini(&nodes);
	buf_fini(&partitions);
	return rc;
}
