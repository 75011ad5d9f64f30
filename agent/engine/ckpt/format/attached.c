#include "agent/engine/ckpt/format/attached.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ckpt_attached_fini(struct attached *a)
{
	for (int i = 0; i < a->n; i++)
		free(a->files[i].data);
	*a = (struct attached){ 0 };
}

/* Reads a regular file of at most `most` bytes. */
static int read_regular(struct attached_file *f, int fd, const char *path, size_t most,
			struct err *e)
{
	struct stat st;
	if (fstat(fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: is not a regular file; put the file itself there", path);
	if (st.st_size < 0 || (uintmax_t)st.st_size > most)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: has %lld bytes, but such a file has at most %zu; move it out of "
			"the folder",
			path, (long long)st.st_size, most);
	f->size = (size_t)st.st_size;
	f->data = malloc(f->size + 1);
	if (!f->data)
		return err_set(e, ERR_NOMEM, "%s: no memory for its %zu bytes", path, f->size);
	f->data[f->size] = '\0';
	if (file_pread_full(fd, f->data, f->size, 0)) {
		free(f->data);
		return err_errno(e, ERR_IO, "%s: cannot read", path);
	}
	return 0;
}

/* Opens the file without blocking, because a pipe may have no writer. Returns 1, or 0 if there is
 * no such file. */
static int read_source(struct attached_file *f, const char *path, size_t most, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT && !lstat(path, &st))
		return err_set(e, ERR_CORRUPT,
			       "%s: is a link whose target does not exist; download the file "
			       "again, or remove the link",
			       path);
	if (fd < 0)
		return errno == ENOENT ? 0
				       : err_errno(e, errno == ENXIO ? ERR_UNSUPPORTED : ERR_IO,
						   "%s: cannot open", path);
	int rc = read_regular(f, fd, path, most, e);
	close(fd);
	return rc ? -1 : 1;
}

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);
	return !strncmp(path, folder, n) && path[n] == '/';
}

/* If `folder` is a version in a Hugging Face cache, models--NAME/snapshots/VERSION, its files are
 * links into models--NAME/blobs: shortens `folder` to models--NAME. Returns false otherwise. */
static bool shorten_to_cache(char *folder)
{
	char *version = strrchr(folder, '/');
	if (!version || version == folder)
		return false;
	*version = '\0';
	char *snapshots = strrchr(folder, '/');
	if (!snapshots || strcmp(snapshots, "/snapshots"))
		return false;
	*snapshots = '\0';
	return *folder != '\0';
}

bool ckpt_attached_leads_out(const char *folder, const char *name)
{
	char path[PATH_MAX], here[PATH_MAX], target[PATH_MAX];
	struct stat st;
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
	    lstat(path, &st) || !S_ISLNK(st.st_mode) || !realpath(path, target) ||
	    !realpath(folder, here))
		return false;
	return !is_below(target, here) && !(shorten_to_cache(here) && is_below(target, here));
}

static struct attached_file *next_file(struct attached *a, const char *folder, const char *name,
				       struct err *e)
{
	struct attached_file *f = &a->files[a->n];
	if (a->n == MANIFEST_ATTACHED_MAX) {
		err_set(e, ERR_INTERNAL, "%s: more than %d attached files", folder,
			MANIFEST_ATTACHED_MAX);
		return NULL;
	}
	snprintf(f->name, sizeof f->name, "%s", name);
	return f;
}

int ckpt_attached_add(struct attached *a, const char *folder, const char *name, size_t most,
		      struct err *e)
{
	char path[PATH_MAX];
	struct attached_file *f = next_file(a, folder, name, e);
	if (!f || ckpt_storage_join(path, sizeof path, folder, name, e))
		return -1;
	int rc = read_source(f, path, most, e);
	a->n += rc > 0;
	return rc;
}

const struct attached_file *ckpt_attached_find(const struct attached *a, const char *name)
{
	for (int i = 0; i < a->n; i++)
		if (!strcmp(a->files[i].name, name))
			return &a->files[i];
	return NULL;
}

static int load_file(const char *path, const struct manifest_attached *want, struct attached *a,
		     struct err *e)
{
	char name[PATH_MAX];
	struct buf data = BUF_INIT;
	struct err why = ERR_INIT;
	struct attached_file *f = next_file(a, path, want->name, e);
	if (!f || ckpt_storage_join(name, sizeof name, path, want->name, e))
		return -1;
	int rc = ckpt_storage_read_whole(ckpt_storage_of(path), name, MANIFEST_ATTACHED_BYTES,
					 &data, &why);
	if (rc) {
		buf_fini(&data);
		return why.code == ERR_NOTFOUND
			       ? err_set(e, ERR_CORRUPT,
					 "%s: a file of the checkpoint cannot be found", name)
			       : err_set(e, why.code, "%s", why.text);
	}
	struct digest d = ckpt_digest_of(data.data, data.len);
	f->size = data.len;
	f->data = buf_take(&data);
	if (!f->data)
		return err_set(e, ERR_NOMEM, "%s: no memory for its %zu bytes", name, f->size);
	a->n++;
	if ((int64_t)f->size == want->size && ckpt_digest_equal(&d, &want->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s: the digest differs: its bytes changed after they were written; restore "
		       "the file, or use another checkpoint",
		       name);
}

int ckpt_attached_load(const char *path, const struct manifest *m, struct attached *out,
		       struct err *e)
{
	*out = (struct attached){ 0 };
	for (int i = 0; i < m->n_attached; i++)
		if (load_file(path, &m->attached[i], out, e)) {
			ckpt_attached_fini(out);
			return -1;
		}
	snprintf(out->from, sizeof out->from, "%s", m->from);
	return 0;
}

int ckpt_attached_write(const struct attached *a, const struct ckpt_storage *storage,
			const char *attempt, struct manifest *m, struct err *e)
{
	for (int i = 0; i < a->n; i++) {
		const struct attached_file *f = &a->files[i];
		struct manifest_attached listed = { .size = (int64_t)f->size,
						    .digest = ckpt_digest_of(f->data, f->size) };
		char path[PATH_MAX];
		snprintf(listed.name, sizeof listed.name, "%s", f->name);
		if (ckpt_storage_join(path, sizeof path, attempt, f->name, e) ||
		    ckpt_manifest_add_attached(m, &listed, e) ||
		    ckpt_storage_write_whole(storage, path, f->data, f->size, e))
			return -1;
	}
	snprintf(m->from, sizeof m->from, "%s", a->from);
	return 0;
}
