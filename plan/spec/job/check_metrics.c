/* Where metrics are exported to. */
#include "plan/spec/job/rules.h"

#include <stdlib.h>
#include <string.h>

/* Whether the text ends in ":PORT", after an address that is not empty. */
static bool has_port(const char *text)
{
	const char *colon = strrchr(text, ':');
	if (!colon || colon == text || !colon[1] || strspn(colon + 1, "0123456789") > 5 ||
	    colon[1 + strspn(colon + 1, "0123456789")])
		return false;
	bool bare_v6 = *text != '[' && memchr(text, ':', (size_t)(colon - text));
	return !bare_v6 && atoi(colon + 1) <= 65535;
}

static int check_listen(const struct rule_job *j)
{
	static const size_t keys[] = { AT(metrics, listen) };
	const char *at = j->job->metrics.listen;
	if (*at && !has_port(at))
		return REFUSE(
			j, keys,
			"listen = %s is no address with a port; use 127.0.0.1:9400, [::1]:9400, "
			"or an interface such as eth0:9400",
			at);
	return 0;
}

static int check_token(const struct rule_job *j)
{
	static const size_t keys[] = { AT(metrics, token_file), AT(metrics, listen) };
	if (*j->job->metrics.token_file && !*j->job->metrics.listen)
		return REFUSE(
			j, keys,
			"token_file = %s has no effect without listen; set listen, or remove it",
			j->job->metrics.token_file);
	return 0;
}

static int check_textfile(const struct rule_job *j)
{
	static const size_t keys[] = { AT(metrics, textfile) };
	const char *file = j->job->metrics.textfile, *end = strrchr(file, '.');
	if (*file && (!end || strcmp(end, ".prom") || end == file || end[-1] == '/'))
		return REFUSE(j, keys,
			      "textfile = %s: node_exporter reads only files whose name ends in "
			      ".prom; use %s.prom",
			      file, file);
	return 0;
}

static int check_ranks(const struct rule_job *j)
{
	static const size_t keys[] = { AT(metrics, ranks) };
	if (j->job->metrics.ranks && !*j->job->metrics.listen && !*j->job->metrics.textfile)
		return REFUSE(
			j, keys,
			"ranks = yes has no effect without listen or textfile; set one, or use "
			"ranks = no");
	return 0;
}

int job_rules_metrics(const struct rule_job *j)
{
	return check_listen(j) || check_token(j) || check_textfile(j) || check_ranks(j) ? -1 : 0;
}
