/* inject_services: faults of Slurm's services, without touching them. A folder in front of PATH has
 * programs of the names of Slurm's. While its file "away" exists they fail with the words that Slurm
 * prints if the service is away; otherwise they execute the real ones. */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/drill/injections.h"
#include "launcher/drill/judge.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTICE_SECONDS = 120 };

#define SLURM_PROGRAMS \
	{ \
		"srun", "scontrol", "squeue", "sinfo", "scancel", "sbatch" \
	}

struct service {
	const char *programs[8]; /* that need it, ends with NULL */
	const char *arguments;   /* a part of the arguments with which they need it; "": always */
	const char *says;
};

static const struct service controller = {
	.programs = SLURM_PROGRAMS,
	.arguments = "",
	.says = "Unable to contact slurm controller (connect failure)",
};

static const struct service munge = {
	.programs = SLURM_PROGRAMS,
	.arguments = "",
	.says = "Munge encode failed: Failed to connect to munged's socket",
};

static const struct service pmix = {
	.programs = { "srun" },
	.arguments = "--mpi=pmix",
	.says = "Couldn't find the specified plugin name for mpi/pmix looking at all files",
};

static void path_of_away(const struct drill_run *r, char out[RUN_PATH])
{
	run_path(out, r->programs, "away");
}

static int write_file(const char *path, const char *text, mode_t mode, struct err *e)
{
	int fd = file_open(path, O_WRONLY | O_CREAT | O_TRUNC, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = file_write_full(fd, text, strlen(text)) || fchmod(fd, mode)
			 ? err_errno(e, ERR_IO, "%s: cannot write it", path)
			 : 0;
	close(fd);
	return rc;
}

static int write_program(const struct drill_run *r, const char *name, const struct service *s,
			 struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	run_path(path, r->programs, name);
	buf_printf(&text,
		   "#!/bin/sh\n"
		   "# A drill of muster: it fails while the file \"away\" exists.\n"
		   "here=${0%%/*} name=${0##*/}\n"
		   "case \"$*\" in\n"
		   "*%s*)\n"
		   "\tif [ -f \"$here/away\" ]; then\n"
		   "\t\techo \"$name: error: %s\" >&2\n"
		   "\t\texit 1\n"
		   "\tfi ;;\n"
		   "esac\n"
		   "PATH=$" DRILL_PATH_VARIABLE "\n"
		   "export PATH\n"
		   "exec \"$name\" \"$@\"\n",
		   s->arguments, s->says);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory for the program", path)
				   : write_file(path, buf_str(&text), 0700, e);
	buf_fini(&text);
	return rc;
}

static int prepare(struct drill_run *r, const struct service *s, struct err *e)
{
	/* PATH has no way to write a colon, so other folders would be searched. */
	if (strchr(r->path, ':'))
		return err_set(e, ERR_UNSUPPORTED,
			       "the path of the run folder has a colon; choose another [job] "
			       "run_dir");
	run_path(r->programs, r->path, "bin");
	if (file_make_own_dir(r->path, e) || file_make_own_dir(r->programs, e))
		return -1;
	for (int i = 0; s->programs[i]; i++)
		if (write_program(r, s->programs[i], s, e))
			return -1;
	return 0;
}

static int take_away(const struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	path_of_away(r, path);
	return write_file(path, "", 0600, e);
}

void drill_return_service(struct drill_run *r)
{
	char path[RUN_PATH];
	if (!*r->programs)
		return;
	path_of_away(r, path);
	unlink(path);
}

int drill_prepare_controller(struct drill_run *r, struct err *e)
{
	return prepare(r, &controller, e);
}

int drill_prepare_munge(struct drill_run *r, struct err *e)
{
	return prepare(r, &munge, e);
}

int drill_hide_pmix(struct drill_run *r, struct err *e)
{
	r->injected = clock_s();
	drill_run_word(r, "launch.pmix=slurm"); /* otherwise muster does without the plugin */
	return prepare(r, &pmix, e) || take_away(r, e) ? -1 : 0;
}

static bool is_named(const struct drill_run *r)
{
	return drill_list_has(r->story.faults, r->injection->later);
}

int drill_outlast_service(struct drill_run *r, struct err *e)
{
	if (take_away(r, e) || drill_kill_agent(r, e))
		return -1;
	int rc = drill_run_wait(r, is_named, NOTICE_SECONDS, "the name of the service", e);
	drill_return_service(r);
	return rc;
}
