/* Where notifications go, and of what. */
#include "plan/spec/job/notify.h"
#include "plan/spec/job/rules.h"

#include <string.h>

static int check_list(const struct rule_job *j)
{
	static const size_t keys[] = { AT(notify, on) };
	struct buf why = BUF_INIT;
	int rc = job_notices_check(j->job->notify.on, &why);
	if (rc)
		REFUSE(j, keys, "%s", buf_str(&why));
	buf_fini(&why);
	return rc;
}

/* The text of a refusal never repeats the address, which may be a secret. */
static int check_address(const struct rule_job *j)
{
	static const size_t url[] = { AT(notify, url) };
	static const size_t both[] = { AT(notify, url), AT(notify, url_file) };
	const struct job *job = j->job;
	struct buf why = BUF_INIT;
	int rc = 0;
	if (*job->notify.url && *job->notify.url_file)
		rc = REFUSE(j, both,
			    "url and url_file = %s both give the address; keep one of the two",
			    job->notify.url_file);
	else if (*job->notify.url && job_notify_address_check(job->notify.url, &why))
		rc = REFUSE(j, url, "%s", buf_str(&why));
	else if (!strncmp(job->notify.url, "https://hooks.slack.com/", 24))
		rc = REFUSE(j, url,
			    "the address of a Slack webhook is a secret, and url is written into "
			    "the run folder; write it into a file with mode 0600 and name that "
			    "as url_file");
	buf_fini(&why);
	return rc;
}

/* The command is split at its blanks only: whoever quotes a word expects a shell. */
static int check_command(const struct rule_job *j)
{
	static const size_t keys[] = { AT(notify, command) };
	size_t plain = strcspn(j->job->notify.command, "\"'`$|;&<>");
	char shell = j->job->notify.command[plain];
	if (shell)
		return REFUSE(j, keys,
			      "%c means something to a shell only, and no shell reads the command; "
			      "put it into a script and name that",
			      shell);
	return 0;
}

int job_rules_notify(const struct rule_job *j)
{
	return check_list(j) || check_address(j) || check_command(j) ? -1 : 0;
}
