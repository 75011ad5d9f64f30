#include "agent/engine/hf/dcp_names.h"

#include "agent/engine/hf/megatron.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words that wrappers of a module put into names. */
static const char *const wrappers[] = { "module", "_orig_mod", "_fsdp_wrapped_module",
					"_checkpoint_wrapped_module", "_forward_module" };

/* Keys under which programs keep the model, in the order in which they are tried. */
static const char *const prefixes[] = {
	"",     "model.",       "state_dict.", "model_state_dict.", "model_state.", "app.model.",
	"app.", "state.model.", "state.",      "train_state.model."
};

/* Beginnings of names of tensors that are beside a model without a prefix. */
static const char *const states[] = {
	"optimizer.",
	"optim.",
	"optimizer_state_dict.",
	"optim_state_dict.",
	"chained_",
	"opt_param_scheduler",
	"lr_scheduler.",
	"scheduler.",
	"rng_state",
	"rerun_state_machine_state",
};

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

static bool begins(const char *text, const char *begin)
{
	return !strncmp(text, begin, strlen(begin));
}

static bool is_wrapper(const char *word, size_t n)
{
	for (int i = 0; i < LENGTH(wrappers); i++)
		if (strlen(wrappers[i]) == n && !memcmp(wrappers[i], word, n))
			return true;
	return false;
}

static void unwrap(const char *from, char out[DCP_NAME])
{
	size_t n = 0;
	for (const char *at = from; *at;) {
		size_t word = strcspn(at, ".");
		if (at[word] && is_wrapper(at, word)) {
			at += word + 1;
			continue;
		}
		word += at[word] == '.';
		memcpy(out + n, at, word);
		n += word;
		at += word;
	}
	out[n] = '\0';
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct hf_dcp_name *)a)->name, ((const struct hf_dcp_name *)b)->name);
}

static int list_all(const struct dcp_metadata *m, const char *folder, struct hf_dcp_names *d,
		    struct err *e)
{
	d->list = calloc((size_t)m->n + 1, sizeof *d->list);
	if (!d->list)
		return err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " tensors", folder, m->n);
	for (d->n = 0; d->n < m->n; d->n++) {
		d->list[d->n].tensor = &m->tensors[d->n];
		unwrap(m->tensors[d->n].name, d->list[d->n].name);
	}
	qsort(d->list, (size_t)d->n, sizeof *d->list, by_name);
	for (int64_t i = 1; i < d->n; i++)
		if (!by_name(&d->list[i - 1], &d->list[i]))
			return err_set(e, ERR_CORRUPT,
				       "%s: tensors %.100s and %.100s are the same one without "
				       "the words of their wrappers; save one of them",
				       folder, d->list[i - 1].tensor->name,
				       d->list[i].tensor->name);
	return 0;
}

int hf_dcp_names_list(const struct dcp_metadata *m, const char *folder, struct hf_dcp_names *out,
		      struct err *e)
{
	*out = (struct hf_dcp_names){ .prefix = "" };
	return list_all(m, folder, out, e);
}

void hf_dcp_names_free(struct hf_dcp_names *d)
{
	free(d->list);
	*d = (struct hf_dcp_names){ 0 };
}

static struct hf_dcp_name *find_plain(const struct hf_dcp_names *d, const char *prefix,
				      const char *name)
{
	struct hf_dcp_name key;
	if (snprintf(key.name, sizeof key.name, "%s%s", prefix, name) >= (int)sizeof key.name)
		return NULL;
	return bsearch(&key, d->list, (size_t)d->n, sizeof key, by_name);
}

/* Finds a tensor by transformers' name, with or without its first word. */
static struct hf_dcp_name *find_hf(const struct hf_dcp_names *d, const char *prefix,
				   const char *name)
{
	const char *bare = hf_names_bare(d->names, name);
	struct hf_dcp_name *found = find_plain(d, prefix, name);
	return found || !bare ? found : find_plain(d, prefix, bare);
}

static struct dcp_tensor *use(struct hf_dcp_name *found)
{
	if (!found)
		return NULL;
	found->used = true;
	return found->tensor;
}

struct dcp_tensor *hf_dcp_names_find(struct hf_dcp_names *d, const char *name)
{
	return use(find_hf(d, d->prefix, name));
}

struct dcp_tensor *hf_dcp_names_find_megatron(void *arg, const char *name)
{
	struct hf_dcp_names *d = arg;
	return use(find_plain(d, d->prefix, name));
}

int hf_dcp_names_set_model(struct hf_dcp_names *d, const struct hf_names *names, const char *folder,
			   struct err *e)
{
	d->names = names;
	const char *anchor = d->names->tensors[0].name;
	for (int i = 0; i < LENGTH(prefixes); i++) {
		d->megatron = find_plain(d, prefixes[i], HF_MEGATRON_ANCHOR);
		d->prefix = prefixes[i];
		if (d->megatron || find_hf(d, prefixes[i], anchor))
			return 0;
	}
	return err_set(
		e, ERR_CORRUPT,
		"%s: has no tensor %s, nor Megatron's " HF_MEGATRON_ANCHOR
		"; muster imports models with the names of transformers or of Megatron-core, "
		"of the family in config.json",
		folder, anchor);
}

const char *hf_dcp_names_of_model(const struct hf_dcp_names *d, const struct hf_dcp_name *x)
{
	if (!begins(x->name, d->prefix))
		return NULL;
	for (int i = 0; i < LENGTH(states); i++)
		if (begins(x->name, states[i]))
			return NULL;
	return x->name + strlen(d->prefix);
}
