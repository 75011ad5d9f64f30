/* Any bytes as events.jsonl of a run: its history is consistent, and none of its texts becomes
 * markup in a report. */
#include "launcher/report/page.h"
#include "launcher/rundir/follow.h"
#include "launcher/rundir/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(void *arg, const struct rundir_line *l)
{
	rundir_history_event(arg, l);
}

static void check_text(const char *text)
{
	struct buf out = BUF_INIT;
	report_text_cut(&out, text, 600);
	if (strpbrk(buf_str(&out), "<>\"'"))
		abort();
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rundir_history h = { .begin = NAN, .end = NAN };
	struct rundir_lines lines = { 0 };
	rundir_lines_feed(&lines, (const char *)data, size, take, &h);
	if (h.n_generations > RUNDIR_HISTORY_MOST || h.n_losses > RUNDIR_HISTORY_MOST ||
	    (!isnan(h.begin) && !(h.begin <= h.end)))
		abort();
	for (size_t i = 0; i < h.n_losses; i++) {
		check_text(h.losses[i].fault);
		check_text(h.losses[i].text);
		check_text(h.losses[i].node);
	}
	for (size_t i = 1; i < h.n_evaluations; i++)
		if (h.evaluations[i].step <= h.evaluations[i - 1].step)
			abort();
	for (size_t i = 0; i < h.n_marks; i++)
		check_text(h.marks[i].text);
	for (size_t i = 0; i < h.n_checkpoints; i++)
		check_text(h.checkpoints[i].path);
	check_text(h.reason);
	rundir_lines_fini(&lines);
	rundir_history_fini(&h);
	return 0;
}
