/*
 * layout — puts what is known of a run on a page of any size. It is pure: no terminal, no clock, no
 * file.
 *
 *     header   (launcher/top/header.c) the lines about the run; those that matter most stay when the
 *              page is small
 *     table    (launcher/top/table.c) a row per rank or node
 *     details  (launcher/top/pages.c) one rank with the end of its log; messages; help
 *     footer   what is shown, and the keys
 */
#ifndef MUSTER_LAUNCHER_TOP_LAYOUT_H
#define MUSTER_LAUNCHER_TOP_LAYOUT_H

#include "launcher/top/page.h"
#include "launcher/top/ui.h"

struct top_view {
	const struct top_facts *facts;
	const struct top_rows *rows;
	const struct top_ui *ui;
	double now; /* in seconds since 1970 */
};

/* How many rows of the table, or lines of a page, a screen of this many rows shows. */
int top_layout_room(const struct top_view *v, int rows);
void top_layout(const struct top_view *v, struct top_page *p);

/* For layout.c. `rows` are those of the screen. */
int top_header_height(const struct top_view *v, int rows);
void top_header_draw(const struct top_view *v, struct top_page *p);
/* `most` rows of the table with its head, from `row` on. */
void top_table_draw(const struct top_view *v, struct top_page *p, int row, int most);
void top_pages_draw_details(const struct top_view *v, struct top_page *p, int row, int most);
void top_pages_draw_messages(const struct top_view *v, struct top_page *p, int row, int most);
void top_pages_draw_help(const struct top_view *v, struct top_page *p, int row, int most);

#endif
