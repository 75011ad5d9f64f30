/* Asks Slurm's commands for the texts that site.c parses. */
#include "launcher/slurm/site.h"

#include "launcher/child.h"
#include "launcher/slurm/slurm.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_TIMEOUT        30.0
#define ACCOUNTING_TIMEOUT 5.0

static int run_command(char *const *argv, struct buf *output, struct err *e)
{
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	return launcher_child_run(&c, ASK_TIMEOUT, output, e);
}

/* The user's associations are in slurmdbd. If it does not answer they stay unknown, and sbatch checks
 * them. */
static int ask_associations(const char *config, struct site *s, struct err *e)
{
	char user[SITE_NAME + 8];
	const struct passwd *p = getpwuid(geteuid());
	char *argv[] = { "sacctmgr",    "--readonly", "--noheader",
			 "--parsable2", "show",       "association",
			 "where",       user,         (char *)(uintptr_t)SITE_ASSOCIATIONS_FORMAT,
			 NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	struct buf text = BUF_INIT;
	if (!p || strlen(p->pw_name) >= SITE_NAME)
		return 0;
	snprintf(user, sizeof user, "user=%s", p->pw_name);
	int rc = launcher_child_run(&c, ACCOUNTING_TIMEOUT, &text, NULL)
			 ? 0
			 : slurm_site_parse_associations(config, buf_str(&text), s, e);
	buf_fini(&text);
	return rc;
}

static int ask_accounting(struct site *s, struct err *e)
{
	char *argv[] = { "scontrol", "show", "config", NULL };
	struct buf config = BUF_INIT;
	int rc = 0;
	if (!run_command(argv, &config, NULL) && slurm_site_enforces(buf_str(&config)))
		rc = ask_associations(buf_str(&config), s, e);
	buf_fini(&config);
	return rc;
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
	if (!rc && ask_accounting(out, e)) {
		slurm_site_free(out);
		rc = -1;
	}
	return rc;
}
