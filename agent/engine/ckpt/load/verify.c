#include "agent/engine/ckpt/ckpt.h"

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/format/header.h"
#include "agent/engine/ckpt/load/read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Opens the file, which also checks its header. This is done even if the file has no slices. */
static int verify_file(const struct manifest *m, const struct slice_entry *from,
		       const struct slice_entry *to, int64_t file, struct ckpt_reader *r,
		       struct ckpt_sums *sums, struct err *e)
{
	if (ckpt_reader_file(r, file, true, e))
		return -1;
	for (const struct slice_entry *p = from; p < to; p++)
		if (ckpt_reader_sums(r, p->tensor, p->slice, &sums[p->tensor - m->tensors], e))
			return -1;
	return 0;
}

/* Compares the sums of what was read with those of the manifest. */
static int verify_sums(const char *path, const struct manifest *m, const struct ckpt_sums *sums,
		       struct err *e)
{
	for (int64_t i = 0; i < m->n_tensors; i++)
		if (m->tensors[i].has_sums && !ckpt_sums_equal(&sums[i], &m->tensors[i].sums))
			return err_set(e, ERR_CORRUPT,
				       "%s: tensor %s: the sums of its blocks differ from the "
				       "manifest's, although its slices' digests agree: the "
				       "checkpoint was written wrongly; use an earlier one",
				       path, m->tensors[i].name);
	return 0;
}

static int verify_files(const char *path, const struct manifest *m, struct err *e)
{
	struct ckpt_reader *r;
	struct slice_index x;
	int rc = 0;
	if (ckpt_slice_index_build(m, &x, e))
		return err_prefix(e, "%s", path);
	if (ckpt_reader_open(path, m, NULL, &r, e)) {
		ckpt_slice_index_free(&x);
		return -1;
	}
	struct ckpt_sums *sums = calloc((size_t)m->n_tensors + 1, sizeof *sums);
	if (!sums)
		rc = err_set(e, ERR_NOMEM, "%s: no memory for the sums of %" PRId64 " tensors",
			     path, m->n_tensors);
	for (int64_t f = 0; f < m->n_files && !rc; f++)
		rc = verify_file(m, x.entries + x.first[f], x.entries + x.first[f + 1], f, r, sums,
				 e);
	if (!rc)
		rc = verify_sums(path, m, sums, e);
	for (int64_t i = 0; sums && i < m->n_tensors; i++)
		ckpt_sums_fini(&sums[i]);
	free(sums);
	ckpt_reader_close(r);
	ckpt_slice_index_free(&x);
	return rc;
}

static int verify_attached(const char *path, const struct manifest *m, struct err *e)
{
	struct attached a;
	if (ckpt_attached_load(path, m, &a, e))
		return -1;
	ckpt_attached_fini(&a);
	return 0;
}

struct listing {
	const char *path;
	const struct manifest *m;
};

static int check_listed(void *arg, const char *name, struct err *e)
{
	const struct listing *l = arg;
	if (!strcmp(name, MANIFEST_NAME) || ckpt_manifest_has_file(l->m, name))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: the manifest does not list this file; move it out of the checkpoint",
		       l->path, name);
}

static int check_unlisted_files(const struct ckpt_storage *s, const char *path,
				const struct manifest *m, struct err *e)
{
	struct listing l = { path, m };
	return s->ops->list(s, path, check_listed, &l, e);
}

int ckpt_verify(const char *path, struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(path);
	struct manifest m;
	if (ckpt_manifest_load_from(s, path, &m, e))
		return -1;
	int rc = ckpt_folder_check_sizes(s, path, &m, e) || check_unlisted_files(s, path, &m, e) ||
		 verify_files(path, &m, e) || verify_attached(path, &m, e);
	ckpt_manifest_fini(&m);
	return rc ? -1 : 0;
}
