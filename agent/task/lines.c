#include "agent/task/lines.h"

#include "base/human.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double unfinished_s = 0.2, state_s = 0.5;
enum { ESCAPE = 0x1b, BELL = 0x07, DELETE = 0x7f };

struct task_lines {
	void (*pass)(void *arg, const char *text, size_t len);
	void *arg;
	size_t len, shown;  /* of the line; the begin that was passed on */
	uint64_t over;      /* bytes that the line has beyond TASK_LINE */
	bool any_shown;     /* of this line, an empty begin too */
	bool returned;      /* the next byte begins the line again */
	bool progress;      /* the line was begun again */
	bool gap;           /* until the next newline */
	double last, state; /* when the last bytes came, and when the last state was passed on */
	char text[TASK_LINE + 1];
	char plain[TASK_LINE_MARKED + 1];
};

struct task_lines *task_lines_open(void (*pass)(void *arg, const char *text, size_t len), void *arg)
{
	struct task_lines *l = malloc(sizeof *l);
	if (!l)
		return NULL;
	memset(l, 0, offsetof(struct task_lines, text));
	l->pass = pass;
	l->arg = arg;
	l->state = -INFINITY;
	return l;
}

void task_lines_close(struct task_lines *l)
{
	free(l);
}

/* --- Text that is safe on a terminal --- */

/* The length of the sequence behind ESC "[": parameters, and a letter. */
static size_t control_sequence(const char *s)
{
	size_t n = 0;
	while (s[n] >= 0x20 && s[n] <= 0x3f)
		n++;
	return s[n] >= 0x40 && s[n] <= 0x7e ? n + 1 : n;
}

/* That behind ESC "]", such as a title: it ends at BEL, or at ESC "\". */
static size_t system_command(const char *s)
{
	for (size_t n = 0; s[n]; n++) {
		if (s[n] == BELL)
			return n + 1;
		if (s[n] == ESCAPE)
			return s[n + 1] == '\\' ? n + 2 : n;
	}
	return 0;
}

/* The length of the escape sequence at `s`, at least 1. */
static size_t escape_sequence(const char *s)
{
	if (s[1] == '[')
		return 2 + control_sequence(s + 2);
	if (s[1] == ']')
		return 2 + system_command(s + 2);
	size_t n = 1;
	while (s[n] >= 0x20 && s[n] <= 0x2f) /* such as "(" of ESC "(B" */
		n++;
	return s[n] >= 0x30 && s[n] <= 0x7e ? n + 1 : n;
}

/* Writes the character at `s`, and returns how long it is there. */
static size_t copy_character(const char *s, char **to)
{
	size_t n = human_character(s);
	if (n == 1 || !n) {
		bool control = ((unsigned char)*s < ' ' && *s != '\t') || *s == DELETE;
		*(*to)++ = (char)(control ? ' ' : n ? *s : '?');
		return 1;
	}
	if (n == 2 && (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] < 0xa0) {
		*(*to)++ = ' '; /* U+0080 to U+009F */
		return n;
	}
	memcpy(*to, s, n);
	*to += n;
	return n;
}

static size_t make_plain(const char *text, size_t len, char *out)
{
	const char *end = text + len;
	char *to = out;
	while (text < end) {
		/* Most text needs nothing. */
		if ((unsigned char)*text >= ' ' && (unsigned char)*text < DELETE)
			*to++ = *text++;
		else if (*text == ESCAPE)
			text += escape_sequence(text);
		else
			text += copy_character(text, &to);
	}
	return (size_t)(to - out);
}

/* --- Lines --- */

/* Passes on what is new of the line. */
static void show(struct task_lines *l)
{
	char more[HUMAN];
	l->text[l->len] = '\0';
	size_t n = make_plain(l->text + l->shown, l->len - l->shown, l->plain);
	if (l->over)
		n += (size_t)snprintf(l->plain + n, TASK_LINE_MARKED - TASK_LINE, " … (%s more)",
				      human_bytes((double)l->over, more));
	l->plain[n] = '\0';
	l->pass(l->arg, l->plain, n);
	l->shown = l->len;
	l->over = 0;
	l->any_shown = true;
}

static bool has_news(const struct task_lines *l)
{
	return l->len > l->shown || l->over;
}

static void begin(struct task_lines *l)
{
	l->len = l->shown = 0;
	l->over = 0;
	l->returned = l->any_shown = false;
}

static void finish(struct task_lines *l)
{
	if (!l->gap && (has_news(l) || !l->any_shown))
		show(l);
	begin(l);
	l->gap = l->progress = false;
}

/* The state of a progress bar is replaced by the next one. */
static void replace(struct task_lines *l, double now)
{
	if (has_news(l) && now >= l->state + state_s) {
		show(l);
		l->state = now;
	}
	begin(l);
	l->any_shown = l->progress = true;
}

static void append(struct task_lines *l, const char *data, size_t n, double now)
{
	if (l->gap || !n)
		return;
	if (l->returned)
		replace(l, now);
	size_t room = TASK_LINE - l->len, fits = n < room ? n : room;
	memcpy(l->text + l->len, data, fits);
	l->len += fits;
	l->over += n - fits;
	l->last = now;
}

static void carriage_return(struct task_lines *l)
{
	l->gap = false;
	l->returned = true;
}

void task_lines_feed(struct task_lines *l, const char *data, size_t n, double now)
{
	const char *end = data + n;
	while (data < end) {
		const char *at = data;
		while (at < end && *at != '\n' && *at != '\r')
			at++;
		append(l, data, (size_t)(at - data), now);
		if (at < end && *at == '\n')
			finish(l);
		else if (at < end)
			carriage_return(l);
		data = at + 1;
	}
}

double task_lines_due(const struct task_lines *l)
{
	double due = l->last + unfinished_s;
	if (!has_news(l))
		return INFINITY;
	return l->progress || l->returned ? fmax(due, l->state + state_s) : due;
}

void task_lines_flush(struct task_lines *l, double now)
{
	if (now < task_lines_due(l))
		return;
	show(l);
	if (l->progress || l->returned)
		l->state = now;
}

void task_lines_end(struct task_lines *l)
{
	if (has_news(l))
		show(l);
	begin(l);
	l->progress = false;
}

size_t task_lines_cut(const char *text, size_t len, size_t most)
{
	if (len > most)
		for (len = most; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
			len--;
	return len;
}

void task_lines_gap(struct task_lines *l)
{
	task_lines_end(l);
	l->gap = true;
}
