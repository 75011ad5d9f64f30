#include "agent/engine/hf/dcp.h"

#include "agent/engine/dcp/folder.h"
#include "agent/engine/hf/dcp_names.h"
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

struct hf_dcp {
	char *path;
	struct dcp_folder *folder;
	struct hf_dcp_names in;
	const struct hf_names *names;
	const struct model_shape *shape;
	int64_t left_out, cut, rounded; /* tensors, rows, tensors */
};

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
	if (check_backend(d, e) || dcp_folder_open(folder, &d->folder, e) ||
	    hf_dcp_names_list(dcp_folder_metadata(d->folder), folder, &d->in, e)) {
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
	hf_dcp_names_free(&d->in);
	free(d->path);
	free(d);
}

bool hf_dcp_is_megatron(const struct hf_dcp *d)
{
	return d->in.megatron;
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
	if (hf_megatron_locate(d->shape, t, part, hf_dcp_names_find_megatron, &d->in, d->path, &p,
			       e))
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
	if (!d->in.megatron) {
		struct dcp_tensor *their = hf_dcp_names_find(&d->in, t->name);
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
	const struct dcp_tensor *their = hf_dcp_names_find(&d->in, t->name);
	int64_t rows = t->shape[t->transposed], columns = t->shape[!t->transposed];
	char why[160];
	if (!their)
		return err_set(e, ERR_CORRUPT,
			       "%s: has no tensor %s%s, which the model of its config.json needs; "
			       "use the config.json that belongs to the weights%s",
			       d->path, d->in.prefix, t->name,
			       strcmp(t->name, "lm_head.weight")
				       ? ""
				       : ", or set tie_word_embeddings to true there");
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
		if (hf_megatron_locate(d->shape, t, &t->parts[i], hf_dcp_names_find_megatron,
				       &d->in, d->path, &p, e))
			return -1;
		d->cut += p.padding;
	}
	return 0;
}

/* A tied head that is stored must equal the embedding; otherwise the import would lose one of
 * them. Both are compared in pieces of rows. */
static int check_tied_head(struct hf_dcp *d, struct dcp_tensor *head, struct err *e)
{
	struct dcp_tensor *table = d->in.megatron
					   ? hf_dcp_names_find_megatron(&d->in, HF_MEGATRON_ANCHOR)
					   : hf_dcp_names_find(&d->in, d->names->tensors[0].name);
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

static int check_extra(struct hf_dcp *d, struct hf_dcp_name *x, struct err *e)
{
	const char *name = hf_dcp_names_of_model(&d->in, x);
	if (!name) {
		d->left_out++;
		return 0;
	}
	if (strstr(name, "._extra_state") || (!d->in.megatron && hf_names_may_skip(d->names, name)))
		return 0;
	if (d->names->tied &&
	    !strcmp(name, d->in.megatron ? "output_layer.weight" : "lm_head.weight"))
		return check_tied_head(d, x->tensor, e);
	if (hf_unsupported_tensor(name))
		return fail_tensor(d, x->tensor, e, hf_unsupported_tensor(name));
	return fail_tensor(d, x->tensor, e,
			   "the model of config.json has no such tensor, and leaving it out would "
			   "change what the model computes");
}

/* Reads nothing, but proves that muster can. */
static int check_used(struct hf_dcp *d, struct hf_dcp_name *x, struct err *e)
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
	if (hf_dcp_names_set_model(&d->in, names, d->path, e))
		return -1;
	for (int64_t i = 0; i < names->n; i++)
		if (d->in.megatron ? fit_megatron(d, &names->tensors[i], e)
				   : fit_hf(d, &names->tensors[i], e))
			return -1;
	for (int64_t i = 0; i < d->in.n; i++)
		if (d->in.list[i].used ? check_used(d, &d->in.list[i], e)
				       : check_extra(d, &d->in.list[i], e))
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
