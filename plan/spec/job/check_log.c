/* Where the logs are. */
#include "plan/spec/job/rules.h"

#include <string.h>

int job_rules_log(const struct rule_job *j)
{
	static const size_t local[] = { AT(log, local) };
	const char *at = j->job->log.local;
	if (!strcmp(at, "auto") || !strcmp(at, "none"))
		return 0;
	if (*at != '/' || strstr(at, "://"))
		return REFUSE(j, local,
			      "local = %s is not an absolute path; name a folder on a disk of each "
			      "node, such as /local/%%N, or use auto or none",
			      at);
	return job_rule_pattern(j, local[0], at);
}
