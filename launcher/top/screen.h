/*
 * screen — the terminal, through ncurses. Only this file of muster knows it.
 *
 * The screen is in use from top_screen_open() to top_screen_close(), which gives the terminal back as
 * it was. ncurses handles SIGTSTP (Ctrl-Z) by itself.
 */
#ifndef MUSTER_LAUNCHER_TOP_SCREEN_H
#define MUSTER_LAUNCHER_TOP_SCREEN_H

#include "launcher/top/page.h"

struct top_screen;

/* Needs a terminal at stdin and stdout. ERR_UNSUPPORTED: the terminal's kind, $TERM, is not known or can
 * not move its cursor. */
int top_screen_open(struct top_screen **out, struct err *e);
/* Takes NULL. */
void top_screen_close(struct top_screen *s);

/* Whether the terminal and the locale are for UTF-8. */
bool top_screen_is_unicode(const struct top_screen *s);
void top_screen_size(const struct top_screen *s, int *rows, int *cols);
/* Takes the terminal's present size, after SIGWINCH. */
void top_screen_resize(struct top_screen *s);
/* Draws everything again: something else may have written to the terminal. */
void top_screen_repair(struct top_screen *s);

/* A character, or one of enum top_key (launcher/top/ui.h); TOP_KEY_NONE: none was pressed. */
int top_screen_key(struct top_screen *s);
/* Shows the page. */
void top_screen_show(struct top_screen *s, const struct top_page *p);

#endif
