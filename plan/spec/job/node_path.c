#include "plan/spec/job/node_path.h"

#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int job_node_path(const char *key, const char *pattern, const char *node, char out[PATH_MAX],
		  struct err *e)
{
	size_t n = 0, length = strlen(node);
	if (strstr(pattern, "%N") && (!*node || strchr(node, '/') || node[0] == '.'))
		return err_set(e, ERR_USAGE,
			       "%s = %s: the node's name \"%s\" cannot be part of a path; use a "
			       "folder without %%N",
			       key, pattern, node);
	for (const char *p = pattern; *p; p++) {
		bool name = p[0] == '%' && p[1] == 'N';
		if (n + (name ? length : 1) >= PATH_MAX - 128)
			return err_set(e, ERR_USAGE, "%s: the path is too long; use a shorter one",
				       key);
		memcpy(out + n, name ? node : p, name ? length : 1);
		n += name ? length : 1;
		p += name;
	}
	out[n] = '\0';
	return 0;
}

bool job_logs_auto(const struct job *job)
{
	return !strcmp(job->log.local, "auto");
}

bool job_logs_local(const struct job *job, int world)
{
	bool none = !job->log.local[0] || !strcmp(job->log.local, "none");
	return job_logs_auto(job) ? world > JOB_LOGS_SHARED_MOST : !none;
}

/* Reads RUN_LOGS_ID: JOB_LOGS_ID hexadecimal digits. */
static int read_id(const char *run, char out[JOB_LOGS_ID + 1], struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	run_path(path, run, RUN_LOGS_ID);
	int rc = file_slurp_own(path, JOB_LOGS_ID + 1, &text, e);
	const char *id = buf_str(&text);
	if (!rc && strspn(id, "0123456789abcdef") != JOB_LOGS_ID)
		rc = err_set(e, ERR_CORRUPT, "%s: is damaged; remove it", path);
	if (!rc)
		snprintf(out, JOB_LOGS_ID + 1, "%.*s", JOB_LOGS_ID, id);
	buf_fini(&text);
	return rc;
}

int job_logs_folder(const struct job *job, const char *run, const char *node, char parent[PATH_MAX],
		    char out[RUN_PATH], struct err *e)
{
	char above[PATH_MAX], id[JOB_LOGS_ID + 1];
	const char *name = strrchr(run, '/');
	if (job_logs_auto(job))
		snprintf(above, sizeof above, "/tmp/muster-%u", (unsigned)geteuid());
	else if (job_node_path("log.local", job->log.local, node, above, e))
		return -1;
	if (read_id(run, id, e))
		return -1;
	snprintf(out, RUN_PATH, "%s/%.200s-%s", above, name ? name + 1 : run, id);
	if (parent)
		memcpy(parent, above, sizeof above);
	return 0;
}
