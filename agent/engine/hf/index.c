#include "agent/engine/hf/index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES_MAX = 255 };

static bool safe_name(const char *name)
{
	size_t n = strlen(name);
	if (n == 0 || n > NAME_BYTES_MAX || name[0] == '.')
		return false;
	for (const char *c = name; *c; c++)
		if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return true;
}

/* Lists each file of the map once. */
static int list_files(struct hf_index *x, const char *name, struct err *e)
{
	json_t *seen = json_object();
	const char *tensor;
	json_t *file;
	int rc = 0;
	x->files = calloc(json_object_size(x->map) + 1, sizeof *x->files);
	if (!x->files || !seen)
		rc = err_set(e, ERR_NOMEM, "%s: no memory for its %zu tensors", name,
			     json_object_size(x->map));
	json_object_foreach(x->map, tensor, file)
	{
		if (rc)
			break;
		if (!json_is_string(file) || !safe_name(json_string_value(file)))
			rc = err_set(e, ERR_CORRUPT,
				     "%s: weight_map: tensor %.100s is not in a file of this "
				     "folder by its plain name",
				     name, tensor);
		else if (json_object_get(seen, json_string_value(file)))
			continue;
		else if (x->n_files == HF_INDEX_FILES_MAX)
			rc = err_set(e, ERR_CORRUPT, "%s: weight_map: more than %d files", name,
				     HF_INDEX_FILES_MAX);
		else if (json_object_set_new(seen, json_string_value(file), json_true()))
			rc = err_set(e, ERR_NOMEM, "%s: no memory for its files", name);
		else
			x->files[x->n_files++] = json_string_value(file);
	}
	json_decref(seen);
	return rc;
}

int hf_index_parse(const char *text, size_t n, const char *name, struct hf_index *out,
		   struct err *e)
{
	json_error_t je;
	struct hf_index x = { .root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je) };
	int rc = 0;
	if (!x.root)
		return err_set(e, ERR_CORRUPT, "%s: is not JSON: %s at line %d", name, je.text,
			       je.line);
	x.map = json_object_get(x.root, "weight_map");
	if (!json_is_object(x.map) || json_object_size(x.map) == 0)
		rc = err_set(e, ERR_CORRUPT, "%s: has no weight_map of tensors", name);
	if (rc || list_files(&x, name, e)) {
		hf_index_fini(&x);
		return -1;
	}
	*out = x;
	return 0;
}

void hf_index_fini(struct hf_index *x)
{
	free(x->files);
	json_decref(x->root);
	*x = (struct hf_index){ 0 };
}
