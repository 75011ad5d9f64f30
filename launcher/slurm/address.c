#include "launcher/child.h"
#include "launcher/slurm/slurm.h"
#include "topo/discover/scontrol.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCONTROL_TIMEOUT 10.0

static bool query_node_address(const char *node, char *value, size_t size)
{
	char *argv[] = { "scontrol", "--oneliner", "show", "node", (char *)node, NULL };
	const struct child_command c = { .argv = argv, .out = -1 };
	struct buf output = BUF_INIT;
	bool found = !launcher_child_run(&c, SCONTROL_TIMEOUT, &output, NULL) &&
		     topo_scontrol_field(buf_str(&output), "NodeAddr", value, size);
	buf_fini(&output);
	return found;
}

int slurm_address(char out[NET_ADDR_MAX], struct err *e)
{
	char hint[256];
	const char *node = getenv("SLURMD_NODENAME"), *launch = getenv("SLURM_LAUNCH_NODE_IPADDR");
	if (node && *node && query_node_address(node, hint, sizeof hint) &&
	    !net_local_address(NULL, hint, out, NULL))
		return 0;
	if (launch && *launch && !net_local_address(NULL, launch, out, NULL))
		return 0;
	if (gethostname(hint, sizeof hint - 1))
		return err_errno(e, ERR_NET,
				 "cannot read this host's name (set [network] interface)");
	return net_local_address(NULL, hint, out, e)
		       ? err_prefix(e, "no address at which the nodes reach this host (set "
				       "[network] interface)")
		       : 0;
}
