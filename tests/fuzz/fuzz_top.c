/* Any bytes as the state, the ranks, the plan, the metrics, the log and the names that `muster top` shows, at any size: no control
 * character gets to the screen, and nothing is drawn outside of it. The first 4 bytes choose the size and the page. */
#include "launcher/top/layout.h"

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 4, WORLD = 16 };

static void take(struct top_facts *f, const char *text, size_t len)
{
	struct look *l = &f->look;
	json_t *any = json_loadb(text, len, JSON_DECODE_ANY, NULL);
	if (!rundir_state_parse(text, len, &l->object, &l->state, NULL)) {
		l->id = rundir_state_find(l->state.state);
		l->live = true;
	}
	top_facts_take_ranks(f, 0, any);
	top_facts_take_plan(f, any);
	top_facts_take_metrics(f, text, len);
	json_decref(any);
	snprintf(f->look.note, sizeof f->look.note, "%s", text);
	snprintf(f->ranks[1].node, sizeof f->ranks[1].node, "%s", text);
	snprintf(f->ranks[1].phase, sizeof f->ranks[1].phase, "%s", text);
	f->log = strdup(text);
	f->log_rank = 1;
}

static void draw(const struct top_facts *f, const uint8_t *head)
{
	struct top_ui ui = { .kind = head[0] % 4, .chosen = 1 };
	struct top_rows rows = { .n = 0 };
	struct top_page page;
	struct top_view v = { .facts = f, .rows = &rows, .ui = &ui, .now = 1e9 };
	ui.order = (struct top_order){ .nodes = head[1] & 1,
				       .reverse = head[1] & 2,
				       .sort = (head[1] >> 2) % TOP_SORT_COUNT };
	if (top_rows_make(&rows, f, &ui.order, NULL) ||
	    top_page_init(&page, head[2], head[3], head[1] & 128, NULL))
		abort();
	top_ui_settle(&ui, &rows, f, top_layout_room(&v, page.rows));
	top_layout(&v, &page);
	for (int i = 0; i < page.rows * page.cols; i++) {
		wchar_t c = page.cells[i].ch;
		if ((c && c < ' ') || (c >= 0x7f && c < 0xa0) || (!page.unicode && c > 0x7f))
			abort();
	}
	top_page_fini(&page);
	top_rows_free(&rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	struct top_facts *f = top_facts_new();
	char *text = size >= HEAD ? strndup((const char *)data + HEAD, size - HEAD) : NULL;
	if (f && text && !top_facts_set_world(f, WORLD, NULL)) {
		take(f, text, strlen(text));
		draw(f, data);
	}
	free(text);
	top_facts_free(f);
	return 0;
}
