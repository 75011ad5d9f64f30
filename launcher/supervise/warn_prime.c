/*
 * warn_prime: the rules of the warnings learn what was usual from the end of metrics.jsonl, so that they
 * judge the first step of a run that continues another one.
 */
#include "base/run_paths.h"
#include "launcher/rundir/scan.h"
#include "launcher/rundir/tail.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run that was killed has lines of steps after its last checkpoint, which do not count. */
enum { LINES = 8 * WARNING_WINDOW };
enum column { STEP, LOSS, NORM, COLUMNS };

struct past {
	struct rundir_scan scan;
	struct warning_sample steps[LINES]; /* ascending */
	int n;
};

/* Whether the gradients of the step overflowed. The scan sees numbers alone. */
static bool was_skipped(const char *line, size_t n)
{
	static const char word[] = "\"skipped\":true";
	return memmem(line, n, word, sizeof word - 1) != NULL;
}

/* Of a step that was repeated the last line counts. */
static void take_line(struct past *p, const char *line, size_t n)
{
	double v[COLUMNS];
	if (!rundir_scan_line(&p->scan, line, n, v) || !(v[STEP] >= 0 && v[STEP] < 1e15))
		return;
	int64_t step = (int64_t)v[STEP];
	while (p->n && p->steps[p->n - 1].step >= step)
		p->n--;
	p->steps[p->n++] = (struct warning_sample){
		.step = step,
		.loss = v[LOSS],
		.norm = was_skipped(line, n) ? NAN : v[NORM],
	};
}

static void take_lines(struct past *p, const char *text, size_t len)
{
	const char *end;
	for (int i = 0; i < LINES && len && (end = memchr(text, '\n', len)); i++) {
		size_t n = (size_t)(end - text);
		take_line(p, text, n);
		text += n + 1;
		len -= n + 1;
	}
}

/* The steps up to this one, from which the run goes on. */
static int prime(struct supervisor *s, int64_t step, struct err *e)
{
	static const char *const keys[COLUMNS] = {
		[STEP] = "step",
		[LOSS] = "loss",
		[NORM] = "grad_norm",
	};
	struct buf text = BUF_INIT;
	struct past *p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory to read them");
	rundir_scan_init(&p->scan, keys, COLUMNS);
	int rc = rundir_tail(rundir_path(s->o.run), RUN_METRICS, LINES, &text, e);
	if (!rc)
		take_lines(p, buf_str(&text), text.len);
	for (int i = 0; i < p->n && p->steps[i].step <= step; i++)
		supervise_warnings_prime(&s->warn.rules, &p->steps[i]);
	buf_fini(&text);
	free(p);
	return rc;
}

void supervise_warn_ready(struct supervisor *s, int64_t step)
{
	struct err e = ERR_INIT;
	if (s->warn.primed)
		return;
	s->warn.primed = true;
	if (step > 0 && prime(s, step, &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn",
					 "the losses of the run so far are not known: %s", e.text);
}
