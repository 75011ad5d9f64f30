#include "base/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INT64_LIMIT (INT64_MAX / 2)

/* clang-format off */
static const struct {
	const char *noun;
	int64_t least, most; /* of integers */
} types[] = {
	[FIELDS_INT]    = { "an integer of 32 bits", INT32_MIN, INT32_MAX },
	[FIELDS_INT64]  = { "an integer", -INT64_LIMIT, INT64_LIMIT },
	[FIELDS_COUNT]  = { "an integer of at least 0", 0, INT64_LIMIT },
	[FIELDS_NUMBER] = { "a number", 0, 0 },
	[FIELDS_FLAG]   = { "true or false", 0, 0 },
	[FIELDS_TEXT]   = { "a string", 0, 0 },
	[FIELDS_LINE]   = { "a string", 0, 0 },
	[FIELDS_JSON]   = { "an object or an array", 0, 0 },
};
/* clang-format on */

static bool has_field(const struct fields_row *row, const void *record)
{
	return row->need == FIELDS_REQUIRED || *(const bool *)((const char *)record + row->has_at);
}

static json_t *line_json(const char *text)
{
	json_t *valid = json_string(text);
	char *copy = valid || !text ? NULL : strdup(text);
	if (!copy)
		return valid;
	for (char *c = copy; *c; c++)
		if (*c & 0x80)
			*c = '?';
	valid = json_string(copy);
	free(copy);
	return valid;
}

/* A new reference. */
static json_t *field_json(const struct fields_row *row, const void *record)
{
	const void *at = (const char *)record + row->at;
	switch (row->type) {
	case FIELDS_INT:
		return json_integer(*(const int *)at);
	case FIELDS_INT64:
	case FIELDS_COUNT:
		return json_integer(*(const int64_t *)at);
	case FIELDS_NUMBER:
		return isfinite(*(const double *)at) ? json_real(*(const double *)at) : json_null();
	case FIELDS_FLAG:
		return json_boolean(*(const bool *)at);
	case FIELDS_TEXT:
		return json_string(*(const char *const *)at);
	case FIELDS_LINE:
		return line_json(*(const char *const *)at);
	case FIELDS_JSON:
		return json_incref(*(json_t *const *)at);
	}
	return NULL;
}

int fields_write(const struct fields_row *rows, const void *record, json_t *object, struct err *e)
{
	for (const struct fields_row *row = rows; row->name; row++) {
		bool has = has_field(row, record);
		if (!has && row->need == FIELDS_OPTIONAL)
			continue;
		json_t *value = has ? field_json(row, record) : json_null();
		if (json_object_set_new(object, row->name, value))
			return err_set(e, ERR_NOMEM,
				       "no memory for field \"%s\", or its text is not UTF-8",
				       row->name);
	}
	return 0;
}

json_t *fields_json(const struct fields_row *rows, const void *record)
{
	json_t *object = json_object();
	if (object && !fields_write(rows, record, object, NULL))
		return object;
	json_decref(object);
	return NULL;
}

static bool read_integer(const struct fields_row *row, const json_t *value, void *to)
{
	json_int_t i = json_integer_value(value);
	if (!json_is_integer(value) || i < types[row->type].least || i > types[row->type].most)
		return false;
	if (row->type == FIELDS_INT)
		*(int *)to = (int)i;
	else
		*(int64_t *)to = i;
	return true;
}

/* False: the value is not of the field's type. */
static bool read_value(const struct fields_row *row, json_t *value, void *to)
{
	switch (row->type) {
	case FIELDS_INT:
	case FIELDS_INT64:
	case FIELDS_COUNT:
		return read_integer(row, value, to);
	case FIELDS_NUMBER:
		*(double *)to = json_is_number(value) ? json_number_value(value) : NAN;
		return json_is_number(value) || json_is_null(value);
	case FIELDS_FLAG:
		*(bool *)to = json_is_true(value);
		return json_is_boolean(value);
	case FIELDS_TEXT:
	case FIELDS_LINE:
		*(const char **)to = json_string_value(value);
		return json_is_string(value);
	case FIELDS_JSON:
		*(json_t **)to = json_is_object(value) || json_is_array(value) ? value : NULL;
		return *(json_t **)to;
	}
	return false;
}

/* False: the field is missing or invalid. */
static bool read_field(const struct fields_row *row, const json_t *object, void *record)
{
	json_t *value = json_object_get(object, row->name);
	bool may_lack = row->need == FIELDS_OPTIONAL && !value;
	bool may_be_null = row->need == FIELDS_NULLABLE && json_is_null(value);
	if (may_lack || may_be_null)
		return true;
	if (!value || !read_value(row, value, (char *)record + row->at))
		return false;
	if (row->need != FIELDS_REQUIRED)
		*(bool *)((char *)record + row->has_at) = true;
	return true;
}

int fields_read(const struct fields_row *rows, const json_t *object, const char *what, void *record,
		struct err *e)
{
	const struct fields_row *bad = NULL, *row = rows;
	while (row->name)
		row++;
	memset(record, 0, row->at);
	for (row = rows; row->name; row++)
		if (!read_field(row, object, record) && !bad)
			bad = row;
	if (!bad)
		return 0;
	return err_set(e, ERR_PROTO, "%s: field \"%s\" is %s; it must be %s (%s)", what, bad->name,
		       json_object_get(object, bad->name) ? "invalid" : "missing",
		       types[bad->type].noun, bad->doc);
}
