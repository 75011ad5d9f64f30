/* What sbatch would refuse, or would understand in another way than muster. */
#include "plan/spec/job/rules.h"
#include "plan/spec/job/sbatch.h"

#include <string.h>
#include <strings.h>

static int check_slurm_time(const struct rule_job *j)
{
	static const size_t keys[] = { AT(slurm, signal_before), AT(slurm, time) };
	const struct job *job = j->job;
	int64_t limit = *job->slurm.time ? job_time_seconds(job->slurm.time) : 0;
	if (limit > 0 && job->slurm.signal_before >= limit)
		return REFUSE(j, keys,
			      "signal_before = %lld s leaves nothing of the time limit of %lld s; "
			      "lower it or raise time",
			      (long long)job->slurm.signal_before, (long long)limit);
	return 0;
}

static int check_memory(const struct rule_job *j)
{
	static const size_t keys[] = { AT(slurm, mem) };
	const char *text = j->job->slurm.mem;
	size_t digits = strspn(text, "0123456789"), n = strlen(text);
	bool unit = digits + 1 == n && strchr("KMGTkmgt", text[digits]);
	if (n && (!digits || (digits != n && !unit)))
		return REFUSE(
			j, keys,
			"\"%s\" is not an amount of memory; use a whole number with K, M, G or "
			"T behind it, such as 200G",
			text);
	return 0;
}

/* Whether one of the items, separated by commas, is of the generic resource `name`. */
static bool lists_gres(const char *text, const char *name)
{
	size_t len = strlen(name);
	for (; *text; text += strcspn(text, ","), text += *text == ',') {
		const char *item = strncmp(text, "gres/", 5) ? text : text + 5;
		if (!strncmp(item, name, len) && (!item[len] || strchr(":,=", item[len])))
			return true;
	}
	return false;
}

static int check_gres(const struct rule_job *j)
{
	static const size_t keys[] = { AT(slurm, gres), AT(slurm, gpus_per_node) };
	const struct job *job = j->job;
	if (job->slurm.gpus_per_node > 0 && lists_gres(job->slurm.gres, "gpu"))
		return REFUSE(
			j, keys,
			"gres = %s requests GPUs, and so does gpus_per_node = %lld; keep one of "
			"the two",
			job->slurm.gres, (long long)job->slurm.gpus_per_node);
	return 0;
}

/* Reads the next word of a list, up to one of the characters `ends`, and moves *text behind the
 * end. false: the list is at its end. */
static bool next_word(const char **text, const char *ends, char word[JOB_SHOWN])
{
	size_t n = strcspn(*text, ends);
	if (!**text)
		return false;
	job_copy(word, JOB_SHOWN, *text, n);
	*text += n + ((*text)[n] != '\0');
	return true;
}

static bool is_among(const char *word, const char *const *words,
		     bool (*same)(const char *a, const char *b))
{
	for (; *words; words++)
		if (same(word, *words))
			return true;
	return false;
}

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a, b);
}

static bool same_letters(const char *a, const char *b)
{
	return !strcasecmp(a, b);
}

/* "; did you mean X?" or the list. */
static int refuse_word(const struct rule_job *j, size_t key, const char *word,
		       const char *const *words, const char *what)
{
	const size_t keys[] = { key };
	const char *near = job_nearest(word, words);
	struct buf list = BUF_INIT;
	for (int i = 0; words[i]; i++)
		buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
	int rc = near ? REFUSE(j, keys, "\"%s\" is not %s; did you mean %s?", word, what, near)
		      : REFUSE(j, keys, "\"%s\" is not %s; use %s", word, what, buf_str(&list));
	buf_fini(&list);
	return rc;
}

static int check_mail(const struct rule_job *j)
{
	static const char *const types[] = {
		"NONE",
		"BEGIN",
		"END",
		"FAIL",
		"REQUEUE",
		"ALL",
		"TIME_LIMIT",
		"TIME_LIMIT_90",
		"TIME_LIMIT_80",
		"TIME_LIMIT_50",
		"STAGE_OUT",
		"INVALID_DEPEND",
		NULL,
	};
	char word[JOB_SHOWN];
	for (const char *at = j->job->slurm.mail_type; next_word(&at, ",", word);)
		if (!is_among(word, types, same_letters))
			return refuse_word(j, AT(slurm, mail_type), word, types,
					   "an event that Slurm sends mail about");
	return 0;
}

static int check_dependency(const struct rule_job *j)
{
	static const char *const types[] = {
		"after", "afterany", "afternotok", "afterok", "afterburstbuffer", "singleton", NULL,
	};
	static const size_t keys[] = { AT(slurm, dependency) };
	char item[JOB_SHOWN];
	for (const char *at = j->job->slurm.dependency; next_word(&at, ",?", item);) {
		size_t n = strcspn(item, ":");
		bool alone = !item[n] || !item[n + 1];
		item[n] = '\0';
		if (!is_among(item, types, same_text))
			return refuse_word(j, AT(slurm, dependency), item, types,
					   "a dependency that muster can pass on");
		if (strcmp(item, "singleton") && alone)
			return REFUSE(j, keys, "\"%s\" names no job; use %s:JOBID", item, item);
	}
	return 0;
}

static int check_options(const struct rule_job *j)
{
	static const size_t keys[] = { AT(slurm, options) };
	const char *at = j->job->slurm.options, *word;
	size_t len;
	int rc = 0;
	struct buf why = BUF_INIT;
	while (!rc && job_sbatch_word(&at, &word, &len))
		rc = job_sbatch_check(word, len, &why);
	if (rc)
		REFUSE(j, keys, "%s", buf_str(&why));
	buf_fini(&why);
	return rc;
}

int job_rules_slurm(const struct rule_job *j)
{
	static rule *const rules[] = {
		check_slurm_time, check_memory,     check_gres,
		check_mail,       check_dependency, check_options,
	};
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (rules[i](j))
			return -1;
	return 0;
}
