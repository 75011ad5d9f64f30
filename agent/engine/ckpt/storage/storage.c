#include "agent/engine/ckpt/storage/storage.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ckpt_storage *const rows[] = {
	&ckpt_storage_s3,
	&ckpt_storage_posix,
};

static bool has_scheme(const struct ckpt_storage *s, const char *path)
{
	return !strncmp(path, s->ops->scheme, strlen(s->ops->scheme));
}

const struct ckpt_storage *ckpt_storage_of(const char *path)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (has_scheme(rows[i], path))
			return rows[i];
	return &ckpt_storage_posix;
}

int ckpt_storage_join(char *out, size_t n, const char *path, const char *name, struct err *e)
{
	int length = snprintf(out, n, "%s/%s", path, name);
	if (length >= 0 && (size_t)length < n)
		return 0;
	return err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
}

int ckpt_storage_read_whole(const struct ckpt_storage *s, const char *path, int64_t most,
			    struct buf *out, struct err *e)
{
	struct ckpt_file *f;
	char *to;
	if (s->ops->open(s, path, &f, e))
		return -1;
	int rc = 0;
	if (f->size > most)
		rc = err_set(e, ERR_CORRUPT,
			     "%s: has %" PRId64 " bytes; such a file has at most %" PRId64, path,
			     f->size, most);
	else if (!(to = buf_room(out, (size_t)f->size + 1)))
		rc = err_set(e, ERR_NOMEM, "%s: no memory for its %" PRId64 " bytes", path,
			     f->size);
	else
		rc = s->ops->read(f, 0, to, (size_t)f->size, e);
	if (!rc)
		out->len += (size_t)f->size;
	s->ops->close(f);
	return rc;
}

int ckpt_storage_write_whole(const struct ckpt_storage *s, const char *path, const void *data,
			     size_t n, struct err *e)
{
	struct ckpt_file *f;
	if (s->ops->create(s, path, &f, e))
		return -1;
	if (s->ops->write(f, data, n, e)) {
		s->ops->close(f);
		return -1;
	}
	return s->ops->finish(f, e);
}

struct wanted {
	const char *name;
	int found;
};

static int compare_name(void *arg, const char *name, struct err *e)
{
	struct wanted *w = arg;
	(void)e;
	w->found |= !strcmp(name, w->name);
	return 0;
}

int ckpt_storage_has(const struct ckpt_storage *s, const char *dir, const char *name, struct err *e)
{
	struct wanted w = { name, 0 };
	struct err why = ERR_INIT;
	if (!s->ops->list(s, dir, compare_name, &w, &why))
		return w.found;
	if (why.code == ERR_NOTFOUND)
		return 0;
	return err_set(e, why.code, "%s", why.text);
}

static int keep_name(void *arg, const char *name, struct err *e)
{
	struct ckpt_storage_names *l = arg;
	char **more = realloc(l->names, (l->n + 1) * sizeof *more), *copy = strdup(name);
	if (more)
		l->names = more;
	if (!more || !copy) {
		free(copy);
		return err_set(e, ERR_NOMEM, "no memory for a list of %zu names", l->n + 1);
	}
	l->names[l->n++] = copy;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int ckpt_storage_names_of(const struct ckpt_storage *s, const char *path,
			  struct ckpt_storage_names *out, struct err *e)
{
	struct ckpt_storage_names l = { 0 };
	struct err why = ERR_INIT;
	if (s->ops->list(s, path, keep_name, &l, &why) && why.code != ERR_NOTFOUND) {
		ckpt_storage_names_free(&l);
		return err_set(e, why.code, "%s", why.text);
	}
	if (l.n)
		qsort(l.names, l.n, sizeof *l.names, compare_names);
	*out = l;
	return 0;
}

void ckpt_storage_names_free(struct ckpt_storage_names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	*l = (struct ckpt_storage_names){ 0 };
}

bool ckpt_storage_named(const struct ckpt_storage_names *l, const char *name)
{
	return l->n && bsearch(&name, l->names, l->n, sizeof *l->names, compare_names);
}

bool ckpt_storage_same(const struct ckpt_storage *s, const char *a, const char *b)
{
	return s->ops->same ? s->ops->same(s, a, b) : !strcmp(a, b);
}

int ckpt_storage_set_aside(const struct ckpt_storage *s, const char *path, const char *prefix,
			   char *to, struct err *e)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	int taken = 1;
	for (int i = 0; i < CKPT_STORAGE_RENAMES && taken > 0; i++) {
		int n = snprintf(to, PATH_MAX, i ? "%.*s%s%s.%d" : "%.*s%s%s", (int)(name - path),
				 path, prefix, name, i);
		if (n >= PATH_MAX)
			return err_set(e, ERR_USAGE, "%s: the path is too long", path);
		taken = s->ops->rename(s, path, to, e);
	}
	if (taken > 0)
		return err_set(
			e, ERR_IO,
			"%s cannot be renamed: %s exists; delete the folders %s* that you do not "
			"need",
			path, to, prefix);
	return taken;
}
