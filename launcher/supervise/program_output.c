/* program_output: what people see of the output of tasks. */
#include "launcher/supervise/program.h"

#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <string.h>

enum { LINES_SHOWN = 24 };

bool supervise_program_is_shown(const struct supervisor *s, int rank)
{
	enum job_show show = s->d->job.program.show;
	return show == SHOW_ALL || (show == SHOW_FIRST && rank == 0);
}

static void add_line(const struct supervisor *s, int rank, const char *line, struct buf *out)
{
	char text[2000];
	bool named = s->d->job.program.show == SHOW_ALL;
	if (named)
		snprintf(text, sizeof text, "[%d] %.1900s", rank, line);
	else
		snprintf(text, sizeof text, "%.1990s", line);
	human_plain(text);
	buf_printf(out, "%s\n", text);
}

/* Prints how many lines of the rank are left out before this one, and the line. line NULL: only that. */
static void print_line(struct supervisor *s, int rank, const char *line)
{
	struct program_rank *k = &s->program.ranks[rank];
	struct buf text = BUF_INIT;
	char gap[80];
	snprintf(gap, sizeof gap, "(%lld lines are only in the log of the rank)",
		 (long long)k->left_out);
	if (k->left_out)
		add_line(s, rank, gap, &text);
	if (line)
		add_line(s, rank, line, &text);
	if (supervise_terminal_output(s->o.term, buf_str(&text))) {
		k->left_out = 0;
	} else if (line) {
		k->gap = true;
		k->left_out++;
	}
	buf_fini(&text);
}

void supervise_program_note_output(struct supervisor *s, int rank, const struct msg_output *m)
{
	struct program_rank *k = &s->program.ranks[rank];
	size_t i;
	json_t *line;
	s->program.printed_at = supervise_now(s);
	if (!supervise_program_is_shown(s, rank))
		return;
	if (m->left_out > 0) {
		k->gap = true;
		k->left_out += m->left_out;
	}
	json_array_foreach(m->lines, i, line) if (json_is_string(line))
		print_line(s, rank, json_string_value(line));
}

void supervise_program_say_gaps(struct supervisor *s)
{
	for (int r = 0; r < s->most; r++)
		if (s->program.ranks[r].left_out)
			print_line(s, r, NULL);
}

void supervise_program_end_output(struct supervisor *s)
{
	int64_t n = 0;
	int ranks = 0;
	char text[100];
	supervise_program_say_gaps(s);
	for (int r = 0; r < s->most; r++) {
		n += s->program.ranks[r].left_out;
		ranks += s->program.ranks[r].left_out > 0;
		s->program.ranks[r].left_out = 0;
	}
	if (!n)
		return;
	snprintf(text, sizeof text, "(%lld lines are only in the log%s of the rank%s)\n",
		 (long long)n, human_s(ranks), human_s(ranks));
	supervise_terminal_text(s->o.term, text);
}

void supervise_program_print_lines(struct supervisor *s)
{
	int rank = s->cause.rank;
	json_t *lines = rank >= 0 ? s->program.ranks[rank].last_lines : NULL;
	size_t n = json_array_size(lines);
	if (!n && rank >= 0 && s->program.ranks[rank].status >= 0)
		supervise_terminal_event(s->o.term, TONE_PLAIN, "output",
					 "the task has printed nothing");
	if (!n || (supervise_program_is_shown(s, rank) && !s->program.ranks[rank].gap))
		return; /* they are on the terminal already */
	if (json_equal(lines, s->program.printed_lines)) {
		supervise_terminal_event(s->o.term, TONE_PLAIN, "output",
					 n == 1 ? "the same line as at the last loss"
						: "the same %zu lines as at the last loss",
					 n);
		return;
	}
	for (size_t i = n > LINES_SHOWN ? n - LINES_SHOWN : 0; i < n; i++) {
		const char *line = json_string_value(json_array_get(lines, i));
		if (line)
			supervise_terminal_event(s->o.term, TONE_PLAIN, "output", "%s", line);
	}
	json_decref(s->program.printed_lines);
	s->program.printed_lines = json_incref(lines);
}
