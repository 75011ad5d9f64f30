/* Suggests the section, key or word that is nearest to what was typed. */
#include "plan/spec/job/keys.h"

#include "base/numbers.h"
#include "plan/spec/job/sbatch.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { DISTANCE_MAX = 3, WORD_MAX = 40 };

/* Counts insertions, deletions, substitutions and swaps of neighbours. It ignores the case of
 * letters. */
static int distance(const char *a, const char *b)
{
	int n = (int)strlen(a), m = (int)strlen(b);
	int d[WORD_MAX + 1][WORD_MAX + 1];
	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX;
	for (int i = 0; i <= n; i++)
		d[i][0] = i;
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= m; j++) {
			int ca = tolower((unsigned char)a[i - 1]),
			    cb = tolower((unsigned char)b[j - 1]);
			d[i][j] = min_int(min_int(d[i - 1][j], d[i][j - 1]) + 1,
					  d[i - 1][j - 1] + (ca != cb));
			if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
			    tolower((unsigned char)a[i - 2]) == cb)
				d[i][j] = min_int(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[n][m];
}

/* The largest distance of a hint from what was typed: half of its length, at least 1 and at most
 * DISTANCE_MAX. */
static int reach(const char *text)
{
	int half = (int)strlen(text) / 2;
	return half < 1 ? 1 : min_int(DISTANCE_MAX, half);
}

const char *job_nearest(const char *text, const char *const *words)
{
	const char *best = NULL;
	int best_d = reach(text) + 1;
	for (; *words; words++) {
		int d = distance(text, *words);
		if (d < best_d) {
			best_d = d;
			best = *words;
		}
	}
	return best;
}

static bool starts_section(int i)
{
	return i == 0 || strcmp(job_keys[i].section, job_keys[i - 1].section);
}

void job_hint_section(const char *section, struct buf *out)
{
	const char *sections[JOB_KEYS_MAX + 1];
	int n = 0;
	for (int i = 0; i < job_n_keys; i++)
		if (starts_section(i))
			sections[n++] = job_keys[i].section;
	sections[n] = NULL;
	const char *near = job_nearest(section, sections);
	if (near) {
		buf_printf(out, "unknown section; did you mean [%s]?", near);
		return;
	}
	buf_puts(out, "unknown section; the sections are");
	for (int i = 0; i < n; i++)
		buf_printf(out, "%s %s", i ? "," : "", sections[i]);
}

void job_hint_key(const char *section, const char *name, struct buf *out)
{
	const char *names[JOB_KEYS_MAX + 1];
	int n = 0, elsewhere = -1;
	for (int i = 0; i < job_n_keys; i++) {
		if (!strcmp(job_keys[i].section, section))
			names[n++] = job_keys[i].name;
		else if (elsewhere < 0 && !strcmp(job_keys[i].name, name))
			elsewhere = i;
	}
	names[n] = NULL;
	if (!strcmp(section, "slurm") && job_sbatch_hint(name, out))
		return;
	const char *near = job_nearest(name, names);
	if (near && !(elsewhere >= 0 && strcasecmp(near, name))) {
		buf_printf(out, "unknown key; did you mean %s?", near);
	} else if (elsewhere >= 0) {
		buf_printf(out, "unknown key; it belongs to [%s]", job_keys[elsewhere].section);
	} else {
		buf_printf(out, "unknown key; the keys of [%s] are", section);
		for (int i = 0; i < n; i++)
			buf_printf(out, "%s %s", i ? "," : "", names[i]);
	}
}
