/* The places of checkpoints: each must be one of its own. */
#include "plan/spec/job/rules.h"

#include "base/run_paths.h"

#include <stdio.h>
#include <string.h>

/* Compares two folders by name, without the slashes at their ends. */
static bool is_same_place(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	while (n > 1 && a[n - 1] == '/')
		n--;
	while (m > 1 && b[m - 1] == '/')
		m--;
	return n == m && n > 0 && !strncmp(a, b, n);
}

/* The DIR of the checkpoints. */
static void own_dir(const struct job *job, char out[RUN_PATH])
{
	if (job->checkpoint.dir[0])
		snprintf(out, RUN_PATH, "%s", job->checkpoint.dir);
	else
		snprintf(out, RUN_PATH, "%s/%s/" RUN_CKPT, job->job.run_dir, job->job.name);
}

static int check_local(const struct rule_job *j)
{
	static const size_t local[] = { AT(checkpoint, local) };
	static const size_t both[] = { AT(checkpoint, local), AT(checkpoint, dir) };
	const char *at = j->job->checkpoint.local;
	char dir[RUN_PATH];
	own_dir(j->job, dir);
	if (strstr(at, "://"))
		return REFUSE(j, local,
			      "local = %s is not a folder of a node; name one on a disk of its "
			      "own, such as "
			      "/local/%%N, and use remote for an object store",
			      at);
	if (job_rule_pattern(j, local[0], at))
		return -1;
	if (is_same_place(at, dir))
		return REFUSE(
			j, both,
			"local and dir are both = %s; local needs a folder of its own on each "
			"node",
			at);
	return 0;
}

static int check_remote(const struct rule_job *j)
{
	static const size_t remote[] = { AT(checkpoint, remote) };
	static const size_t with_dir[] = { AT(checkpoint, remote), AT(checkpoint, dir) };
	static const size_t with_local[] = { AT(checkpoint, remote), AT(checkpoint, local) };
	const char *at = j->job->checkpoint.remote, *scheme = strstr(at, "://");
	char dir[RUN_PATH];
	own_dir(j->job, dir);
	if (scheme && strncmp(at, "s3://", 5))
		return REFUSE(j, remote,
			      "remote = %s is in a storage that muster does not know; use s3://…, "
			      "or a folder",
			      at);
	if (is_same_place(at, dir))
		return REFUSE(j, with_dir,
			      "remote and dir are both = %s; remote needs a place of its own", at);
	if (is_same_place(at, j->job->checkpoint.local))
		return REFUSE(j, with_local,
			      "remote and local are both = %s; remote needs a place of its own",
			      at);
	return 0;
}

int job_rules_checkpoint(const struct rule_job *j)
{
	return check_local(j) || check_remote(j) ? -1 : 0;
}
