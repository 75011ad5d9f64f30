#include "launcher/cli/event_text.h"

#include "base/human.h"

#include <stdbool.h>
#include <string.h>

/* Fields that the line has in other places, or that only programs need. */
static const char *const left_out[] = { "event",     "time", "mono",   "generation",
					"rank",      "node", "step",   "start",
					"pid_space", "boot", "remedy", NULL };
/* Texts for people; an event has one of them. */
static const char *const texts[] = { "text", "why", "reason", "evidence", NULL };

static bool is_in(const char *const *list, const char *name)
{
	while (*list && strcmp(*list, name))
		list++;
	return *list != NULL;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n > m && !strcmp(text + n - m, end);
}

/* "rank 3 on n2, step 40" */
static void add_place(const json_t *o, struct buf *out)
{
	const json_t *rank = json_object_get(o, "rank"), *step = json_object_get(o, "step");
	const char *node = json_string_value(json_object_get(o, "node"));
	size_t begin = out->len;
	if (json_is_integer(rank))
		buf_printf(out, "rank %lld", (long long)json_integer_value(rank));
	if (node)
		buf_printf(out, "%s%s", out->len > begin ? " on " : "", node);
	if (json_is_integer(step) && json_integer_value(step) >= 0)
		buf_printf(out, "%sstep %lld", out->len > begin ? ", " : "",
			   (long long)json_integer_value(step));
}

static void add_number(const char *key, const json_t *value, struct buf *out)
{
	char text[HUMAN];
	double v = json_number_value(value);
	if (ends_with(key, "_s") || !strcmp(key, "seconds"))
		buf_puts(out, human_seconds(v, text));
	else if (!strcmp(key, "bytes") || !strcmp(key, "sent") || ends_with(key, "_bytes"))
		buf_puts(out, human_bytes(v, text));
	else if (json_is_integer(value))
		buf_printf(out, "%lld", (long long)json_integer_value(value));
	else
		buf_printf(out, "%.6g", v);
}

/* "seconds 1.2 s": the name without its unit, and the value. */
static void add_field(const char *key, const json_t *value, struct buf *out)
{
	int n = (int)strlen(key) - (ends_with(key, "_s") ? 2 : 0);
	for (int i = 0; i < n; i++)
		buf_printf(out, "%c", key[i] == '_' ? ' ' : key[i]);
	if (json_is_true(value))
		return;
	buf_puts(out, " ");
	if (json_is_string(value))
		buf_puts(out, json_string_value(value));
	else if (json_is_false(value))
		buf_puts(out, "no");
	else
		add_number(key, value, out);
}

void command_event_text(const json_t *event, struct buf *out)
{
	const char *key, *text = NULL;
	json_t *value;
	add_place(event, out);
	for (int i = 0; texts[i] && !text; i++)
		text = json_string_value(json_object_get(event, texts[i]));
	if (text && *text)
		buf_printf(out, "%s%s", out->len ? ": " : "", text);
	bool opened = false, first = true;
	json_object_foreach((json_t *)event, key, value)
	{
		if (is_in(left_out, key) || is_in(texts, key) || json_is_null(value) ||
		    json_is_object(value) || json_is_array(value))
			continue;
		if (first && out->len) {
			opened = text && *text;
			buf_puts(out, opened ? " (" : ", ");
		} else if (!first) {
			buf_puts(out, ", ");
		}
		first = false;
		add_field(key, value, out);
	}
	if (opened)
		buf_puts(out, ")");
}
