/* slurm: checks Slurm's commands, its controller, its PMIx plugin, and MUNGE. */
#include "launcher/doctor/doctor.h"

#include "launcher/child.h"
#include "launcher/slurm/pmix.h"
#include "launcher/slurm/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS 7.0

static int run_command(const char *const *words, struct buf *out, struct err *e)
{
	const struct child_command c = { .argv = (char *const *)words, .out = -1, .tied = true };
	return launcher_child_run(&c, SECONDS, out, e);
}

static const char conf[] = "run systemctl status slurmctld on the controller; SLURM_CONF must "
			   "name this cluster's slurm.conf";

/* scontrol prints one line per controller, "Slurmctld(primary) at c1 is UP". One active controller
 * is enough. */
static void check_controller(struct findings *f)
{
	static const char *const ping[] = { "scontrol", "ping", NULL };
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	int rc = run_command(ping, &out, &e);
	const char *text = buf_str(&out), *up = strstr(text, " is UP"),
		   *down = strstr(text, " is DOWN");
	if (rc || down)
		doctor_found_bad(f, !rc && up ? FINDING_WARN : FINDING_FAIL, "slurmctld", conf,
				 "%s", rc ? e.text : text);
	else
		doctor_found_ok(f, "slurmctld", "%.*s", (int)strcspn(text, "\n"), text);
	buf_fini(&out);
}

static void check_plugin(struct findings *f)
{
	static const char *const list[] = { "srun", "--mpi=list", NULL };
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	int rc = run_command(list, &out, &e);
	if (!rc && slurm_pmix_listed(buf_str(&out)))
		doctor_found_ok(f, "srun --mpi=pmix", "available");
	else
		doctor_found_bad(
			f, rc ? FINDING_FAIL : FINDING_WARN, "srun --mpi=pmix",
			"install Slurm's PMIx plugin on every node (Debian: "
			"slurm-wlm-mpi-plugins, with libpmix2) and restart "
			"slurmd; or leave it: launch.pmix = auto does without it",
			"%s",
			rc ? e.text
			   : "srun --mpi=list does not list it, so muster serves PMIx itself, by a "
			     "helper on each node");
	buf_fini(&out);
}

void doctor_check_slurm(const struct needs *n, struct findings *f)
{
	static const char *const version[] = { "sinfo", "--version", NULL };
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	int rc = run_command(version, &out, &e);
	const char *text = buf_str(&out);
	if (rc && e.code == ERR_NOTFOUND && !n->slurm) {
		doctor_found_ok(f, "Slurm", "not installed; runs stay on this host");
	} else if (rc && !n->slurm && strstr(e.text, "configuration source")) {
		doctor_found_ok(f, "Slurm",
				"installed, but this host belongs to no cluster; runs stay on it");
	} else if (rc) {
		doctor_found_bad(f, n->slurm ? FINDING_FAIL : FINDING_WARN, "Slurm",
				 e.code == ERR_NOTFOUND
					 ? "install Slurm's commands (slurm-client) in the "
					   "version of the cluster"
					 : conf,
				 "%s", e.text);
	} else {
		doctor_found_ok(f, "Slurm", "%.*s%s", (int)strcspn(text, "\n"), text,
				n->slurm ? "" : "; this is not an allocation");
		check_controller(f);
		check_plugin(f);
	}
	buf_fini(&out);
}

/* Does what the agents and the supervisor do, on this node. */
void doctor_check_munge(const struct needs *n, struct findings *f)
{
	char word[MUNGE_WORD];
	struct err warning = ERR_INIT;
	if (!n->slurm) {
		doctor_found_ok(f, "MUNGE", "only runs under Slurm use it");
		return;
	}
	slurm_auth(word, &warning);
	if (warning.code != ERR_NONE)
		doctor_found_bad(f, FINDING_WARN, "MUNGE",
				 "start munged on this node with the cluster's key, or set "
				 "MUSTER_AUTH=secret "
				 "to run without it",
				 "%s", warning.text);
	else
		doctor_found_ok(f, "MUNGE", "%s",
				strcmp(word, "secret") ? "credentials can be made"
						       : "not used; the secret of each "
							 "generation is enough");
}
