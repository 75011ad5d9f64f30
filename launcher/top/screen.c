#define NCURSES_WIDECHAR 1

#include "launcher/top/screen.h"

#include "launcher/top/ui.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ESCAPE_MS = 50, ESCAPE = 27, DELETE = 127, BACKSPACE = 8, RUN_MAX = 1024 };

struct top_screen {
	SCREEN *terminal;
	bool unicode;
	attr_t attrs[TOP_STYLE_COUNT];
};

/* How a style looks: with colours, and on a terminal without them. */
static const struct {
	short colour; /* -1: that of the terminal */
	attr_t with, without;
} looks[TOP_STYLE_COUNT] = {
	[TOP_PLAIN] = { -1, A_NORMAL, A_NORMAL },
	[TOP_DIM] = { -1, A_DIM, A_DIM },
	[TOP_STRONG] = { -1, A_BOLD, A_BOLD },
	[TOP_GOOD] = { COLOR_GREEN, A_BOLD, A_BOLD },
	[TOP_WARN] = { COLOR_YELLOW, A_NORMAL, A_BOLD },
	[TOP_BAD] = { COLOR_RED, A_BOLD, A_BOLD },
	[TOP_CURVE] = { COLOR_CYAN, A_NORMAL, A_NORMAL },
	[TOP_HEAD] = { -1, A_BOLD | A_UNDERLINE, A_BOLD | A_UNDERLINE },
	[TOP_CHOSEN] = { -1, A_REVERSE, A_REVERSE },
};

static void choose_looks(struct top_screen *s)
{
	const char *plain = getenv("NO_COLOR");
	bool coloured = !(plain && *plain) && has_colors() && start_color() == OK &&
			use_default_colors() == OK;
	for (int i = 0; i < TOP_STYLE_COUNT; i++) {
		s->attrs[i] = coloured ? looks[i].with : looks[i].without;
		if (coloured && looks[i].colour >= 0 &&
		    init_pair((short)(i + 1), looks[i].colour, -1) == OK)
			s->attrs[i] |= COLOR_PAIR(i + 1);
	}
}

/* A locale that this host does not have is common after ssh: its name still says that the terminal is
 * for UTF-8. */
static bool choose_locale(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	if (!setlocale(LC_CTYPE, "")) {
		const char *name = NULL;
		for (int i = 0; i < 3 && !(name && *name); i++)
			name = getenv(names[i]);
		if (name && (strcasestr(name, "utf-8") || strcasestr(name, "utf8")))
			setlocale(LC_CTYPE, "C.UTF-8");
	}
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

/* Whether the terminal can be written to at any place. */
static bool moves_cursor(void)
{
	const char *move = tigetstr("cup");
	return move && move != (const char *)-1;
}

static int refuse(struct top_screen *s, const char *why, struct err *e)
{
	const char *kind = getenv("TERM");
	if (s->terminal) {
		endwin();
		delscreen(s->terminal);
	}
	free(s);
	return err_set(e, ERR_UNSUPPORTED, "TERM=%.60s: %s; set TERM=xterm, or use muster status",
		       kind ? kind : "", why);
}

int top_screen_open(struct top_screen **out, struct err *e)
{
	struct top_screen *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory for the screen");
	s->unicode = choose_locale();
	s->terminal = newterm(NULL, stdout, stdin);
	if (!s->terminal)
		return refuse(s, "this kind of terminal is not known here", e);
	if (!moves_cursor())
		return refuse(s, "this kind of terminal cannot move its cursor", e);
	set_term(s->terminal);
	set_escdelay(ESCAPE_MS);
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	scrollok(stdscr, FALSE);
	choose_looks(s);
	*out = s;
	return 0;
}

void top_screen_close(struct top_screen *s)
{
	if (!s)
		return;
	curs_set(1);
	endwin();
	delscreen(s->terminal);
	free(s);
}

bool top_screen_is_unicode(const struct top_screen *s)
{
	return s->unicode;
}

void top_screen_size(const struct top_screen *s, int *rows, int *cols)
{
	(void)s;
	getmaxyx(stdscr, *rows, *cols);
}

void top_screen_resize(struct top_screen *s)
{
	struct winsize w;
	(void)s;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row && w.ws_col)
		resizeterm(w.ws_row, w.ws_col);
	clearok(curscr, TRUE);
}

void top_screen_repair(struct top_screen *s)
{
	(void)s;
	clearok(curscr, TRUE);
}

int top_screen_key(struct top_screen *s)
{
	static const struct {
		int theirs, ours;
	} keys[] = {
		{ KEY_UP, TOP_KEY_UP },         { KEY_DOWN, TOP_KEY_DOWN },
		{ KEY_PPAGE, TOP_KEY_PAGE_UP }, { KEY_NPAGE, TOP_KEY_PAGE_DOWN },
		{ KEY_HOME, TOP_KEY_HOME },     { KEY_END, TOP_KEY_END },
		{ KEY_ENTER, TOP_KEY_ENTER },   { '\r', TOP_KEY_ENTER },
		{ '\n', TOP_KEY_ENTER },        { KEY_BACKSPACE, TOP_KEY_BACKSPACE },
		{ DELETE, TOP_KEY_BACKSPACE },  { BACKSPACE, TOP_KEY_BACKSPACE },
		{ ESCAPE, TOP_KEY_ESCAPE },
	};
	(void)s;
	int key = getch();
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (keys[i].theirs == key)
			return keys[i].ours;
	return key >= ' ' && key < KEY_MIN ? key : TOP_KEY_NONE;
}

/* Draws the cells from `col` on that have the same style, and returns the column after them. */
static int show_run(const struct top_screen *s, const struct top_page *p, int row, int col)
{
	const struct top_cell *cells = &p->cells[row * p->cols];
	wchar_t text[RUN_MAX];
	int end = col, n = 0;
	for (; end < p->cols && cells[end].style == cells[col].style && n < RUN_MAX; end++)
		if (cells[end].ch)
			text[n++] = cells[end].ch;
	attrset(s->attrs[cells[col].style]);
	mvaddnwstr(row, col, text, n);
	return end;
}

void top_screen_show(struct top_screen *s, const struct top_page *p)
{
	erase();
	for (int row = 0; row < p->rows; row++)
		for (int col = 0; col < p->cols;)
			col = show_run(s, p, row, col);
	refresh();
}
