#include "plan/spec/job/job.h"

#include "plan/spec/job/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int job_refuse(const struct job_source *src, int key, struct err *e, const char *why)
{
	const struct job_key *k = &job_keys[key];
	int line = src->line[key];
	if (line < 0)
		return err_set(e, ERR_USAGE, "command line: %s.%s: %s", k->section, k->name, why);
	if (line > 0)
		return err_set(e, ERR_USAGE, "%s:%d: [%s] %s: %s", src->name, line, k->section,
			       k->name, why);
	return err_set(e, ERR_USAGE, "%s: [%s] %s: %s", src->name, k->section, k->name, why);
}

int job_set(struct job *job, struct job_source *src, int key, int line, const char *value,
	    struct err *e)
{
	struct buf why = BUF_INIT;
	int rc = job_value_read(&job_keys[key], value, job, &why);
	src->line[key] = line;
	if (rc)
		job_refuse(src, key, e, buf_str(&why));
	buf_fini(&why);
	return rc;
}

static int refuse_word(struct err *e, const char *name, const char *why)
{
	char shown[JOB_SHOWN];
	return err_set(e, ERR_USAGE, "command line: %s: %s", job_shown(name, shown), why);
}

/* Returns the key of "section.key"; refuses the word if there is no such key. */
static int word_key(struct err *e, const char *name)
{
	struct buf why = BUF_INIT;
	char section[JOB_SHOWN] = "";
	const char *dot = strchr(name, '.');
	int key = -1;
	if (!dot) {
		buf_puts(&why, "lacks its section; write section.key=value, such as parallel.tp=2");
	} else {
		job_copy(section, sizeof section, name, (size_t)(dot - name));
		key = job_key_find(section, dot + 1);
		if (!job_section_known(section))
			job_hint_section(section, &why);
		else if (key < 0)
			job_hint_key(section, dot + 1, &why);
	}
	if (key < 0)
		refuse_word(e, name, buf_str(&why));
	buf_fini(&why);
	return key;
}

static int take_word(struct job *job, struct job_source *src, const char *word, struct err *e)
{
	const char *equals = strchr(word, '=');
	if (!equals)
		return refuse_word(e, word,
				   "is not section.key=value; write such as parallel.tp=2");
	const char *byte = job_unprintable(word, strlen(word));
	char name[JOB_SHOWN], why[80];
	size_t n = (size_t)(equals - word);
	const char *from = job_trim(word, &n);
	job_copy(name, sizeof name, from, n);
	if (byte) {
		snprintf(why, sizeof why, "byte 0x%02x is not printable UTF-8 text; delete it",
			 (unsigned char)*byte);
		return refuse_word(e, name, why);
	}
	int key = word_key(e, name);
	if (key < 0)
		return -1;
	n = strlen(equals + 1);
	from = job_trim(equals + 1, &n);
	char *value = strndup(from, n);
	if (!value)
		return err_set(e, ERR_NOMEM,
			       "no memory to read the command line; close other programs");
	int rc = job_set(job, src, key, -1, value, e);
	free(value);
	return rc;
}

void job_defaults(struct job *job)
{
	struct buf why = BUF_INIT;
	memset(job, 0, sizeof *job);
	for (int i = 0; i < job_n_keys; i++)
		/* tests/unit/plan checks that each default is valid */
		job_value_read(&job_keys[i], job_keys[i].def, job, &why);
	buf_fini(&why);
}

int job_take_words(struct job *job, struct job_source *src, const char *const *words, int n,
		   struct err *e)
{
	for (int i = 0; i < n; i++)
		if (take_word(job, src, words[i], e))
			return -1;
	for (int i = 0; i < job_n_keys && job->parallel.automatic; i++)
		job->open |= src->line[i] ? 0 : job_key_open(&job_keys[i]);
	return job_check(job, src, e);
}

int job_words(const char *const *words, int n, struct job *out, struct err *e)
{
	struct job_source src = { .name = "defaults" };
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	if (!job)
		return err_set(e, ERR_NOMEM, "no memory for a job; close other programs");
	job_defaults(job);
	int rc = job_take_words(job, &src, words, n, e);
	if (!rc)
		*out = *job;
	free(job);
	return rc;
}

bool job_path_is_address(const char *path)
{
	size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");
	return n > 0 && !strncmp(path + n, "://", 3);
}
