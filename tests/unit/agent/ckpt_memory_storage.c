#include "tests/unit/agent/ckpt_memory_storage.h"

#include "agent/engine/ckpt/format/manifest.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A published checkpoint is a pointer: an object under the checkpoint's path whose text is the
 * path of the attempt that holds its files. */
struct object {
	char *key, *data;
	size_t size;
	bool pointer;
};

enum { OBJECTS_MAX = 128 };

static struct object objects[OBJECTS_MAX];
static int n_objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct memory_file {
	struct ckpt_file file;
	struct buf data;
	char key[PATH_MAX];
};

static struct object *find_object(const char *key)
{
	for (int i = 0; i < n_objects; i++)
		if (!strcmp(objects[i].key, key))
			return &objects[i];
	return NULL;
}

static void drop_object(struct object *o)
{
	free(o->key);
	free(o->data);
	*o = objects[--n_objects];
}

static int set_object(const char *key, const void *data, size_t n, bool pointer, struct err *e)
{
	struct object *o = find_object(key);
	char *copy = malloc(n + 1);
	if (!copy || (!o && n_objects == OBJECTS_MAX)) {
		free(copy);
		return err_set(e, ERR_NOMEM, "%s: no memory for %zu bytes", key, n);
	}
	memcpy(copy, data, n);
	copy[n] = '\0';
	if (o)
		free(o->data);
	else
		*(o = &objects[n_objects++]) = (struct object){ .key = strdup(key) };
	o->data = copy;
	o->size = n;
	o->pointer = pointer;
	return 0;
}

static bool is_below(const char *key, const char *path)
{
	size_t n = strlen(path);
	return !strncmp(key, path, n) && key[n] == '/';
}

/* Computes the key of a path. If the path is below a pointer, the pointer's target replaces the
 * pointer. */
static void resolve_path(const char *path, char key[PATH_MAX])
{
	snprintf(key, PATH_MAX, "%s", path);
	for (int i = 0; i < n_objects; i++) {
		const struct object *o = &objects[i];
		if (!o->pointer || (strcmp(path, o->key) && !is_below(path, o->key)))
			continue;
		snprintf(key, PATH_MAX, "%s%s", o->data, path + strlen(o->key));
		return;
	}
}

static bool is_published(const char *path)
{
	for (int i = 0; i < n_objects; i++)
		if (objects[i].pointer && !strcmp(objects[i].data, path))
			return true;
	return false;
}

/* Writes the name of `key` below `path`. Returns false if it has none, or if the name is hidden. */
static bool name_below(const char *key, const char *path, char name[256])
{
	char entry[PATH_MAX];
	if (!is_below(key, path))
		return false;
	const char *rest = key + strlen(path) + 1;
	snprintf(name, 256, "%.*s", (int)strcspn(rest, "/"), rest);
	snprintf(entry, sizeof entry, "%.2000s/%s", path, name);
	return !is_published(entry);
}

static int memory_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
		       void *arg, struct err *e)
{
	char names[OBJECTS_MAX][64], name[256], key[PATH_MAX];
	int n = 0, rc = 0;
	bool found = false;
	(void)s;
	pthread_mutex_lock(&lock);
	resolve_path(path, key);
	for (int i = 0; i < n_objects; i++) {
		found |= is_below(objects[i].key, key);
		if (!name_below(objects[i].key, key, name))
			continue;
		bool known = false;
		for (int j = 0; j < n; j++)
			known |= !strcmp(names[j], name);
		if (!known)
			snprintf(names[n++], sizeof names[0], "%.63s", name);
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		return err_set(e, ERR_NOTFOUND, "%s: there is no such entry", path);
	for (int i = 0; i < n && !rc; i++)
		rc = visit(arg, names[i], e);
	return rc;
}

static int memory_open(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		       struct err *e)
{
	struct memory_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
	pthread_mutex_lock(&lock);
	resolve_path(path, f->key);
	const struct object *o = find_object(f->key);
	if (o)
		buf_add(&f->data, o->data, o->size);
	pthread_mutex_unlock(&lock);
	if (!o) {
		free(f);
		return err_set(e, ERR_NOTFOUND, "%s: there is no such object", path);
	}
	f->file = (struct ckpt_file){ s, (int64_t)f->data.len };
	*out = &f->file;
	return 0;
}

static void memory_close(struct ckpt_file *file)
{
	struct memory_file *f = (struct memory_file *)file;
	buf_fini(&f->data);
	free(f);
}

static int memory_size(const struct ckpt_storage *s, const char *path, int64_t *size, struct err *e)
{
	struct ckpt_file *f;
	if (memory_open(s, path, &f, e))
		return -1;
	*size = f->size;
	memory_close(f);
	return 0;
}

static int memory_read(struct ckpt_file *file, int64_t at, void *data, size_t n, struct err *e)
{
	struct memory_file *f = (struct memory_file *)file;
	if (at < 0 || (size_t)at > f->data.len || n > f->data.len - (size_t)at)
		return err_set(e, ERR_IO, "%s: cannot read beyond its end", f->key);
	if (n)
		memcpy(data, f->data.data + at, n);
	return 0;
}

static int memory_prepare(const struct ckpt_storage *s, const char *dir, struct err *e)
{
	(void)s, (void)dir, (void)e;
	return 0;
}

static int memory_begin(const struct ckpt_storage *s, const char *attempt, bool create,
			struct err *e)
{
	(void)s, (void)attempt, (void)create, (void)e;
	return 0;
}

static int memory_create(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
			 struct err *e)
{
	struct memory_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to create it", path);
	f->file = (struct ckpt_file){ s, 0 };
	snprintf(f->key, sizeof f->key, "%s", path);
	*out = &f->file;
	return 0;
}

static int memory_write(struct ckpt_file *file, const void *data, size_t n, struct err *e)
{
	struct memory_file *f = (struct memory_file *)file;
	buf_add(&f->data, data, n);
	return f->data.failed ? err_set(e, ERR_NOMEM, "%s: no memory", f->key) : 0;
}

static int memory_finish(struct ckpt_file *file, struct err *e)
{
	struct memory_file *f = (struct memory_file *)file;
	pthread_mutex_lock(&lock);
	int rc = find_object(f->key) ? err_set(e, ERR_IO, "%s: exists already", f->key)
				     : set_object(f->key, buf_str(&f->data), f->data.len, false, e);
	pthread_mutex_unlock(&lock);
	memory_close(file);
	return rc;
}

static int memory_discard(const struct ckpt_storage *s, const char *path, struct err *e)
{
	(void)s, (void)e;
	pthread_mutex_lock(&lock);
	struct object *o = find_object(path);
	if (o)
		drop_object(o);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int memory_commit(const struct ckpt_storage *s, const char *attempt, const char *path,
			 const char *aside, const void *manifest, size_t n, struct err *e)
{
	char key[PATH_MAX];
	(void)s, (void)aside;
	if (ckpt_storage_join(key, sizeof key, attempt, MANIFEST_NAME, e))
		return -1;
	pthread_mutex_lock(&lock);
	int rc = set_object(key, manifest, n, false, e) ||
		 set_object(path, attempt, strlen(attempt), true, e);
	pthread_mutex_unlock(&lock);
	return rc ? -1 : 0;
}

static int memory_put(const struct ckpt_storage *s, const char *path, const void *data, size_t n,
		      struct err *e)
{
	char key[PATH_MAX];
	(void)s;
	pthread_mutex_lock(&lock);
	resolve_path(path, key);
	int rc = set_object(key, data, n, false, e);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Removes the pointer first. Its target is then an attempt that nothing refers to. */
static int memory_remove(const struct ckpt_storage *s, const char *path, struct err *e)
{
	char key[PATH_MAX];
	(void)s, (void)e;
	pthread_mutex_lock(&lock);
	resolve_path(path, key);
	struct object *pointer = find_object(path);
	if (pointer)
		drop_object(pointer);
	for (int i = n_objects - 1; i >= 0; i--)
		if (is_below(objects[i].key, key))
			drop_object(&objects[i]);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int memory_rename(const struct ckpt_storage *s, const char *path, const char *to,
			 struct err *e)
{
	(void)s;
	pthread_mutex_lock(&lock);
	struct object *from = find_object(path);
	int rc = find_object(to) ? 1 : 0;
	if (!rc && !from)
		rc = err_set(e, ERR_NOTFOUND, "%s: there is no such checkpoint", path);
	if (!rc) {
		free(from->key);
		from->key = strdup(to);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void ckpt_memory_storage_clear(void)
{
	while (n_objects)
		drop_object(&objects[n_objects - 1]);
}

static const struct ckpt_storage_ops memory_ops = {
	.name = "memory",
	.scheme = MEMORY_SCHEME,
	.list = memory_list,
	.size = memory_size,
	.open = memory_open,
	.read = memory_read,
	.prepare = memory_prepare,
	.begin = memory_begin,
	.create = memory_create,
	.write = memory_write,
	.finish = memory_finish,
	.close = memory_close,
	.discard = memory_discard,
	.commit = memory_commit,
	.put = memory_put,
	.remove = memory_remove,
	.rename = memory_rename,
};

const struct ckpt_storage ckpt_memory_storage = { &memory_ops, NULL };
