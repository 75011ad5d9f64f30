/* A batch script as a job description. slurmrestd does not read #SBATCH lines. */
#include "launcher/slurm/rest/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The script --- */

/* Reads the next word of a line as a shell would, with quotes but without substitutions. 0: there is
 * none. -1: it is too long, or a quote is not closed. */
static int next_word(const char **at, char out[REST_VALUE])
{
	const char *p = *at + strspn(*at, " \t");
	char quote = 0;
	size_t n = 0;
	if (!*p || *p == '\n' || *p == '#')
		return 0;
	for (; *p && *p != '\n' && (quote || (*p != ' ' && *p != '\t')); p++) {
		if (*p == quote)
			quote = 0;
		else if (!quote && (*p == '"' || *p == '\''))
			quote = *p;
		else if (n + 1 < REST_VALUE)
			out[n++] = *p;
		else
			return -1;
	}
	out[n] = '\0';
	*at = p;
	return quote ? -1 : 1;
}

static int describe_line(struct describing *d, const char *line, const char *dependency,
			 struct err *e)
{
	char word[REST_VALUE];
	int got;
	while ((got = next_word(&line, word)) != 0) {
		if (got < 0)
			return err_set(
				e, ERR_USAGE,
				"an #SBATCH line of the batch script has a word of more than "
				"%d bytes, or an open quote: \"%.60s…\"",
				REST_VALUE - 1, line);
		char *equals = strchr(word, '=');
		if (strncmp(word, "--", 2))
			return err_set(e, ERR_USAGE,
				       "\"%.100s\" in an #SBATCH line of the batch script: for "
				       "Slurm's REST "
				       "interface write every option as --NAME=VALUE",
				       word);
		if (equals)
			*equals = '\0';
		bool replaced = dependency && !strcmp(word + 2, "dependency");
		if (!replaced && slurm_rest_put_option(d, word + 2, equals ? equals + 1 : NULL, e))
			return -1;
	}
	return 0;
}

/* As sbatch: #SBATCH lines count until the first line that is neither a comment nor empty. */
static int describe_lines(struct describing *d, const struct rest_script *s, struct err *e)
{
	for (const char *at = s->text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		if (!strncmp(at, "#SBATCH", 7) && strchr(" \t", at[7]) &&
		    describe_line(d, at + 7, s->dependency, e))
			return -1;
		size_t blank = strspn(at, " \t");
		if (at[blank] != '#' && at[blank] != '\n')
			break;
	}
	if (s->dependency && *s->dependency)
		return slurm_rest_put_option(d, "dependency", s->dependency, e);
	return 0;
}

/* --- The environment --- */

/* Secrets, and what describes this submission. */
static bool is_kept_back(const char *word)
{
	static const char *const names[] = {
		"SLURM_JWT=",
		"SLURM_USER_NAME=",
		"SLURM_SUBMIT_",
		"SLURM_UMASK=",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(word, names[i], strlen(names[i])))
			return true;
	return !strchr(word, '=') || *word == '=';
}

/* v0.0.38: an object; later: a list of NAME=VALUE. Variables that are not UTF-8 are left out. */
static void add_variable(json_t *env, const char *word)
{
	char name[256];
	size_t n = strcspn(word, "=");
	if (n == 0 || n >= sizeof name)
		return;
	snprintf(name, sizeof name, "%.*s", (int)n, word);
	if (json_is_array(env))
		json_array_append_new(env, json_string(word));
	else
		json_object_set_new(env, name, json_string(word + n + 1));
}

/* What sbatch tells the job. */
static int put_environment(struct describing *d, const struct rest_script *s, struct err *e)
{
	json_t *env = slurm_rest_is_old(d) ? json_object() : json_array();
	char host[256] = "";
	struct buf word = BUF_INIT;
	for (char *const *at = s->environment; env && at && *at; at++)
		if (!is_kept_back(*at))
			add_variable(env, *at);
	gethostname(host, sizeof host - 1);
	const struct {
		const char *name, *value;
		int64_t number; /* in place of `value` */
	} own[] = {
		{ "SLURM_SUBMIT_DIR", s->cwd, 0 },
		{ "SLURM_SUBMIT_HOST", host, 0 },
		{ "SLURM_JOB_NAME", slurm_rest_text(d->job, "name"), 0 },
		{ "SLURM_UMASK", "0077", 0 },
		{ "SLURM_NTASKS_PER_NODE", NULL, d->tasks },
		{ "SLURM_CPUS_PER_TASK", NULL, d->cpus },
	};
	for (size_t i = 0; env && i < sizeof own / sizeof *own; i++) {
		buf_clear(&word);
		if (own[i].value)
			buf_printf(&word, "%s=%s", own[i].name, own[i].value);
		else if (own[i].number > 0)
			buf_printf(&word, "%s=%lld", own[i].name, (long long)own[i].number);
		add_variable(env, buf_str(&word));
	}
	buf_fini(&word);
	return slurm_rest_set(d, "environment", env, e);
}

/* sbatch counts the tasks of a fixed number of nodes; v0.0.38 would take 1 for the number. */
static int put_task_count(struct describing *d, struct err *e)
{
	if (!d->tasks || (!slurm_rest_is_old(d) && d->min_nodes != d->max_nodes))
		return 0;
	return slurm_rest_set(d, "tasks", json_integer((json_int_t)(d->tasks * d->min_nodes)), e);
}

json_t *slurm_rest_describe(const struct rest_script *s, struct buf *notes, struct err *e)
{
	struct describing d = { .job = json_object(),
				.version = s->version,
				.notes = notes,
				.min_nodes = 1,
				.max_nodes = 1 };
	json_t *body = NULL;
	int rc = d.job ? describe_lines(&d, s, e) || put_task_count(&d, e) ||
				 put_environment(&d, s, e) ||
				 slurm_rest_set(&d, "current_working_directory",
						json_string(s->cwd), e)
		       : err_set(e, ERR_NOMEM, "no memory for the description of the job");
	if (!rc) {
		body = json_pack("{s:s, s:O}", "script", s->text, "job", d.job);
		if (!body)
			err_set(e, ERR_USAGE,
				"the batch script is not UTF-8, which Slurm's REST interface "
				"needs; correct "
				"the template or the job");
	}
	json_decref(d.job);
	return body;
}

json_t *slurm_rest_describe_change(const struct queue_change *c, int version)
{
	struct describing d = { .job = json_object(), .version = version };
	const struct {
		const char *key, *value;
	} texts[] = {
		{ "comment", c->comment }, { "partition", c->partition },   { "qos", c->qos },
		{ "name", c->name },       { "dependency", c->dependency },
	};
	int rc = 0;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i].value)
			rc |= slurm_rest_set(&d, texts[i].key, json_string(texts[i].value), NULL);
	if (c->limit > 0)
		rc |= slurm_rest_is_old(&d)
			      ? slurm_rest_set(&d, "time_limit", json_integer(c->limit), NULL)
			      : slurm_rest_set_number(&d, "time_limit", c->limit, false, NULL);
	if (c->nice != QUEUE_NICE_NONE)
		rc |= slurm_rest_set(&d, "nice", json_integer(c->nice), NULL);
	if (!rc)
		return d.job;
	json_decref(d.job);
	return NULL;
}
