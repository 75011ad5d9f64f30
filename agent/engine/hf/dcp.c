#include "agent/engine/hf/dcp.h"

#include "agent/engine/dcp/folder.h"
#include "agent/engine/hf/megatron.h"
#include "agent/engine/hf/numbers.h"
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/weights.h"
#include "base/buf.h"
#include "base/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the folder under its name without wrappers. */
struct named {
	char name[DCP_NAME];
	struct dcp_tensor *tensor;
	bool used;
};

struct hf_dcp {
	char *path;
	struct dcp_folder *folder;
	struct named *list; /* sorted by name */
	int64_t n;
	const char *prefix; /* of the model's tensors */
	bool megatron;
	const struct hf_names *names;
	const struct model_shape *shape;
	int64_t left_out, cut, rounded; /* tensors, rows, tensors */
};

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

/* --- names --- */

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
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int list_names(struct hf_dcp *d, struct err *e)
{
	const struct dcp_metadata *m = dcp_folder_metadata(d->folder);
	d->list = calloc((size_t)m->n + 1, sizeof *d->list);
	if (!d->list)
		return err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " tensors", d->path,
			       m->n);
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
				       d->path, d->list[i - 1].tensor->name,
				       d->list[i].tensor->name);
	return 0;
}

static struct named *find_plain(const struct hf_dcp *d, const char *prefix, const char *name)
{
	struct named key;
	if (snprintf(key.name, sizeof key.name, "%s%s", prefix, name) >= (int)sizeof key.name)
		return NULL;
	return bsearch(&key, d->list, (size_t)d->n, sizeof key, by_name);
}

/* Finds a tensor by transformers' name, with or without its first word. */
static struct named *find_hf(const struct hf_dcp *d, const char *prefix, const char *name)
{
	const char *bare = hf_names_bare(d->names, name);
	struct named *found = find_plain(d, prefix, name);
	return found || !bare ? found : find_plain(d, prefix, bare);
}

static struct dcp_tensor *find_megatron(void *arg, const char *name)
{
	const struct hf_dcp *d = arg;
	struct named *found = find_plain(d, d->prefix, name);
	if (!found)
		return NULL;
	found->used = true;
	return found->tensor;
}

static int find_prefix(struct hf_dcp *d, struct err *e)
{
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
		d->path, anchor);
}

/* --- opening --- */

/* metadata.json of dist_checkpointing. A folder of torch.distributed.checkpoint has none. */
static int check_backend(const struct hf_dcp *d, struct err *e)
{
	enum { TEXT_MAX = 1 << 16 };
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = 0;
	if (snprintf(path, sizeof path, "%s/metadata.json", d->path) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", d->path);
	if (file_slurp(path, TEXT_MAX, &text, &why))
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	json_t *root = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
	const char *backend = json_string_value(json_object_get(root, "sharded_backend"));
	if (!backend || strcmp(backend, "torch_dist"))
		rc = err_set(e, ERR_UNSUPPORTED,
			     "%s: sharded_backend is %.40s; muster reads torch_dist: save with "
			     "--ckpt-format torch_dist",
			     path, backend ? backend : "missing");
	json_decref(root);
	buf_fini(&text);
	return rc;
}

int hf_dcp_open(const char *folder, struct hf_dcp **out, struct err *e)
{
	struct hf_dcp *d = calloc(1, sizeof *d);
	if (!d || !(d->path = strdup(folder))) {
		free(d);
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", folder);
	}
	if (check_backend(d, e) || dcp_folder_open(folder, &d->folder, e) || list_names(d, e)) {
		hf_dcp_close(d);
		return -1;
	}
	*out = d;
	return 0;
}

void hf_dcp_close(struct hf_dcp *d)
{
	if (!d)
		return;
	dcp_folder_close(d->folder);
	free(d->list);
	free(d->path);
	free(d);
}

bool hf_dcp_is_megatron(const struct hf_dcp *d)
{
	return d->megatron;
}

/* --- reading --- */

static void widen(const char *dtype, const void *from, size_t n, float *to)
{
	const char *bytes = from;
	if (strcmp(dtype, "float64")) {
		hf_numbers_widen(hf_numbers_torch(dtype), from, n, to);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		double x;
		memcpy(&x, bytes + i * sizeof x, sizeof x);
		to[i] = (float)x;
	}
}

static int read_whole(struct hf_dcp *d, struct dcp_tensor *t, float *out, struct err *e)
{
	static const int64_t zero[DCP_DIMS];
	return dcp_folder_read(d->folder, t, zero, t->shape, widen, out, e);
}

static int read_part(struct hf_dcp *d, const struct hf_tensor *t, const struct hf_part *part,
		     float *out, struct err *e)
{
	struct hf_megatron_place p;
	int64_t lo[DCP_DIMS] = { 0 }, hi[DCP_DIMS] = { 0 };
	if (hf_megatron_locate(d->shape, t, part, find_megatron, d, d->path, &p, e))
		return -1;
	for (int i = 0; i < p.lead; i++) {
		lo[i] = p.at[i];
		hi[i] = p.at[i] + 1;
	}
	hi[p.lead + 1] = t->shape[1];
	for (int64_t g = 0; g < p.groups; g++) {
		lo[p.lead] = p.first + g * p.step;
		hi[p.lead] = lo[p.lead] + p.rows;
		if (dcp_folder_read(d->folder, p.tensor, lo, hi, widen,
				    out + g * p.rows * t->shape[1], e))
			return -1;
	}
	return 0;
}

int hf_dcp_read(struct hf_dcp *d, const struct hf_tensor *t, float *out, float *room, struct err *e)
{
	if (!d->megatron) {
		struct dcp_tensor *their = find_hf(d, d->prefix, t->name)->tensor;
		if (read_whole(d, their, t->transposed ? room : out, e))
			return -1;
		if (t->transposed)
			hf_weights_transpose(room, t->shape[1], t->shape[0], out);
		return 0;
	}
	for (int i = 0; i < t->n; i++) {
		if (read_part(d, t, &t->parts[i], out, e))
			return -1;
		out += t->parts[i].rows * t->shape[1];
	}
	return 0;
}

/* --- the fit --- */

static int fail_tensor(const struct hf_dcp *d, const struct dcp_tensor *t, struct err *e,
		       const char *why)
{
	return err_set(e, ERR_CORRUPT, "%s: tensor %.100s: %s", d->path, t->name, why);
}

static int fit_hf(struct hf_dcp *d, const struct hf_tensor *t, struct err *e)
{
	struct named *found = find_hf(d, d->prefix, t->name);
	int64_t rows = t->shape[t->transposed], columns = t->shape[!t->transposed];
	char why[160];
	if (!found)
		return err_set(e, ERR_CORRUPT,
			       "%s: has no tensor %s%s, which the model of its config.json needs; "
			       "use the config.json that belongs to the weights%s",
			       d->path, d->prefix, t->name,
			       strcmp(t->name, "lm_head.weight")
				       ? ""
				       : ", or set tie_word_embeddings to true there");
	const struct dcp_tensor *their = found->tensor;
	found->used = true;
	if (their->dims == t->dims && their->shape[0] == rows &&
	    (t->dims == 1 || their->shape[1] == columns))
		return 0;
	snprintf(why, sizeof why,
		 t->dims == 2 ? "its shape is not [%" PRId64 ", %" PRId64 "], as config.json has it"
			      : "its shape is not [%" PRId64 "], as config.json has it",
		 rows, columns);
	return fail_tensor(d, their, e, why);
}

static int fit_megatron(struct hf_dcp *d, const struct hf_tensor *t, struct err *e)
{
	struct hf_megatron_place p;
	for (int i = 0; i < t->n; i++) {
		if (hf_megatron_locate(d->shape, t, &t->parts[i], find_megatron, d, d->path, &p, e))
			return -1;
		d->cut += p.padding;
	}
	return 0;
}

/* A tied head that is stored must equal the embedding; otherwise the import would lose one of
 * them. Both are compared in pieces of rows. */
static int check_tied_head(struct hf_dcp *d, struct dcp_tensor *head, struct err *e)
{
	struct dcp_tensor *table =
		d->megatron ? find_megatron(d, HF_MEGATRON_ANCHOR)
			    : find_hf(d, d->prefix, d->names->tensors[0].name)->tensor;
	int64_t columns = table->shape[1], some = DCP_PIECE / columns + 1;
	if (head->dims != 2 || head->shape[0] != table->shape[0] || head->shape[1] != columns)
		return fail_tensor(d, head, e,
				   "has not the shape of the embedding, to which "
				   "config.json ties it");
	float *a = malloc((size_t)(some * columns) * sizeof *a),
	      *b = malloc((size_t)(some * columns) * sizeof *b);
	int rc = a && b ? 0 : err_set(e, ERR_NOMEM, "%s: no memory to compare the head", d->path);
	for (int64_t at = 0; !rc && at < head->shape[0]; at += some) {
		int64_t end = at + some < head->shape[0] ? at + some : head->shape[0];
		const int64_t lo[DCP_DIMS] = { at, 0 }, hi[DCP_DIMS] = { end, columns };
		rc = dcp_folder_read(d->folder, table, lo, hi, widen, a, e) ||
				     dcp_folder_read(d->folder, head, lo, hi, widen, b, e)
			     ? -1
			     : memcmp(a, b, (size_t)((end - at) * columns) * sizeof *a) != 0;
	}
	free(a);
	free(b);
	return rc <= 0 ? rc
		       : fail_tensor(d, head, e,
				     "differs from the embedding, and config.json says that they "
				     "are tied; set tie_word_embeddings to false");
}

static bool is_state(const struct hf_dcp *d, const char *name)
{
	if (!begins(name, d->prefix))
		return true;
	for (int i = 0; i < LENGTH(states); i++)
		if (begins(name, states[i]))
			return true;
	return false;
}

static int check_extra(struct hf_dcp *d, struct named *x, struct err *e)
{
	const char *name = x->name + (begins(x->name, d->prefix) ? strlen(d->prefix) : 0);
	if (is_state(d, x->name)) {
		d->left_out++;
		return 0;
	}
	if (strstr(name, "._extra_state") || (!d->megatron && hf_names_may_skip(d->names, name)))
		return 0;
	if (d->names->tied && !strcmp(name, d->megatron ? "output_layer.weight" : "lm_head.weight"))
		return check_tied_head(d, x->tensor, e);
	if (hf_unsupported_tensor(name))
		return fail_tensor(d, x->tensor, e, hf_unsupported_tensor(name));
	return fail_tensor(d, x->tensor, e,
			   "the model of config.json has no such tensor, and leaving it out would "
			   "change what the model computes");
}

/* Reads nothing, but proves that muster can. */
static int check_used(struct hf_dcp *d, struct named *x, struct err *e)
{
	if (x->tensor->dtype && !strcmp(x->tensor->dtype, "float64"))
		d->rounded++;
	else if (!hf_numbers_torch(x->tensor->dtype))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor %.100s is %s; muster imports float32, bfloat16, float16 "
			       "and float64",
			       d->path, x->tensor->name,
			       x->tensor->dtype ? x->tensor->dtype : "of an unknown type");
	return dcp_folder_prepare(d->folder, x->tensor, e);
}

int hf_dcp_fit(struct hf_dcp *d, const struct hf_names *names, const struct model_shape *m,
	       struct err *e)
{
	d->names = names;
	d->shape = m;
	if (find_prefix(d, e))
		return -1;
	for (int64_t i = 0; i < names->n; i++)
		if (d->megatron ? fit_megatron(d, &names->tensors[i], e)
				: fit_hf(d, &names->tensors[i], e))
			return -1;
	for (int64_t i = 0; i < d->n; i++)
		if (d->list[i].used ? check_used(d, &d->list[i], e)
				    : check_extra(d, &d->list[i], e))
			return -1;
	return 0;
}

void hf_dcp_tell(const struct hf_dcp *d, void (*note)(void *arg, const char *text), void *arg)
{
	char text[160];
	if (d->left_out) {
		snprintf(text, sizeof text,
			 "%" PRId64 " tensors of the optimizer and of training are not imported; "
			 "the optimizer's moments start at zero",
			 d->left_out);
		note(arg, text);
	}
	if (d->cut) {
		snprintf(text, sizeof text, "%" PRId64 " rows that pad the vocabulary are cut off",
			 d->cut);
		note(arg, text);
	}
	if (d->rounded) {
		snprintf(text, sizeof text, "%" PRId64 " tensors in float64 are rounded to fp32",
			 d->rounded);
		note(arg, text);
	}
}
