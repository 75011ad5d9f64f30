#include "agent/engine/hf/side.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const struct {
	const char *name;
	size_t most; /* bytes: several times the largest known file */
} files[] = {
	{ "config.json", MIB },
	{ "generation_config.json", MIB },
	{ "tokenizer.json", 256 * MIB },
	{ "tokenizer.model", 64 * MIB },
	{ "tekken.json", 64 * MIB },
	{ "tokenizer_config.json", 16 * MIB },
	{ "special_tokens_map.json", MIB },
	{ "added_tokens.json", 16 * MIB },
	{ "vocab.json", 64 * MIB },
	{ "merges.txt", 64 * MIB },
	{ "chat_template.jinja", MIB },
	{ "chat_template.json", MIB },
	{ "LICENSE", MIB },
	{ "LICENSE.txt", MIB },
	{ "LICENSE.md", MIB },
	{ "NOTICE", MIB },
	{ "NOTICE.txt", MIB },
	{ "USE_POLICY.md", MIB },
};

enum { FILES = sizeof files / sizeof *files };

/* Keys of config.json that do not affect what the model computes, and that other programs need. */
enum kind { ID, ID_OR_IDS, FLAG, TEXT };
static const struct {
	const char *name;
	enum kind kind;
} keys[] = {
	{ "bos_token_id", ID },      { "eos_token_id", ID_OR_IDS },
	{ "pad_token_id", ID },      { "unk_token_id", ID },
	{ "use_cache", FLAG },       { "output_router_logits", FLAG },
	{ "tokenizer_class", TEXT },
};

enum { KEYS = sizeof keys / sizeof *keys, TEXT_MAX = 64 };

/* --- import --- */

static json_t *parse_json(const struct attached *c, const char *name)
{
	const struct attached_file *f = ckpt_attached_find(c, name);
	json_t *v = f ? json_loadb(f->data, f->size, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (json_is_object(v))
		return v;
	json_decref(v);
	return NULL;
}

/* Sets the model's name from a path in the Hub's cache:
 * "…/models--openai-community--gpt2/snapshots/COMMIT". */
static void name_of_cache(const char *folder, char out[MANIFEST_FROM])
{
	char real[PATH_MAX];
	const char *mark = realpath(folder, real) ? strstr(real, "/models--") : NULL;
	if (!mark || !strstr(mark, "/snapshots/"))
		return;
	int n = (int)strcspn(mark + 9, "/");
	const char *gap = strstr(mark + 9, "--");
	if (gap && gap < mark + 9 + n)
		snprintf(out, MANIFEST_FROM, "%.*s/%.*s", (int)(gap - mark - 9), mark + 9,
			 (int)(mark + 9 + n - gap - 2), gap + 2);
	else
		snprintf(out, MANIFEST_FROM, "%.*s", n, mark + 9);
}

/* Finds the model's name. A path on the author's machine is not a name. */
static void find_name(const char *folder, struct attached *c)
{
	json_t *config = parse_json(c, "config.json");
	const char *name = json_string_value(json_object_get(config, "_name_or_path"));
	name_of_cache(folder, c->from);
	if (!c->from[0] && ckpt_manifest_is_model_name(name) && strchr(name, '/'))
		snprintf(c->from, sizeof c->from, "%s", name);
	if (!ckpt_manifest_is_model_name(c->from))
		c->from[0] = '\0';
	json_decref(config);
}

int hf_side_take(const char *folder, void (*left_out)(void *arg, const char *text), void *arg,
		 struct attached *out, struct err *e)
{
	*out = (struct attached){ 0 };
	for (int i = 0; i < FILES; i++) {
		if (left_out && ckpt_attached_leads_out(folder, files[i].name)) {
			char text[PATH_MAX + 160];
			snprintf(text, sizeof text,
				 "%s/%s is a link out of the folder and does not go along with the "
				 "model; to take it along, put the "
				 "file itself there",
				 folder, files[i].name);
			left_out(arg, text);
		} else if (ckpt_attached_add(out, folder, files[i].name, files[i].most, e) < 0) {
			ckpt_attached_fini(out);
			return -1;
		}
	}
	find_name(folder, out);
	return 0;
}

/* --- export --- */

bool hf_side_exported(const char *name)
{
	for (int i = 0; i < FILES; i++)
		if (!strcmp(files[i].name, name))
			return strcmp(name, "config.json") != 0;
	return false;
}

/* Some old files contain -1 for a missing token. */
static bool is_id(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= -1 &&
	       json_integer_value(v) <= INT32_MAX;
}

static bool is_ids(const json_t *v)
{
	if (json_array_size(v) == 0 || json_array_size(v) > HF_SIDE_ENDS)
		return false;
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!is_id(json_array_get(v, i)))
			return false;
	return true;
}

static bool has_type(const json_t *v, enum kind kind)
{
	switch (kind) {
	case FLAG:
		return json_is_boolean(v);
	case TEXT:
		return json_is_string(v) && json_string_length(v) < TEXT_MAX;
	case ID:
		return is_id(v) || json_is_null(v);
	default:
		return is_id(v) || json_is_null(v) || is_ids(v);
	}
}

int hf_side_add_keys(const struct attached *c, json_t *config, struct err *e)
{
	json_t *theirs = parse_json(c, "config.json");
	int rc = 0;
	for (int i = 0; i < KEYS && !rc; i++) {
		json_t *v = json_object_get(theirs, keys[i].name);
		if (v && has_type(v, keys[i].kind) && !json_object_get(config, keys[i].name) &&
		    json_object_set(config, keys[i].name, v))
			rc = err_set(e, ERR_NOMEM, "no memory for config.json");
	}
	json_decref(theirs);
	return rc;
}

static void add_end_token(const json_t *v, int64_t vocab, int32_t out[HF_SIDE_ENDS], int *n)
{
	if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < vocab &&
	    *n < HF_SIDE_ENDS)
		out[(*n)++] = (int32_t)json_integer_value(v);
}

int hf_side_ends(const struct attached *c, int64_t vocab, int32_t out[HF_SIDE_ENDS])
{
	static const char *const sources[] = { "generation_config.json", "config.json" };
	int n = 0;
	for (int i = 0; i < 2 && !n; i++) {
		json_t *root = parse_json(c, sources[i]),
		       *v = json_object_get(root, "eos_token_id"), *id;
		size_t k;
		add_end_token(v, vocab, out, &n);
		json_array_foreach(v, k, id) add_end_token(id, vocab, out, &n);
		json_decref(root);
	}
	return n;
}
