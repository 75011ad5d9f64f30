#include "base/json_member.h"

#include <inttypes.h>
#include <string.h>

enum { JSON_DEPTH = 24 };

bool json_member_given(const json_t *member)
{
	return member && !json_is_null(member);
}

int json_member_int64(const json_t *object, const char *key, int64_t least, int64_t most,
		      int64_t *out, struct err *e)
{
	const json_t *member = json_object_get(object, key);
	int64_t value = json_integer_value(member);
	if (!json_is_integer(member))
		return err_set(e, ERR_CORRUPT, "\"%s\" is missing or is not an integer", key);
	if (value < least)
		return err_set(e, ERR_CORRUPT,
			       "\"%s\" is %" PRId64 "; it must be at least %" PRId64, key, value,
			       least);
	if (value > most)
		return err_set(e, ERR_CORRUPT, "\"%s\" is %" PRId64 "; it must be at most %" PRId64,
			       key, value, most);
	*out = value;
	return 0;
}

int json_member_int(const json_t *object, const char *key, int least, int most, int *out,
		    struct err *e)
{
	int64_t value;
	if (json_member_int64(object, key, least, most, &value, e))
		return -1;
	*out = (int)value;
	return 0;
}

/* Refuses deep nesting before the parser recurses into it. A quote after a backslash does not
 * count. Whether the text is JSON is left to the parser. */
static bool too_deep(const char *text, size_t len)
{
	bool quoted = false;
	int depth = 0;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '['))
			depth++;
		else if (!quoted && (c == '}' || c == ']'))
			depth--;
		if (depth > JSON_DEPTH)
			return true;
	}
	return false;
}

int json_member_object(const char *text, size_t len, json_t **out, struct err *e)
{
	if (memchr(text, '\0', len))
		return err_set(e, ERR_CORRUPT, "it contains a NUL byte");
	if (too_deep(text, len))
		return err_set(e, ERR_CORRUPT, "nested deeper than %d levels", JSON_DEPTH);
	json_error_t why;
	json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!object)
		return err_set(e, ERR_CORRUPT, "not JSON: %s", why.text);
	if (!json_is_object(object)) {
		json_decref(object);
		return err_set(e, ERR_CORRUPT, "not a JSON object");
	}
	*out = object;
	return 0;
}
