#include "launcher/supervise/terminal.h"

#include "base/buf.h"
#include "base/human.h"
#include "base/run_paths.h"
#include "launcher/supervise/writer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR = 20, WORD = 10 };
static const double redraw_s = 0.1;
static const char erase[] = "\r\033[K";

struct terminal {
	struct terminal_options o;
	struct writer *writer;
	struct buf line; /* text of the live line; empty: none */
	bool drawn;      /* the last text that was written or queued leaves a live line */
	double drawn_at; /* of the last step line */
	int64_t shown;   /* step of the last plain line */
	int64_t missing; /* lines of muster for which there was no room, and it is not said yet */
};

static bool utf8_locale(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *v = getenv(names[i]);
		if (v && *v)
			return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
	}
	return false;
}

void supervise_terminal_detect(int fd, struct terminal_options *o)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
	o->fd = fd;
	o->live = isatty(fd) && term && strcmp(term, "dumb");
	o->colour = o->live && !(no && *no);
	o->unicode = o->live && utf8_locale();
}

int supervise_terminal_open(const struct terminal_options *o, struct terminal **out, struct err *e)
{
	struct terminal *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(e, ERR_NOMEM, "no memory for the terminal");
	t->o = *o;
	t->shown = -1;
	if (supervise_writer_open(o->fd, &t->writer, e)) {
		free(t);
		return -1;
	}
	*out = t;
	return 0;
}

int supervise_terminal_columns(int fd)
{
	struct winsize w;
	const char *columns = getenv("COLUMNS");
	int asked = columns ? atoi(columns) : 0;
	if (!ioctl(fd, TIOCGWINSZ, &w) && w.ws_col > 0)
		return w.ws_col;
	return asked > 0 ? asked : 80;
}

static int line_width(const struct terminal *t)
{
	return t->o.width ? t->o.width : supervise_terminal_columns(t->o.fd);
}

/* The number of bytes of s that fill `columns`; a UTF-8 sequence counts as one column. */
static size_t fit_columns(const char *s, int columns)
{
	size_t i = 0;
	for (; s[i]; i++)
		if (((unsigned char)s[i] & 0xc0) != 0x80 && columns-- == 0)
			break;
	return i;
}

static void add_live_line(struct terminal *t, struct buf *b)
{
	const char *line = buf_str(&t->line);
	if (t->o.live && *line)
		buf_add(b, line, fit_columns(line, line_width(t) - 1));
}

static void erase_line(struct terminal *t, struct buf *b)
{
	if (t->drawn)
		buf_puts(b, erase);
}

static void add_event(const struct terminal *t, enum terminal_tone tone, const char *word,
		      const char *text, struct buf *b)
{
	static const char *const codes[] = { "", "\033[32m", "\033[33m", "\033[31m" };
	bool coloured = t->o.colour && tone != TONE_PLAIN;
	buf_printf(b, "  %s%-*s%s %s\n", coloured ? codes[tone] : "", WORD, word,
		   coloured ? "\033[0m" : "", text);
}

static void say_missing(struct terminal *t, struct buf *b)
{
	char text[160];
	snprintf(text, sizeof text,
		 "%lld line%s of muster, because the output was not read; " RUN_EVENTS
		 " and " RUN_METRICS " have them",
		 (long long)t->missing, human_s(t->missing));
	if (t->missing)
		add_event(t, TONE_WARN, "left out", text, b);
}

static void redraw_line(struct terminal *t)
{
	struct buf b = BUF_INIT;
	buf_puts(&b, erase);
	add_live_line(t, &b);
	if (supervise_writer_replace(t->writer, WRITER_OUTPUT, buf_str(&b), b.len))
		t->drawn = t->line.len > 0;
	buf_fini(&b);
}

void supervise_terminal_close(struct terminal *t)
{
	if (!t)
		return;
	struct buf b = BUF_INIT;
	erase_line(t, &b);
	say_missing(t, &b);
	supervise_writer_add(t->writer, WRITER_LAST, buf_str(&b), b.len);
	buf_fini(&b);
	supervise_terminal_flush(t);
	supervise_writer_close(t->writer);
	buf_fini(&t->line);
	free(t);
}

bool supervise_terminal_flush(struct terminal *t)
{
	double stall = t->o.stall > 0 ? t->o.stall : TERMINAL_STALL_S;
	return supervise_writer_flush(t->writer, stall, TERMINAL_FLUSH_S);
}

/* Prints above the live line; false: there is no room. */
static bool print_above(struct terminal *t, enum writer_room room, const char *text)
{
	struct buf b = BUF_INIT;
	erase_line(t, &b);
	say_missing(t, &b);
	buf_puts(&b, text);
	add_live_line(t, &b);
	bool queued = !buf_failed(&b) && supervise_writer_add(t->writer, room, b.data, b.len);
	if (queued) {
		t->drawn = t->o.live && t->line.len;
		t->missing = 0;
	}
	buf_fini(&b);
	return queued;
}

/* Prints what muster itself says. */
static void print_own(struct terminal *t, enum writer_room room, const char *text)
{
	if (print_above(t, room, text))
		return;
	for (; *text; text++)
		t->missing += *text == '\n';
}

void supervise_terminal_text(struct terminal *t, const char *text)
{
	print_own(t, WRITER_OWN, text);
}

bool supervise_terminal_output(struct terminal *t, const char *text)
{
	return print_above(t, WRITER_OUTPUT, text);
}

void supervise_terminal_event(struct terminal *t, enum terminal_tone tone, const char *word,
			      const char *fmt, ...)
{
	char text[1500];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	human_plain(text);
	struct buf b = BUF_INIT;
	add_event(t, tone, word, text, &b);
	print_own(t, WRITER_OWN, buf_str(&b));
	buf_fini(&b);
}

const char *supervise_terminal_duration(double seconds, char *out, size_t size)
{
	long s = lround(fmin(fmax(seconds, 0), 1e9));
	if (seconds < 9.95)
		snprintf(out, size, "%.1f s", fmax(seconds, 0));
	else if (s < 60)
		snprintf(out, size, "%ld s", s);
	else if (s < 3600)
		snprintf(out, size, "%ld:%02ld", s / 60, s % 60);
	else
		snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
	return out;
}

/* Adds a progress bar before the text if there is room. */
static void add_bar(const struct terminal *t, double share, const char *text, struct buf *b)
{
	if (strlen(text) + BAR + 2 >= (size_t)line_width(t))
		return;
	int full = (int)lround(fmin(fmax(share, 0), 1) * BAR);
	for (int i = 0; i < BAR; i++)
		buf_puts(b, i < full ? (t->o.unicode ? "█" : "#") : (t->o.unicode ? "░" : "."));
	buf_puts(b, "  ");
}

/* A program need not say more than the number of the step. */
static void add_numbers(const struct terminal_step *s, struct buf *b)
{
	char speed[HUMAN];
	if (!isnan(s->loss) || !s->partial)
		buf_printf(b, "  loss %.4f", s->loss);
	if (s->cross_entropy > 0)
		buf_printf(b, " (cross-entropy %.4f)", s->cross_entropy);
	if (s->tokens_s > 0 || !s->partial)
		buf_printf(b, "  %s tok/s", human_count(s->tokens_s, "", speed));
	if (!isnan(s->grad_norm) || !s->partial)
		buf_printf(b, "  grad %.3g", s->grad_norm);
	if (!isnan(s->lr) || !s->partial)
		buf_printf(b, "  lr %.2e", s->lr);
	if (s->loss_scale > 0)
		buf_printf(b, "  scale %.0f%s", s->loss_scale,
			   s->skipped ? " overflows: skipped" : "");
}

static void add_step(const struct terminal *t, const struct terminal_step *s, struct buf *b)
{
	char digits[24], left[32];
	int wide = snprintf(digits, sizeof digits, "%lld", (long long)t->o.steps);
	if (t->o.steps)
		buf_printf(b, "step %*lld/%s", wide, (long long)s->step, digits);
	else
		buf_printf(b, "step %lld", (long long)s->step);
	add_numbers(s, b);
	if (s->left_s >= 0)
		buf_printf(b, "  eta %s",
			   supervise_terminal_duration(s->left_s, left, sizeof left));
}

void supervise_terminal_step(struct terminal *t, const struct terminal_step *s, double now)
{
	bool last = t->o.steps && s->step >= t->o.steps;
	if (t->o.live) {
		if (now - t->drawn_at < redraw_s && !last)
			return;
		t->drawn_at = now;
		buf_clear(&t->line);
		struct buf text = BUF_INIT;
		add_step(t, s, &text);
		add_bar(t, t->o.steps ? (double)s->step / (double)t->o.steps : 0, buf_str(&text),
			&t->line);
		buf_puts(&t->line, buf_str(&text));
		buf_fini(&text);
		redraw_line(t);
		return;
	}
	if (t->shown >= 0 && s->step % (t->o.every > 0 ? t->o.every : 1) && !last)
		return;
	t->shown = s->step;
	struct buf b = BUF_INIT;
	buf_puts(&b, "  ");
	add_step(t, s, &b);
	buf_puts(&b, "\n");
	print_own(t, WRITER_OUTPUT, buf_str(&b));
	buf_fini(&b);
}

void supervise_terminal_waiting(struct terminal *t, const char *text)
{
	if (!t->o.live)
		return;
	buf_clear(&t->line);
	if (*text)
		buf_printf(&t->line, "  %s%s", text, t->o.unicode ? " …" : " ...");
	redraw_line(t);
}
