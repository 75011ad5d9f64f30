/* Any bytes as Slurm's description of its partitions and nodes, separated by a line "=", as the user's
 * associations, and as its forecast. A job is then compared with them. */
#include "launcher/slurm/admit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void admit(const char *partitions, const char *nodes)
{
	static const char *const words[] = { "slurm.nodes=2-4",      "slurm.time=60",
					     "slurm.constraint=a&b", "slurm.exclude=n[1-2]",
					     "slurm.nodelist=n3",    "slurm.mem=1G",
					     "slurm.account=lab",    "slurm.gpus_per_node=1" };
	static struct job job;
	static bool loaded;
	struct script_size s;
	struct site site;
	struct buf warnings = BUF_INIT;
	struct err e = ERR_INIT;
	if (!loaded && job_load(NULL, words, sizeof words / sizeof *words, &job, &e))
		abort();
	loaded = true;
	if (slurm_script_size(&job, &s, &e))
		abort();
	if (slurm_site_parse(partitions, nodes, &site, &e))
		return;
	const char *config = slurm_site_enforces(partitions) ? partitions
							     : "AccountingStorageEnforce = qos";
	if (slurm_site_parse_associations(config, nodes, &site, &e))
		abort();
	if (slurm_admit(&job, &s, &site, &warnings, &e) && !e.text[0])
		abort();
	buf_fini(&warnings);
	slurm_site_free(&site);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	if (!text)
		return 0;
	struct buf out = BUF_INIT;
	slurm_admit_wait(text, 1795370400, &out);
	buf_fini(&out);
	char *cut = strstr(text, "\n=\n");
	if (cut)
		*cut = '\0';
	admit(text, cut ? cut + 3 : "");
	free(text);
	return 0;
}
