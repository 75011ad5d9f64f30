#include "plan/spec/job/job.h"

#include "base/file.h"
#include "plan/spec/job/keys.h"

#include <ini.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, LINE_BYTES_MAX = 2048, SECTION_MAX = 40 };

/* inih splits lines into names and values. It does not report line numbers, empty sections or
 * invalid lines. The reader that feeds it one line at a time finds those. */
struct parser {
	struct job *job;
	struct job_source *src;
	struct err *err;
	const char *at, *end;
	int line;
	char section[SECTION_MAX]; /* "": none yet */
	/* the name on a line for which inih has not called take_pair yet, or "" */
	char key[JOB_SHOWN];
	bool failed;
};

/* Refuses the current line; section and name may be "". */
static int refuse_line(struct parser *p, const char *section, const char *name, const char *why)
{
	char shown_section[JOB_SHOWN], shown[JOB_SHOWN];
	p->failed = true;
	return err_set(p->err, ERR_USAGE, "%s:%d:%s%s%s%s%s%s %s", p->src->name, p->line,
		       *section ? " [" : "", job_shown(section, shown_section), *section ? "]" : "",
		       *name ? " " : "", job_shown(name, shown), *section || *name ? ":" : "", why);
}

static int enter_section(struct parser *p, const char *line, size_t n)
{
	const char *close = memchr(line, ']', n);
	if (!close)
		return refuse_line(p, "", "", "a section's name lacks its ']'; write [section]");
	size_t rest = n - (size_t)(close + 1 - line);
	const char *after = job_trim(close + 1, &rest);
	if (rest && *after != ';' && *after != '#')
		return refuse_line(
			p, "", "",
			"something follows a section's ']'; write [section] on a line of its own");
	size_t len = (size_t)(close - line - 1);
	const char *name = job_trim(line + 1, &len);
	char section[JOB_SHOWN];
	job_copy(section, sizeof section, name, len);
	if (!*section)
		return refuse_line(p, "", "", "a section without a name; write such as [model]");
	if (!job_section_known(section)) {
		struct buf why = BUF_INIT;
		job_hint_section(section, &why);
		refuse_line(p, section, "", buf_str(&why));
		buf_fini(&why);
		return -1;
	}
	job_copy(p->section, sizeof p->section, section, strlen(section));
	return 0;
}

/* Takes the name on a line, which ends at '=', ':' or a blank. */
static void take_key(struct parser *p, const char *line, size_t n)
{
	size_t len = 0;
	while (len < n && !strchr("=: \t", line[len]) && !job_unprintable(line + len, 1))
		len++;
	job_copy(p->key, sizeof p->key, line, len);
	if (!len)
		job_copy(p->key, sizeof p->key, "=", 1);
}

static int check_line(struct parser *p, const char *line, size_t n)
{
	char why[80];
	const char *byte = job_unprintable(line, n);
	if (byte) {
		snprintf(why, sizeof why, "byte 0x%02x is not printable UTF-8 text; delete it",
			 (unsigned char)*byte);
		return refuse_line(p, p->section, p->key, why);
	}
	if (n > LINE_BYTES_MAX - 8) {
		snprintf(why, sizeof why, "the line is longer than %d bytes; shorten it",
			 LINE_BYTES_MAX - 8);
		return refuse_line(p, p->section, p->key, why);
	}
	return 0;
}

/* If inih has not called take_pair for a line, the line is not a pair. */
static void check_answered(struct parser *p)
{
	char why[160];
	if (p->failed || !*p->key)
		return;
	snprintf(why, sizeof why, "has no '='; write %s = VALUE", p->key);
	refuse_line(p, p->section, p->key, why);
}

/* The function that inih calls for fgets. It returns one line without leading blanks, so that inih
 * does not see a continuation. */
static char *read_line(char *to, int size, void *arg)
{
	struct parser *p = arg;
	check_answered(p);
	if (p->failed || p->at == p->end)
		return NULL;
	const char *stop = memchr(p->at, '\n', (size_t)(p->end - p->at));
	size_t n = (size_t)((stop ? stop : p->end) - p->at);
	const char *line = p->at;
	p->at = stop ? stop + 1 : p->end;
	p->line++;
	p->key[0] = '\0';
	if (n && line[n - 1] == '\r')
		n--;
	line = job_trim(line, &n);
	*to = '\0';
	if (!n || *line == ';' || *line == '#')
		return to;
	if (*line != '[')
		take_key(p, line, n);
	if (check_line(p, line, n))
		return NULL;
	if (*line == '[')
		return enter_section(p, line, n) ? NULL : to;
	if (!*p->section) {
		refuse_line(p, "", p->key,
			    "comes before any section; put a line such as [model] above it");
		return NULL;
	}
	job_copy(to, (size_t)size, line, n);
	return to;
}

/* The function that inih calls for each pair. The section is the one that the reader knows. */
static int take_pair(void *arg, const char *section, const char *name, const char *value)
{
	struct parser *p = arg;
	(void)section;
	if (p->failed)
		return 0;
	struct buf why = BUF_INIT;
	int key = job_key_find(p->section, name);
	p->key[0] = '\0';
	if (!*name)
		refuse_line(p, p->section, "", "a line begins with '='; write key = value");
	else if (key < 0) {
		job_hint_key(p->section, name, &why);
		refuse_line(p, p->section, name, buf_str(&why));
	} else if (p->src->line[key]) {
		buf_printf(&why, "is given a second time, after line %d; keep one of them",
			   p->src->line[key]);
		refuse_line(p, p->section, name, buf_str(&why));
	} else {
		p->failed = job_set(p->job, p->src, key, p->line, value, p->err) != 0;
	}
	buf_fini(&why);
	return !p->failed;
}

static void allow_long_lines(void)
{
	ini_max_line = LINE_BYTES_MAX;
}

static int parse_file(struct parser *p, const char *text, size_t n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, allow_long_lines);
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
		text += 3;
		n -= 3;
	}
	p->at = text;
	p->end = text + n;
	int rc = ini_parse_stream(read_line, p, take_pair, p);
	check_answered(p);
	if (p->failed)
		return -1;
	if (rc)
		return err_set(p->err, ERR_USAGE, "%s:%d: cannot be read; check that line",
			       p->src->name, rc < 0 ? p->line : rc);
	return 0;
}

/* text NULL: no file. */
static int load_job(const char *text, size_t n, const char *name, const char *const *words,
		    int n_words, struct job *out, struct job_source *src, struct err *e)
{
	char shown[JOB_PATH];
	snprintf(shown, sizeof shown, "%s", name);
	for (char *c = shown; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	*src = (struct job_source){ .name = shown };
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	if (!job)
		return err_set(e, ERR_NOMEM, "no memory for a job; close other programs");
	struct parser p = { .job = job, .src = src, .err = e };
	job_defaults(job);
	int rc = (text && parse_file(&p, text, n)) || job_take_words(job, src, words, n_words, e)
			 ? -1
			 : 0;
	if (!rc)
		*out = *job;
	free(job);
	return rc;
}

int job_parse(const char *text, const char *name, struct job *out, struct err *e)
{
	struct job_source src;
	return load_job(text, strlen(text), name, NULL, 0, out, &src, e);
}

/* Names the job after the file, without folder and ".ini", if that is a valid name of a run. */
static void name_after_file(const char *path, struct job *job)
{
	struct buf why = BUF_INIT;
	char name[JOB_TEXT];
	const char *slash = strrchr(path, '/');
	snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
	char *dot = strrchr(name, '.');
	if (dot && !strcmp(dot, ".ini"))
		*dot = '\0';
	int key = job_key_find("job", "name");
	job_value_read(&job_keys[key], name, job, &why); /* if it is not valid, the default stays */
	buf_fini(&why);
}

int job_load(const char *path, const char *const *words, int n_words, struct job *out,
	     struct err *e)
{
	struct buf text = BUF_INIT;
	struct job_source src;
	int rc = -1;
	if (path && file_slurp(path, FILE_MAX, &text, e)) {
		if (e) {
			e->code = ERR_USAGE;
			size_t used = strlen(e->text);
			snprintf(e->text + used, sizeof e->text - used,
				 "; give the path of a job file");
		}
		goto out;
	}
	if (load_job(path ? buf_str(&text) : NULL, text.len, path ? path : "defaults", words,
		     n_words, out, &src, e))
		goto out;
	if (path && !src.line[job_key_find("job", "name")])
		name_after_file(path, out);
	rc = 0;
out:
	buf_fini(&text);
	return rc;
}
