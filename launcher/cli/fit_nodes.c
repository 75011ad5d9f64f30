#include "launcher/cli/fit_nodes.h"

#include "launcher/fit.h"

#include <stdio.h>
#include <stdlib.h>

/* True if Slurm has requeued the job that this process runs in. */
static bool is_requeued(void)
{
	const char *count = getenv("SLURM_RESTART_COUNT");
	return count && strtol(count, NULL, 10) > 0;
}

int command_fit_nodes(const struct job *job, struct cluster *used, json_t *spares,
		      struct deployment **out, struct err *e)
{
	struct deployment *d;
	struct buf said = BUF_INIT;
	if (launcher_fit_build(job, used, is_requeued(), &d, &said, e)) {
		buf_fini(&said);
		return launcher_spares_name(spares, e);
	}
	if (said.len)
		fprintf(stderr, "muster: %s", buf_str(&said));
	buf_fini(&said);
	if (json_object_set(d->plan_doc, "spares", spares)) {
		launcher_deployment_free(d);
		return err_set(e, ERR_NOMEM, "no memory for the plan");
	}
	*out = d;
	return 0;
}
