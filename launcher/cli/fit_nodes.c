#include "launcher/cli/fit_nodes.h"

#include "launcher/fit.h"

#include <stdio.h>
#include <stdlib.h>

/* Whether Slurm has requeued the job that this process runs in. */
static bool is_requeued(void)
{
	const char *count = getenv("SLURM_RESTART_COUNT");
	return count && strtol(count, NULL, 10) > 0;
}

int command_fit_nodes(struct job *job, struct cluster *c, json_t **spares, struct err *e)
{
	struct buf said = BUF_INIT;
	json_t *names = NULL;
	int rc = launcher_spares_keep(job, c, &names, e);
	if (!rc && launcher_fit_job(job, c, is_requeued(), &said, e))
		rc = launcher_spares_name(names, e);
	if (!rc && said.len)
		fprintf(stderr, "muster: %s", buf_str(&said));
	buf_fini(&said);
	if (rc)
		json_decref(names);
	else
		*spares = names;
	return rc;
}
