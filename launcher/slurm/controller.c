#include "launcher/slurm/controller.h"

#include "launcher/slurm/queue.h"
#include "launcher/slurm/rest/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slurm_controller {
	struct slurm_rest *rest; /* NULL: the commands are used */
	char name[48];
};

int slurm_controller_open(const struct job *job, struct slurm_controller **out, struct err *e)
{
	const char *url = getenv("MUSTER_SLURM_REST");
	struct slurm_controller *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "no memory to reach Slurm's controller");
	const struct slurm_rest_options o = { .url = url ? url : job->slurm.rest,
					      .token_file = job->slurm.rest_token_file,
					      .ca_file = job->slurm.rest_ca_file };
	if (*o.url && slurm_rest_open(&o, &c->rest, e)) {
		free(c);
		return -1;
	}
	strcpy(c->name, "Slurm's commands");
	if (c->rest)
		snprintf(c->name, sizeof c->name, "Slurm's REST interface v0.0.%d",
			 slurm_rest_version(c->rest));
	*out = c;
	return 0;
}

void slurm_controller_close(struct slurm_controller *c)
{
	if (c)
		slurm_rest_close(c->rest);
	free(c);
}

const char *slurm_controller_name(const struct slurm_controller *c)
{
	return c->name;
}

int slurm_controller_submit(struct slurm_controller *c, const char *script, const char *dependency,
			    char id[LAUNCH_JOB_ID], struct buf *notes, struct err *e)
{
	return c->rest ? slurm_rest_submit(c->rest, script, dependency, id, notes, e)
		       : slurm_queue_submit(script, dependency, id, e);
}

void slurm_controller_start(struct slurm_controller *c, const char *script, struct buf *out)
{
	if (!c->rest) /* REST has no test of a submission */
		slurm_queue_start(script, out);
}

/* What sinfo and scontrol say without a controller, which differs. */
static int site_by_commands(struct site *out, struct err *e)
{
	struct err why = ERR_INIT;
	if (!slurm_site_ask(out, &why))
		return 0;
	if (why.code == ERR_TIMEOUT || strstr(why.text, "controller"))
		return err_set(
			e, why.code,
			"Slurm's controller does not answer, so the job was neither checked nor "
			"submitted; submit again when `scontrol ping` says that it is UP (%.300s)",
			why.text);
	return err_set(e, why.code, "%.800s%s", why.text, slurm_queue_remedy(why.text));
}

int slurm_controller_site(struct slurm_controller *c, struct site *out, struct err *e)
{
	if (!c->rest)
		return site_by_commands(out, e);
	return slurm_rest_site(c->rest, out, e)
		       ? err_prefix(e, "the job was neither checked nor submitted")
		       : 0;
}

int slurm_controller_show(struct slurm_controller *c, const char *id, struct queue_job *out,
			  struct err *e)
{
	return c->rest ? slurm_rest_show(c->rest, id, out, e) : slurm_commands_show(id, out, e);
}

int slurm_controller_update(struct slurm_controller *c, const char *id,
			    const struct queue_change *change, struct err *e)
{
	return c->rest ? slurm_rest_update(c->rest, id, change, e)
		       : slurm_commands_update(id, change, e);
}

int slurm_controller_cancel(struct slurm_controller *c, const char *id, int signal, struct err *e)
{
	return c->rest ? slurm_rest_cancel(c->rest, id, signal, e)
		       : slurm_commands_cancel(id, signal, e);
}
