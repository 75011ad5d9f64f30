#include "launcher/slurm/pmix.h"

#include "launcher/child.h"
#include "launcher/pmix_words.h"
#include "launcher/slurm/slurm.h"

#include <string.h>

static const double list_s = 5;

static enum { UNKNOWN, LISTED, NOT_LISTED, REFUSED } plugin;

bool slurm_pmix_listed(const char *list)
{
	for (const char *at = strstr(list, "pmix"); at; at = strstr(at + 1, "pmix"))
		if (at == list || strchr(" \t\n,", at[-1]))
			return true;
	return false;
}

/* If srun cannot answer, the plugin counts as listed: the step's own error is the better message. */
static void look_for_plugin(void)
{
	struct buf out = BUF_INIT;
	const struct child_command c = { .argv = (char *[]){ "srun", "--mpi=list", NULL },
					 .out = -1,
					 .absent = SLURM_ABSENT };
	bool failed = launcher_child_run(&c, list_s, &out, NULL) != 0;
	plugin = failed || !out.len || slurm_pmix_listed(buf_str(&out)) ? LISTED : NOT_LISTED;
	buf_fini(&out);
}

bool slurm_pmix_is_own(const struct job *job, const char **why)
{
	if (job->launch.pmix == PMIX_AUTO && plugin == UNKNOWN)
		look_for_plugin();
	if (job->launch.pmix == PMIX_MUSTER)
		*why = "[launch] pmix = muster";
	else if (plugin == REFUSED)
		*why = "agents cannot use the PMIx server of Slurm's plugin";
	else
		*why = "Slurm has no plugin for PMIx here (srun --mpi=list)";
	return job->launch.pmix == PMIX_MUSTER ||
	       (job->launch.pmix == PMIX_AUTO && plugin != LISTED);
}

bool slurm_pmix_failed(const char *output)
{
	return launcher_says_no_pmix(output) || strstr(output, "PMIx: PMIx_Init failed") ||
	       strstr(output, "PMIx: the environment names no PMIx server");
}

void slurm_pmix_refuse(void)
{
	plugin = REFUSED;
}
