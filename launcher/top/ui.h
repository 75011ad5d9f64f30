/*
 * ui — what the person has chosen to see, and what each key changes about it.
 */
#ifndef MUSTER_LAUNCHER_TOP_UI_H
#define MUSTER_LAUNCHER_TOP_UI_H

#include "launcher/top/rows.h"

enum top_view_kind { TOP_TABLE, TOP_DETAILS, TOP_MESSAGES, TOP_HELP };

/* Keys that are no characters, above all of Unicode. */
enum top_key {
	TOP_KEY_NONE = 0x200000,
	TOP_KEY_UP,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_ENTER,
	TOP_KEY_ESCAPE,
	TOP_KEY_BACKSPACE
};

struct top_ui {
	enum top_view_kind kind;
	struct top_order order;
	int chosen; /* the rank under the cursor, or the first one of a node */
	int at;     /* its row in the table */
	int first;  /* the first row that is shown */
	int back;   /* lines that the log of the details is scrolled back */
	bool typing;
	char before[TOP_FILTER]; /* the filter before it was edited */
};

/* Puts the cursor on its rank again after the rows have changed, and scrolls so that it is among the
 * `page` rows that are shown. */
void top_ui_settle(struct top_ui *u, const struct top_rows *rows, const struct top_facts *f,
		   int page);

/* A key. page: rows that are shown. False: the person wants to quit. */
bool top_ui_key(struct top_ui *u, int key, const struct top_rows *rows, int page);

/* The rank whose details are shown; -1: of none. */
int top_ui_details(const struct top_ui *u);

#endif
