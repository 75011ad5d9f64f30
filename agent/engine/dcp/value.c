#include "agent/engine/dcp/pickle.h"

#include <string.h>

static const int64_t number_max = (int64_t)1 << 48;

bool dcp_value_is_object(const struct dcp_value *v, enum dcp_meaning of)
{
	return v && v->kind == DCP_OBJECT && v->of->means == of;
}

const struct dcp_value *dcp_value_member(const struct dcp_value *v, const char *key)
{
	if (v && v->kind == DCP_OBJECT)
		v = v->state;
	if (!v || v->kind != DCP_DICT)
		return NULL;
	for (int64_t i = 0; i < v->n; i += 2)
		if (dcp_value_is_text(v->items[i], key))
			return v->items[i + 1];
	return NULL;
}

const struct dcp_value *dcp_value_item(const struct dcp_value *v, int64_t i)
{
	bool list = v && (v->kind == DCP_TUPLE || v->kind == DCP_LIST);
	return list && i >= 0 && i < v->n ? v->items[i] : NULL;
}

bool dcp_value_int(const struct dcp_value *v, int64_t *out)
{
	if (!v || v->kind != DCP_INT)
		return false;
	*out = v->number;
	return true;
}

bool dcp_value_is_text(const struct dcp_value *v, const char *text)
{
	return v && v->kind == DCP_TEXT && v->length == strlen(text) &&
	       !memcmp(v->text, text, v->length);
}

int dcp_value_numbers(const struct dcp_value *v, int64_t *out, int most)
{
	if (dcp_value_is_object(v, DCP_MEANS_SIZE))
		v = dcp_value_item(v->args, 0);
	if (!v || (v->kind != DCP_TUPLE && v->kind != DCP_LIST) || v->n > most)
		return -1;
	for (int64_t i = 0; i < v->n; i++)
		if (!dcp_value_int(v->items[i], &out[i]) || out[i] < 0 || out[i] > number_max)
			return -1;
	return (int)v->n;
}
