#include "launcher/cli/submit_checks.h"

#include "launcher/agent_path.h"
#include "launcher/child.h"
#include "launcher/slurm/slurm.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>

#define TOOL_TIMEOUT 60.0

/* Runs `muster-agent GROUP TOOL WORD`, which checks the files as a run does. key: for the error. */
static int check_by_tool(const char *key, const char *group, const char *tool, const char *word,
			 struct err *e)
{
	char agent[PATH_MAX], said[64];
	struct err why = ERR_INIT;
	struct buf output = BUF_INIT;
	int rc = 0;
	if (launcher_agent_path(agent, sizeof agent, e))
		return -1;
	char *argv[] = { agent, (char *)(uintptr_t)group, (char *)(uintptr_t)tool,
			 (char *)(uintptr_t)word, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	snprintf(said, sizeof said, "muster %s %s: ", group, tool);
	/* Any other failure says nothing about the files: MUSTER_AGENT may name a program that only
	 * starts agents. */
	if (launcher_child_run(&c, TOOL_TIMEOUT, &output, &why)) {
		const char *text = strstr(buf_str(&output), said);
		text = text ? text + strlen(said) : NULL;
		if (text)
			rc = err_set(e, ERR_NOTFOUND, "%s: %.*s", key, (int)strcspn(text, "\n"),
				     text);
	}
	buf_fini(&output);
	return rc;
}

static int check_data(const struct job *job, struct err *e)
{
	if (job_has_program(job)) /* it reads data of its own */
		return 0;
	return check_by_tool("[data] path", "data", "show", job->data.path, e);
}

static int check_resume(const struct job *job, struct err *e)
{
	const char *from = job->checkpoint.resume;
	if (!strcmp(from, "auto") || !strcmp(from, "none"))
		return 0;
	return check_by_tool("[checkpoint] resume", "ckpt", "show", from, e);
}

/* The program that MUSTER_AGENT names may start an agent in another folder. */
static int check_library(const struct job *job, struct err *e)
{
	char path[PATH_MAX];
	struct err why = ERR_INIT;
	if (job->job.device != DEVICE_CUDA || job_has_program(job) || getenv("MUSTER_AGENT") ||
	    !launcher_cuda_library(path, sizeof path, &why))
		return 0;
	return err_set(
		e, why.code,
		"[job] device = cuda needs libmuster-cuda.so: %.700s; build muster where the "
		"CUDA toolkit is (CUDA_HOME names its folder), or use device = cpu",
		why.text);
}

/* The type of the file system of the path, or of its nearest existing parent; 0: unknown. */
static long find_file_system(const char *path)
{
	char at[PATH_MAX];
	struct statfs fs;
	snprintf(at, sizeof at, "%s", path);
	while (statfs(at, &fs)) {
		char *slash = strrchr(at, '/');
		if (errno != ENOENT || !slash)
			return 0;
		slash[slash == at] = '\0';
		if (slash == at && statfs(at, &fs))
			return 0;
	}
	return (long)fs.f_type;
}

/* Other file systems may be shared or not; nothing here can know. */
static void warn_of_local_folder(const struct job *job, const struct script_size *size,
				 struct buf *warnings)
{
	static const struct {
		long type;
		const char *name;
	} local[] = {
		{ TMPFS_MAGIC, "tmpfs" },
		{ RAMFS_MAGIC, "ramfs" },
		{ OVERLAYFS_SUPER_MAGIC, "overlay" },
	};
	long type = size->max_nodes > 1 ? find_file_system(job->job.run_dir) : 0;
	for (size_t i = 0; i < sizeof local / sizeof *local; i++)
		if (type == local[i].type)
			buf_printf(
				warnings,
				"[job] run_dir = %s is on a file system of this host alone (%s), "
				"and the nodes of the job must share it; choose a folder on a "
				"shared file system\n",
				job->job.run_dir, local[i].name);
}

int command_submit_files(const struct job *job, const struct script_size *size,
			 struct buf *warnings, struct err *e)
{
	static int (*const checks[])(const struct job *job, struct err *e) = {
		check_data,
		check_resume,
		check_library,
	};
	const char *templates = getenv("MUSTER_TEMPLATES");
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
		struct err why = ERR_INIT;
		if (!checks[i](job, &why))
			continue;
		if (!templates || !*templates)
			return err_set(e, why.code, "%s", why.text);
		buf_printf(warnings, "on this host: %s\n", why.text);
	}
	warn_of_local_folder(job, size, warnings);
	return 0;
}
