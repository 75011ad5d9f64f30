#include "agent/engine/ckpt/format/header.h"

#include "agent/engine/ckpt/format/safetensors.h"
#include "agent/engine/ckpt/save/snapshot.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_offsets(const void *a, const void *b)
{
	const struct manifest_slice *x = ((const struct slice_entry *)a)->slice,
				    *y = ((const struct slice_entry *)b)->slice;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int ckpt_slice_index_build(const struct manifest *m, struct slice_index *out, struct err *e)
{
	int64_t n = 0, at = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		n += m->tensors[i].n;
	struct slice_index x = { malloc((size_t)(n + 1) * sizeof *x.entries),
				 malloc((size_t)(m->n_files + 1) * sizeof *x.first) };
	if (!x.entries || !x.first) {
		ckpt_slice_index_free(&x);
		return err_set(e, ERR_NOMEM, "no memory for a list of %lld slices", (long long)n);
	}
	for (int64_t i = 0; i < m->n_tensors; i++)
		for (int64_t j = 0; j < m->tensors[i].n; j++)
			x.entries[at++] = (struct slice_entry){ &m->tensors[i],
								&m->tensors[i].slices[j] };
	qsort(x.entries, (size_t)n, sizeof *x.entries, compare_offsets);
	at = 0;
	for (int64_t f = 0; f < m->n_files; f++) {
		x.first[f] = at;
		while (at < n && x.entries[at].slice->file == f)
			at++;
	}
	x.first[m->n_files] = at;
	*out = x;
	return 0;
}

void ckpt_slice_index_free(struct slice_index *x)
{
	free(x->entries);
	free(x->first);
	*x = (struct slice_index){ 0 };
}

static bool is_slice(const struct st_tensor *st, const struct slice_entry *p, const char *name)
{
	if (strcmp(st->name, name) || strcmp(st->dtype, "F32") || st->dims != p->tensor->dims ||
	    st->begin != p->slice->offset)
		return false;
	for (int i = 0; i < st->dims; i++)
		if (st->shape[i] != p->slice->hi[i] - p->slice->lo[i])
			return false;
	return true;
}

static int compare_tensors(const char *path, const struct manifest_file *f,
			   const struct st_header *h, const struct slice_entry *entries, int64_t n,
			   struct err *e)
{
	if (h->data_at != f->header || h->n != n)
		return err_set(e, ERR_CORRUPT,
			       "%s/%s: its header describes %lld tensors, but the manifest %lld; "
			       "use an earlier checkpoint",
			       path, f->name, (long long)h->n, (long long)n);
	for (int64_t i = 0; i < n; i++) {
		char name[SLICE_NAME];
		const struct slice_entry *p = &entries[i];
		ckpt_slice_name(p->tensor->name, p->tensor->dims, p->tensor->shape, p->slice->lo,
				p->slice->hi, name);
		if (!is_slice(&h->tensors[i], p, name))
			return err_set(e, ERR_CORRUPT,
				       "%s/%s: its header has the tensor %.100s where the manifest "
				       "has %s, or another shape or dtype; use an earlier "
				       "checkpoint",
				       path, f->name, h->tensors[i].name, name);
	}
	return 0;
}

/* text: the bytes before the file's buffer, as the manifest has them. */
static int check_header(const char *path, const struct manifest_file *f, const char *text,
			const struct slice_entry *entries, int64_t n, struct err *e)
{
	struct st_header h;
	uint64_t length;
	struct digest d = ckpt_digest_of(text, (size_t)f->header);
	if (!ckpt_digest_equal(&d, &f->digest))
		return err_set(e, ERR_CORRUPT,
			       "%s/%s: the digest of its header differs: its bytes changed after "
			       "they were written; use an earlier checkpoint",
			       path, f->name);
	memcpy(&length, text, sizeof length);
	if (le64toh(length) != (uint64_t)f->header - sizeof length)
		return err_set(e, ERR_CORRUPT,
			       "%s/%s: its header has another length than the manifest says; use "
			       "an earlier checkpoint",
			       path, f->name);
	if (ckpt_safetensors_parse(text, (size_t)f->header, f->size, f->name, &h, e))
		return err_prefix(e, "%s", path);
	int rc = compare_tensors(path, f, &h, entries, n, e);
	ckpt_safetensors_header_fini(&h);
	return rc;
}

int ckpt_header_check(const char *path, const struct manifest *m, int64_t file, struct ckpt_file *f,
		      const struct slice_index *index, struct err *e)
{
	const struct manifest_file *want = &m->files[file];
	int64_t first = index->first[file];
	char *text = malloc((size_t)want->header);
	if (!text)
		return err_set(e, ERR_NOMEM, "%s/%s: no memory for its header", path, want->name);
	int rc = f->storage->ops->read(f, 0, text, (size_t)want->header, e) ||
		 check_header(path, want, text, index->entries + first,
			      index->first[file + 1] - first, e);
	free(text);
	return rc ? -1 : 0;
}

/* with_step: as snapshot.c writes the metadata, otherwise as stream.c does. */
static int rebuild(const struct manifest *m, const struct slice_entry *entries, int64_t n,
		   bool with_step, struct buf *out, struct err *e)
{
	char step[24];
	struct st_tensor *list = calloc((size_t)n + 1, sizeof *list);
	char(*names)[SLICE_NAME] = calloc((size_t)n + 1, sizeof *names);
	json_t *metadata = json_pack("{s:s}", "format", "pt");
	snprintf(step, sizeof step, "%" PRId64, m->state.step);
	if (with_step)
		json_object_set_new(metadata, "muster.step", json_string(step));
	json_object_set_new(metadata, "muster.manifest", json_string(MANIFEST_NAME));
	int rc = list && names && metadata ? 0 : err_set(e, ERR_NOMEM, "no memory for a header");
	for (int64_t i = 0; i < n && !rc; i++) {
		const struct manifest_tensor *t = entries[i].tensor;
		const struct manifest_slice *s = entries[i].slice;
		ckpt_slice_name(t->name, t->dims, t->shape, s->lo, s->hi, names[i]);
		list[i] = (struct st_tensor){ .name = names[i],
					      .dtype = "F32",
					      .dims = t->dims,
					      .begin = s->offset,
					      .end = s->offset + ckpt_slice_bytes(s) };
		for (int j = 0; j < t->dims; j++)
			list[i].shape[j] = s->hi[j] - s->lo[j];
	}
	if (!rc)
		rc = ckpt_safetensors_write_header(list, n, metadata, out, e);
	json_decref(metadata);
	free(names);
	free(list);
	return rc;
}

int ckpt_header_rebuild(const struct manifest *m, int64_t file, const struct slice_index *index,
			struct buf *out, struct err *e)
{
	const struct manifest_file *want = &m->files[file];
	const struct slice_entry *entries = index->entries + index->first[file];
	int64_t n = index->first[file + 1] - index->first[file];
	for (int with_step = 1; with_step >= 0; with_step--) {
		buf_clear(out);
		if (rebuild(m, entries, n, with_step, out, e))
			return -1;
		struct digest d = ckpt_digest_of(out->data, out->len);
		if ((int64_t)out->len == want->header && ckpt_digest_equal(&d, &want->digest))
			return 0;
	}
	return err_set(e, ERR_CORRUPT,
		       "%s: its header is damaged, and another version of muster wrote it; repair "
		       "the checkpoint from a copy of the same layout",
		       want->name);
}
