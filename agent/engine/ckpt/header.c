#include "agent/engine/ckpt/header.h"

#include "agent/engine/ckpt/safetensors.h"
#include "agent/engine/ckpt/snapshot.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
	const struct manifest_slice *x = ((const struct place *)a)->slice,
				    *y = ((const struct place *)b)->slice;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int ckpt_slice_index_build(const struct manifest *m, struct places *out, struct err *e)
{
	int64_t n = 0, at = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		n += m->tensors[i].n;
	struct places p = { malloc((size_t)(n + 1) * sizeof *p.list),
			    malloc((size_t)(m->n_files + 1) * sizeof *p.first) };
	if (!p.list || !p.first) {
		ckpt_slice_index_free(&p);
		return err_set(e, ERR_NOMEM, "no memory for a list of %lld slices", (long long)n);
	}
	for (int64_t i = 0; i < m->n_tensors; i++)
		for (int64_t j = 0; j < m->tensors[i].n; j++)
			p.list[at++] = (struct place){ &m->tensors[i], &m->tensors[i].slices[j] };
	qsort(p.list, (size_t)n, sizeof *p.list, by_place);
	at = 0;
	for (int64_t f = 0; f < m->n_files; f++) {
		p.first[f] = at;
		while (at < n && p.list[at].slice->file == f)
			at++;
	}
	p.first[m->n_files] = at;
	*out = p;
	return 0;
}

void ckpt_slice_index_free(struct places *p)
{
	free(p->list);
	free(p->first);
	*p = (struct places){ 0 };
}

static int check_digest(const char *path, const struct manifest_file *f, int fd, struct err *e)
{
	char *text = malloc((size_t)f->header);
	if (!text)
		return err_set(e, ERR_NOMEM, "%s/%s: no memory for its header", path, f->name);
	int rc = 0;
	if (file_pread_full(fd, text, (size_t)f->header, 0)) {
		rc = err_errno(e, ERR_IO, "%s/%s: cannot read its header", path, f->name);
	} else {
		struct digest d = ckpt_digest_of(text, (size_t)f->header);
		if (!ckpt_digest_equal(&d, &f->digest))
			rc = err_set(e, ERR_CORRUPT,
				     "%s/%s: the digest of its header differs: its bytes changed "
				     "after they were "
				     "written; use an earlier checkpoint",
				     path, f->name);
	}
	free(text);
	return rc;
}

static bool same_tensor(const struct st_tensor *st, const struct place *p, const char *name)
{
	if (strcmp(st->name, name) || strcmp(st->dtype, "F32") || st->dims != p->tensor->dims ||
	    st->begin != p->slice->offset)
		return false;
	for (int i = 0; i < st->dims; i++)
		if (st->shape[i] != p->slice->hi[i] - p->slice->lo[i])
			return false;
	return true;
}

static int compare(const char *path, const struct manifest_file *f, const struct st_header *h,
		   const struct place *places, int64_t n, struct err *e)
{
	if (h->data_at != f->header || h->n != n)
		return err_set(e, ERR_CORRUPT,
			       "%s/%s: its header describes %lld tensors, the manifest %lld", path,
			       f->name, (long long)h->n, (long long)n);
	for (int64_t i = 0; i < n; i++) {
		char name[SLICE_NAME];
		const struct place *p = &places[i];
		ckpt_slice_name(p->tensor->name, p->tensor->dims, p->tensor->shape, p->slice->lo,
				p->slice->hi, name);
		if (!same_tensor(&h->tensors[i], p, name))
			return err_set(e, ERR_CORRUPT,
				       "%s/%s: its header has the tensor %.100s where the manifest "
				       "has %s, or with another shape or "
				       "dtype; use an earlier checkpoint",
				       path, f->name, h->tensors[i].name, name);
	}
	return 0;
}

int ckpt_header_check(const char *path, const struct manifest *m, int64_t file, int fd,
		      const struct places *places, struct err *e)
{
	const struct manifest_file *f = &m->files[file];
	struct st_header h;
	if (check_digest(path, f, fd, e))
		return -1;
	if (ckpt_safetensors_read(fd, f->name, &h, e))
		return err_prefix(e, "%s", path);
	int rc = compare(path, f, &h, places->list + places->first[file],
			 places->first[file + 1] - places->first[file], e);
	ckpt_safetensors_header_fini(&h);
	return rc;
}
