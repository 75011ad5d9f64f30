/* Any bytes as the config.json and generation_config.json of a model. The end-of-text ids are ids
 * of the vocabulary. An export's configuration has only the keys of the table. A refusal is one
 * line with the file's name. */
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/side.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void attach_file(struct attached *c, const char *name, const uint8_t *data, size_t size)
{
	struct attached_file *f = &c->files[c->n++];
	strcpy(f->name, name);
	f->size = size;
	f->data = malloc(size + 1);
	memcpy(f->data, data, size);
	f->data[size] = '\0';
}

static void ends_are_ids(const struct attached *c)
{
	int32_t ends[HF_SIDE_ENDS];
	int n = hf_side_ends(c, 1000, ends);
	if (n < 0 || n > HF_SIDE_ENDS)
		abort();
	for (int i = 0; i < n; i++)
		if (ends[i] < 0 || ends[i] >= 1000)
			abort();
}

static void keys_are_few(const struct attached *c)
{
	json_t *config = json_pack("{s:i}", "vocab_size", 1000);
	if (hf_side_add_keys(c, config, NULL) ||
	    json_integer_value(json_object_get(config, "vocab_size")) != 1000 ||
	    json_object_size(config) > 8)
		abort();
	char *text = json_dumps(config, 0);
	if (!text)
		abort();
	free(text);
	json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct attached c = { 0 };
	attach_file(&c, "config.json", data, size);
	keys_are_few(&c);
	ends_are_ids(&c);
	attach_file(&c, "generation_config.json", data, size);
	ends_are_ids(&c);
	if (hf_unsupported_check_config((const char *)data, size, "fuzz.json", &e) &&
	    (e.code != ERR_UNSUPPORTED || strncmp(e.text, "fuzz.json", 9) || strchr(e.text, '\n') ||
	     strchr(e.text, '\x1b')))
		abort();
	ckpt_attached_fini(&c);
	return 0;
}
