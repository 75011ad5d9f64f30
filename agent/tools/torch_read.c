#include "agent/tools/torch_read.h"

#include "agent/engine/dcp/pickle.h"

#include <string.h>

struct converter {
	int values; /* made so far */
	const char *name;
	struct err *e;
};

static json_t *convert(struct converter *c, const struct dcp_value *v, int depth);

static json_t *refuse(const struct converter *c, const char *why)
{
	err_set(c->e, ERR_CORRUPT, "%s is not a dump of PyTorch's flight recorder: %s", c->name,
		why);
	return NULL;
}

static json_t *convert_list(struct converter *c, const struct dcp_value *v, int depth)
{
	json_t *list = json_array();
	for (int64_t i = 0; list && i < v->n; i++) {
		json_t *item = convert(c, v->items[i], depth + 1);
		if (!item || json_array_append_new(list, item)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static bool is_left_out(const struct dcp_value *key)
{
	return dcp_value_is_text(key, "frames");
}

static json_t *convert_dict(struct converter *c, const struct dcp_value *v, int depth)
{
	json_t *o = json_object();
	for (int64_t i = 0; o && i + 1 < v->n; i += 2) {
		const struct dcp_value *key = v->items[i];
		if (is_left_out(key))
			continue;
		json_t *item = key->kind == DCP_TEXT ? convert(c, v->items[i + 1], depth + 1)
						     : refuse(c, "a key is not a text");
		if (!item || json_object_setn_new(o, key->text, key->length, item)) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

/* A text of invalid UTF-8 is refused. */
static json_t *convert_text(const struct converter *c, const struct dcp_value *v)
{
	json_t *text = json_stringn(v->text, v->length);
	return text ? text : refuse(c, "a text is not UTF-8");
}

static json_t *convert(struct converter *c, const struct dcp_value *v, int depth)
{
	while (dcp_value_is_object(v, DCP_MEANS_ITS_ARGUMENT) && depth < TORCH_DEPTH) {
		v = dcp_value_item(v->args, 0);
		depth++;
	}
	if (!v || depth >= TORCH_DEPTH || ++c->values > TORCH_VALUES)
		return refuse(c, "its values are too many, or too deep");
	switch (v->kind) {
	case DCP_NONE:
		return json_null();
	case DCP_BOOL:
		return json_boolean(v->truth);
	case DCP_INT:
		return json_integer(v->number);
	case DCP_FLOAT: {
		json_t *real = json_real(v->real); /* NULL: not finite */
		return real ? real : json_null();
	}
	case DCP_TEXT:
		return convert_text(c, v);
	case DCP_TUPLE:
	case DCP_LIST:
		return convert_list(c, v, depth);
	case DCP_DICT:
		return convert_dict(c, v, depth);
	default:
		return refuse(c, "it has a value that no recorder writes");
	}
}

static int read_pickle(const void *data, size_t n, const char *name, json_t **out, struct err *e)
{
	struct dcp_pickle pickle;
	struct converter c = { .name = name, .e = e };
	if (dcp_pickle_parse_plain(data, n, name, &pickle, e))
		return -1;
	if (e)
		e->code = ERR_NONE;
	json_t *o = convert(&c, pickle.root, 0);
	dcp_pickle_free(&pickle);
	*out = o;
	if (!o && (!e || e->code == ERR_NONE))
		return err_set(e, ERR_NOMEM, "%s: no memory for its values", name);
	return o ? 0 : -1;
}

static int read_json(const void *data, size_t n, const char *name, json_t **out, struct err *e)
{
	json_error_t why;
	*out = json_loadb(data, n, JSON_REJECT_DUPLICATES, &why);
	return *out ? 0 : err_set(e, ERR_CORRUPT, "%s:%d: %s", name, why.line, why.text);
}

int tool_torch_read(const void *data, size_t n, const char *name, json_t **out, struct err *e)
{
	json_t *o = NULL;
	bool pickle = n > 0 && *(const unsigned char *)data == 0x80;
	if ((pickle ? read_pickle : read_json)(data, n, name, &o, e))
		return -1;
	const char *version = json_string_value(json_object_get(o, "version"));
	if (!version || strncmp(version, "2.", 2)) {
		err_set(e, version ? ERR_UNSUPPORTED : ERR_CORRUPT,
			"%s is not a dump of PyTorch's flight recorder in version 2 of its form",
			name);
		json_decref(o);
		return -1;
	}
	*out = o;
	return 0;
}
