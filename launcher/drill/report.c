/* report: the results of a drill as a table for people, and as JSON. */
#include "base/human.h"
#include "launcher/drill/drill.h"
#include "launcher/drill/injections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Widths of the table's columns: 20 + 1 + 19 + 6 x 7 + 7 + 7 = 96. */
enum { FAULT = 20, SAID = 19, SECONDS = 7, REDONE = 7 };

static const char *const outcomes[] = {
	[DRILL_RIGHT] = "right", [DRILL_WRONG] = "wrong", [DRILL_SKIPPED] = "skipped"
};

static void print_seconds(double seconds, struct buf *out)
{
	if (isnan(seconds))
		buf_printf(out, "%*s", SECONDS, "-");
	else
		buf_printf(out, "%*.3f", SECONDS, seconds);
}

static void print_heading(struct buf *out)
{
	buf_printf(out, "%-*s %-*s", FAULT, "fault", SAID, "said");
#define PRINT_HEADING(field, heading, doc) buf_printf(out, "%*s", SECONDS, heading);
	DRILL_PHASES(PRINT_HEADING)
#undef PRINT_HEADING
	buf_printf(out, "%*s  %s\n", REDONE, "redone", "result");
}

/* A text that is too long for the column ends with dots after a whole word. */
static void shorten(const char *text, char out[SAID + 1])
{
	size_t n = strlen(text);
	if (n <= SAID) {
		memcpy(out, text, n + 1);
		return;
	}
	for (n = SAID - 3; n > 1 && text[n] != ' '; n--)
		;
	snprintf(out, SAID + 1, "%.*s...", (int)(n > 1 ? n : SAID - 3), text);
}

static void print_row(const struct drill_result *r, struct buf *out)
{
	char said[SAID + 1];
	buf_printf(out, "%-*s ", FAULT, r->injection->name);
	if (r->outcome == DRILL_SKIPPED) {
		buf_printf(out, "skipped: %.*s\n", 100 - FAULT - 1 - 9, r->why);
		return;
	}
	const char *name = *r->fault ? r->fault : *r->how ? r->how : *r->said ? r->said : "-";
	shorten(name, said);
	human_plain(said);
	buf_printf(out, "%-*s", SAID, said);
#define PRINT_PHASE(field, heading, doc) print_seconds(r->phases.field, out);
	DRILL_PHASES(PRINT_PHASE)
#undef PRINT_PHASE
	buf_printf(out, "%*lld  %s\n", REDONE, (long long)r->redone, outcomes[r->outcome]);
}

static void print_wrong(const struct drill_result *r, struct buf *out)
{
	char text[sizeof r->why + sizeof r->said + 64];
	snprintf(text, sizeof text, "%s: %s%s%s", r->injection->name, r->why,
		 *r->said ? "; said: " : "", r->said);
	human_plain(text);
	buf_printf(out, "wrong: %s\n", text);
}

void drill_print(const struct drill_results *r, struct buf *out)
{
	int count[3] = { 0 };
	print_heading(out);
	for (int i = 0; i < r->n; i++) {
		print_row(&r->rows[i], out);
		count[r->rows[i].outcome]++;
	}
	for (int i = 0; i < r->n; i++)
		if (r->rows[i].outcome == DRILL_WRONG)
			print_wrong(&r->rows[i], out);
	if (*r->folder)
		buf_printf(out, "the runs that remain are in %s\n", r->folder);
	buf_printf(out, "%d drilled, %d right, %d skipped\n",
		   count[DRILL_RIGHT] + count[DRILL_WRONG], count[DRILL_RIGHT],
		   count[DRILL_SKIPPED]);
}

static json_t *number(double seconds)
{
	return isnan(seconds) ? json_null() : json_real(seconds);
}

/* null for an empty text; other bytes than UTF-8 become ? */
static json_t *text_json(const char *text)
{
	char copy[1100];
	snprintf(copy, sizeof copy, "%s", text);
	json_t *o = *copy ? json_string(copy) : json_null();
	for (char *c = copy; !o && *c; c++)
		if (*c & 0x80)
			*c = '?';
	return o ? o : json_string(copy);
}

static json_t *row_json(const struct drill_result *r)
{
	json_t *o = json_object(), *phases = json_object();
	json_object_set_new(o, "drill", json_string(r->injection->name));
	json_object_set_new(o, "outcome", json_string(outcomes[r->outcome]));
	json_object_set_new(o, "why", text_json(r->why));
	json_object_set_new(o, "fault", text_json(r->fault));
	json_object_set_new(o, "how", text_json(r->how));
	json_object_set_new(o, "said", text_json(r->said));
#define SET_PHASE(field, heading, doc) \
	json_object_set_new(phases, #field "_s", number(r->phases.field));
	DRILL_PHASES(SET_PHASE)
#undef SET_PHASE
	json_object_set_new(o, "phases", phases);
	json_object_set_new(o, "redone", json_integer(r->redone));
	json_object_set_new(o, "status", r->status < 0 ? json_null() : json_integer(r->status));
	return o;
}

json_t *drill_json(const struct drill_results *r)
{
	json_t *o = json_object(), *rows = json_array();
	json_object_set_new(o, "steps", json_integer(r->steps));
	json_object_set_new(o, "right", json_boolean(drill_results_right(r)));
	json_object_set_new(o, "folder", text_json(r->folder));
	for (int i = 0; i < r->n; i++)
		json_array_append_new(rows, row_json(&r->rows[i]));
	json_object_set_new(o, "drills", rows);
	return o;
}

void drill_list(struct buf *out)
{
	for (const struct injection *in = drill_injections; in->name; in++)
		buf_printf(out, "  %-20s %s\n", in->name, in->how);
}
