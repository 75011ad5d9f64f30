/* body: what is sent for a notification. */
#include "base/buf.h"
#include "launcher/notify/outlet.h"

#include <string.h>

/* Slack reads &, < and > as markup (its documentation: "Formatting text for app surfaces"). */
static void add_escaped(struct buf *out, const char *text)
{
	for (; *text; text++)
		if (*text == '&')
			buf_puts(out, "&amp;");
		else if (*text == '<')
			buf_puts(out, "&lt;");
		else if (*text == '>')
			buf_puts(out, "&gt;");
		else
			buf_add(out, text, 1);
}

static const char *text_of(const json_t *message, const char *key)
{
	const char *text = json_string_value(json_object_get(message, key));
	return text ? text : "";
}

/* "*run* failed, step 40 of 200: text" and what to do, a line each. */
static char *slack_body(const json_t *message)
{
	struct buf text = BUF_INIT;
	const json_t *step = json_object_get(message, "step");
	const char *remedy = text_of(message, "remedy");
	json_int_t steps = json_integer_value(json_object_get(message, "steps"));
	json_int_t dropped = json_integer_value(json_object_get(message, "dropped"));
	buf_puts(&text, "*");
	add_escaped(&text, text_of(message, "run"));
	buf_printf(&text, "* %s", text_of(message, "event"));
	if (step)
		buf_printf(&text, ", step %lld", (long long)json_integer_value(step));
	if (step && steps > 0) /* a program does not say how many there are */
		buf_printf(&text, " of %lld", (long long)steps);
	buf_puts(&text, ": ");
	add_escaped(&text, text_of(message, "text"));
	if (*remedy) {
		buf_puts(&text, "\n");
		add_escaped(&text, remedy);
	}
	if (dropped > 0)
		buf_printf(&text, "\n%lld earlier notifications were not delivered",
			   (long long)dropped);
	json_t *body = json_pack("{s:s}", "text", buf_str(&text));
	char *out = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	buf_fini(&text);
	return out;
}

char *notify_body(const json_t *message, bool slack)
{
	return slack ? slack_body(message) : json_dumps(message, JSON_COMPACT);
}
