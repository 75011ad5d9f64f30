#include "agent/engine/ckpt/ckpt.h"

#include "agent/engine/ckpt/carry.h"
#include "agent/engine/ckpt/folder.h"
#include "agent/engine/ckpt/header.h"
#include "agent/engine/ckpt/read.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* Opening a file checks its header. */
static int verify_file(const struct place *from, const struct place *to, int64_t file,
		       struct reader *r, struct err *e)
{
	if (ckpt_reader_file(r, file, e) < 0)
		return -1;
	for (const struct place *p = from; p < to; p++)
		if (ckpt_reader_slice(r, p->tensor, p->slice, NULL, 0, e))
			return -1;
	return 0;
}

static int verify_files(const char *path, const struct manifest *m, struct err *e)
{
	struct reader *r;
	struct places places;
	int rc = 0;
	if (ckpt_slice_index_build(m, &places, e))
		return err_prefix(e, "%s", path);
	if (ckpt_reader_open(path, m, NULL, &r, e)) {
		ckpt_slice_index_free(&places);
		return -1;
	}
	for (int64_t f = 0; f < m->n_files && !rc; f++)
		rc = verify_file(places.list + places.first[f], places.list + places.first[f + 1],
				 f, r, e);
	ckpt_reader_close(r);
	ckpt_slice_index_free(&places);
	return rc;
}

static int verify_carried(const char *path, const struct manifest *m, struct err *e)
{
	struct attached c;
	if (ckpt_attached_load(path, m, &c, e))
		return -1;
	ckpt_attached_fini(&c);
	return 0;
}

static bool is_listed(const struct manifest *m, const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, MANIFEST_NAME) ||
	       ckpt_manifest_has_file(m, name);
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
			rc = err_set(e, ERR_CORRUPT,
				     "%s/%s: the manifest knows no such file; take it out of the "
				     "checkpoint",
				     path, f->d_name);
	closedir(d);
	return rc;
}

int ckpt_verify(const char *path, struct err *e)
{
	struct manifest m;
	if (ckpt_manifest_load(path, &m, e))
		return -1;
	int rc = ckpt_folder_check_sizes(path, &m, e) || check_strangers(path, &m, e) ||
				 verify_files(path, &m, e) || verify_carried(path, &m, e)
			 ? -1
			 : 0;
	ckpt_manifest_fini(&m);
	return rc;
}
