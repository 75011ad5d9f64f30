#include "agent/ckpt/ckpt.h"

#include "agent/ckpt/folder.h"
#include "agent/ckpt/read.h"
#include "agent/ckpt/safetensors.h"
#include "agent/ckpt/snapshot.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A slice and the tensor that it is of, in the order of the files' bytes. */
struct place {
	const struct manifest_tensor *tensor;
	const struct manifest_slice *slice;
};

static int by_place(const void *a, const void *b)
{
	const struct manifest_slice *x = ((const struct place *)a)->slice, *y = ((const struct place *)b)->slice;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static struct place *list_places(const struct manifest *m, int64_t *n)
{
	int64_t count = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		count += m->tensors[i].n;
	struct place *list = malloc((size_t)(count + 1) * sizeof *list);
	if (!list)
		return NULL;
	*n = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		for (int64_t j = 0; j < m->tensors[i].n; j++)
			list[(*n)++] = (struct place){ &m->tensors[i], &m->tensors[i].slices[j] };
	qsort(list, (size_t)count, sizeof *list, by_place);
	return list;
}

static int check_header_digest(const char *path, const struct manifest_file *f, int fd, struct err *e)
{
	char *text = malloc((size_t)f->header);
	if (!text)
		return err_set(e, ERR_NOMEM, "%s/%s: no memory for its header", path, f->name);
	int rc = 0;
	if (file_pread_full(fd, text, (size_t)f->header, 0)) {
		rc = err_errno(e, ERR_IO, "%s/%s: cannot read its header", path, f->name);
	} else {
		struct digest d = digest_of(text, (size_t)f->header);
		if (!digest_equal(&d, &f->digest))
			rc = err_set(e, ERR_CORRUPT, "%s/%s: the digest of its header differs: its bytes changed after they were "
				     "written; use an earlier checkpoint", path, f->name);
	}
	free(text);
	return rc;
}

static bool same_tensor(const struct st_tensor *st, const struct place *p)
{
	char name[SLICE_NAME];
	slice_name(p->tensor->name, p->tensor->dims, p->tensor->shape, p->slice->lo, p->slice->hi, name);
	if (strcmp(st->name, name) || strcmp(st->dtype, "F32") || st->dims != p->tensor->dims || st->begin != p->slice->offset)
		return false;
	for (int i = 0; i < st->dims; i++)
		if (st->shape[i] != p->slice->hi[i] - p->slice->lo[i])
			return false;
	return true;
}

/* Readers of safetensors find the slices where the manifest says. */
static int compare_header(const char *path, const struct manifest_file *f, int fd, const struct place *places, int64_t n,
			  struct err *e)
{
	struct st_header h;
	if (st_read(fd, f->name, &h, e))
		return err_prefix(e, "%s", path);
	int rc = 0;
	if (h.data_at != f->header || h.n != n)
		rc = err_set(e, ERR_CORRUPT, "%s/%s: its header describes %lld tensors, the manifest %lld", path, f->name,
			     (long long)h.n, (long long)n);
	for (int64_t i = 0; i < n && !rc; i++)
		if (!same_tensor(&h.tensors[i], &places[i]))
			rc = err_set(e, ERR_CORRUPT, "%s/%s: its header and the manifest disagree about tensor %.100s", path, f->name,
				     h.tensors[i].name);
	st_header_fini(&h);
	return rc;
}

static int verify_file(const char *path, const struct manifest *m, int64_t file, struct reader *r, const struct place *places,
		       int64_t n, struct err *e)
{
	int fd = reader_file(r, file, e);
	if (fd < 0 || check_header_digest(path, &m->files[file], fd, e) ||
	    compare_header(path, &m->files[file], fd, places, n, e))
		return -1;
	for (int64_t i = 0; i < n; i++)
		if (reader_slice(r, places[i].tensor, places[i].slice, NULL, 0, e))
			return -1;
	return 0;
}

static int verify_files(const char *path, const struct manifest *m, struct err *e)
{
	struct reader *r;
	int64_t n = 0, at = 0;
	int rc = 0;
	struct place *places = list_places(m, &n);
	if (!places)
		return err_set(e, ERR_NOMEM, "%s: no memory to verify it", path);
	if (reader_open(path, m, NULL, &r, e)) {
		free(places);
		return -1;
	}
	for (int64_t f = 0; f < m->n_files && !rc; f++) {
		int64_t first = at;
		while (at < n && places[at].slice->file == f)
			at++;
		rc = verify_file(path, m, f, r, places + first, at - first, e);
	}
	reader_close(r);
	free(places);
	return rc;
}

static bool is_listed(const struct manifest *m, const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, MANIFEST_NAME) || manifest_has_file(m, name);
}

static int check_strangers(const char *path, const struct manifest *m, struct err *e)
{
	struct dirent *f;
	int rc = 0;
	DIR *d = opendir(path);
	if (!d)
		return err_errno(e, ERR_IO, "%s: cannot open the folder", path);
	while (!rc && (f = readdir(d)))
		if (!is_listed(m, f->d_name))
			rc = err_set(e, ERR_CORRUPT, "%s/%s: the manifest knows no such file; take it out of the checkpoint", path, f->d_name);
	closedir(d);
	return rc;
}

int ckpt_verify(const char *path, struct err *e)
{
	struct manifest m;
	if (manifest_load(path, &m, e))
		return -1;
	int rc = folder_check_sizes(path, &m, e) || check_strangers(path, &m, e) || verify_files(path, &m, e) ? -1 : 0;
	manifest_fini(&m);
	return rc;
}
