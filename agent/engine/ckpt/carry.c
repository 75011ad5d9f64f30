#include "agent/engine/ckpt/carry.h"

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

void ckpt_attached_fini(struct attached *c)
{
	for (int i = 0; i < c->n; i++)
		free(c->files[i].data);
	*c = (struct attached){ 0 };
}

/* All of an open regular file, at most `most` bytes. */
static int read_all(struct attached_file *f, int fd, const char *path, size_t most, struct err *e)
{
	struct stat st;
	if (fstat(fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: is no regular file; put the file itself there", path);
	if (st.st_size < 0 || (uintmax_t)st.st_size > most)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: has %lld bytes, and such a file has at most %zu; take it out "
			       "of the folder",
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

/* Without waiting for who writes into a pipe. flags: O_NOFOLLOW, or 0. 1, or 0: there is no such
 * file. */
static int read_file(struct attached_file *f, const char *path, int flags, size_t most, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
	if (fd < 0 && errno == ELOOP && flags & O_NOFOLLOW)
		return err_set(e, ERR_CORRUPT,
			       "%s: is a symbolic link, and a checkpoint holds the file itself; "
			       "put that there",
			       path);
	if (fd < 0 && errno == ENOENT && !lstat(path, &st))
		return err_set(e, ERR_CORRUPT,
			       "%s: is a link that leads nowhere; download the file again, or "
			       "remove the link",
			       path);
	if (fd < 0)
		return errno == ENOENT ? 0
				       : err_errno(e, errno == ENXIO ? ERR_UNSUPPORTED : ERR_IO,
						   "%s: cannot open", path);
	int rc = read_all(f, fd, path, most, e);
	close(fd);
	return rc ? -1 : 1;
}

static int take(struct attached *c, const char *folder, const char *name, int flags, size_t most,
		struct err *e)
{
	char path[PATH_MAX];
	struct attached_file *f = &c->files[c->n];
	if (c->n == MANIFEST_ATTACHED_MOST)
		return err_set(e, ERR_INTERNAL, "%s: more than %d files to carry", folder,
			       MANIFEST_ATTACHED_MOST);
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", folder);
	snprintf(f->name, sizeof f->name, "%s", name);
	int rc = read_file(f, path, flags, most, e);
	c->n += rc > 0;
	return rc;
}

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);
	return !strncmp(path, folder, n) && path[n] == '/';
}

/* The folder of all versions when `folder` is one of a Hugging Face cache,
 * models--NAME/snapshots/VERSION: the files there are links into models--NAME/blobs. Cuts `folder`;
 * false: it is none. */
static bool cut_to_cache(char *folder)
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
	return !is_below(target, here) && !(cut_to_cache(here) && is_below(target, here));
}

int ckpt_attached_add(struct attached *c, const char *folder, const char *name, size_t most,
		    struct err *e)
{
	return take(c, folder, name, 0, most, e);
}

const struct attached_file *ckpt_attached_find(const struct attached *c, const char *name)
{
	for (int i = 0; i < c->n; i++)
		if (!strcmp(c->files[i].name, name))
			return &c->files[i];
	return NULL;
}

static int load_file(const char *path, const struct manifest_attached *want, struct attached *c,
		     struct err *e)
{
	int rc = take(c, path, want->name, O_NOFOLLOW, MANIFEST_ATTACHED_BYTES, e);
	if (rc < 0)
		return -1;
	if (rc == 0)
		return err_set(e, ERR_CORRUPT, "%s/%s: a file of the checkpoint cannot be found",
			       path, want->name);
	const struct attached_file *f = &c->files[c->n - 1];
	struct digest d = ckpt_digest_of(f->data, f->size);
	if ((int64_t)f->size == want->size && ckpt_digest_equal(&d, &want->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: the digest differs, its bytes changed after they were written; put "
		       "the file back as it was, or "
		       "use another checkpoint",
		       path, want->name);
}

int ckpt_attached_load(const char *path, const struct manifest *m, struct attached *out, struct err *e)
{
	*out = (struct attached){ 0 };
	for (int i = 0; i < m->n_carried; i++)
		if (load_file(path, &m->carried[i], out, e)) {
			ckpt_attached_fini(out);
			return -1;
		}
	snprintf(out->from, sizeof out->from, "%s", m->from);
	return 0;
}

int ckpt_attached_write(const struct attached *c, const struct ckpt_io *io, const char *folder,
		     struct manifest *m, struct err *e)
{
	for (int i = 0; i < c->n; i++) {
		const struct attached_file *f = &c->files[i];
		struct manifest_attached listed = { .size = (int64_t)f->size,
						   .digest = ckpt_digest_of(f->data, f->size) };
		char path[PATH_MAX];
		snprintf(listed.name, sizeof listed.name, "%s", f->name);
		if (snprintf(path, sizeof path, "%s/%s", folder, f->name) >= (int)sizeof path)
			return err_set(e, ERR_IO, "%s: the path is too long", folder);
		if (ckpt_manifest_add_attached(m, &listed, e) ||
		    ckpt_io_write_file(io, path, f->data, f->size, e))
			return -1;
	}
	snprintf(m->from, sizeof m->from, "%s", c->from);
	return 0;
}
