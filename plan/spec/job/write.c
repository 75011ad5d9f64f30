#include "plan/spec/job/job.h"

#include "plan/spec/job/keys.h"
#include "plan/spec/job/rules.h"
#include "plan/spec/job/sbatch.h"

#include <string.h>

enum { HELP_WIDTH = 78, HELP_INDENT = 12 };

static bool new_section(int i)
{
	return i == 0 || strcmp(job_keys[i].section, job_keys[i - 1].section);
}

void job_write(const struct job *job, struct buf *out)
{
	const char *section = "";
	for (int i = 0; i < job_n_keys; i++) {
		if (job_rule_foreign(job, &job_keys[i]) &&
		    !job_rule_changed(job, job_keys[i].offset))
			continue;
		if (strcmp(section, job_keys[i].section))
			buf_printf(out, "%s[%s]\n", *section ? "\n" : "", job_keys[i].section);
		section = job_keys[i].section;
		buf_printf(out, "%s = ", job_keys[i].name);
		job_value_write(&job_keys[i], job, out);
		buf_puts(out, "\n");
	}
}

/* Columns of UTF-8 text. */
static int columns(const char *s, size_t n)
{
	int c = 0;
	for (size_t i = 0; i < n; i++)
		c += ((unsigned char)s[i] & 0xc0) != 0x80;
	return c;
}

static void put_wrapped(const char *text, struct buf *out)
{
	int at = 0;
	while (*text) {
		size_t n = strcspn(text, " ");
		int wide = columns(text, n);
		if (!at || at + 1 + wide > HELP_WIDTH) {
			buf_printf(out, "%s%*s", at ? "\n" : "", HELP_INDENT, "");
			at = HELP_INDENT;
		} else {
			buf_puts(out, " ");
			at++;
		}
		buf_add(out, text, n);
		at += wide;
		text += n + strspn(text + n, " ");
	}
	buf_puts(out, "\n");
}

void job_help(struct buf *out)
{
	for (int i = 0; i < job_n_keys; i++) {
		const struct job_key *k = &job_keys[i];
		if (new_section(i))
			buf_printf(out, "%s    [%s]\n", i ? "\n" : "", k->section);
		buf_printf(out, "        %s = %s\n", k->name, k->def);
		put_wrapped(k->doc, out);
		struct buf domain = BUF_INIT;
		job_value_domain(k, &domain);
		const char *option = job_sbatch_option(k->offset);
		buf_printf(out, "%*s(%s%s%s)\n", HELP_INDENT, "", buf_str(&domain),
			   option ? "; sbatch --" : "", option ? option : "");
		buf_fini(&domain);
	}
}
