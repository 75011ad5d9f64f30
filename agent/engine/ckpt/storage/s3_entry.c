#include "agent/engine/ckpt/storage/s3_entry.h"

#include "agent/engine/ckpt/places/folder.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known_file {
	char name[MANIFEST_FILE_NAME];
	int64_t size;
	char etag[S3_ETAG];
};

struct known {
	char *path; /* NULL: unused */
	struct s3_place place;
	bool published; /* a pointer leads there, so its files do not change */
	struct known_file *files;
	size_t n, cap;
	uint64_t used; /* the one that was used longest ago makes room */
};

enum { KNOWN = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known table[KNOWN];
static uint64_t uses;
static struct s3_client *client;

int ckpt_s3_client(struct s3_client **out, struct err *e)
{
	pthread_mutex_lock(&lock);
	int rc = client ? 0 : s3_client_open(&client, e);
	*out = client;
	pthread_mutex_unlock(&lock);
	return rc;
}

bool ckpt_s3_split(const char *path, char *parent, size_t n, const char **name)
{
	const char *slash = strrchr(path, '/');
	if (!slash || slash - path < (int)sizeof "s3://" || (size_t)(slash - path) >= n)
		return false;
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	*name = slash + 1;
	return true;
}

static bool is_attempt(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && !strncmp(slash + 1, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX));
}

int ckpt_s3_pointer(struct s3_client *c, const char *path, struct ckpt_pointer *out,
		    char etag[S3_ETAG], struct err *e)
{
	struct s3_place at;
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	if (s3_place_parse(path, &at, e))
		return -1;
	if (!at.key[0])
		return 0;
	int rc = s3_get(c, &at, CKPT_POINTER_MOST, &text, etag, &why);
	if (!rc)
		rc = ckpt_pointer_parse(buf_str(&text), text.len, out);
	else if (why.code == ERR_CORRUPT || why.code == ERR_NOTFOUND)
		rc = 0;
	else
		rc = err_set(e, why.code, "%s", why.text);
	buf_fini(&text);
	return rc;
}

static void fini_known(struct known *k)
{
	free(k->path);
	free(k->files);
	*k = (struct known){ 0 };
}

static int keep_file(void *arg, const struct s3_listed *o, struct err *e)
{
	struct known *k = arg;
	const char *slash = strrchr(o->key, '/'), *name = slash ? slash + 1 : o->key;
	if (o->folder || strlen(name) >= MANIFEST_FILE_NAME)
		return 0;
	if (k->n == k->cap) {
		size_t cap = k->cap ? 2 * k->cap : 16;
		struct known_file *more = realloc(k->files, cap * sizeof *more);
		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for a list of %zu files", cap);
		k->files = more;
		k->cap = cap;
	}
	struct known_file *f = &k->files[k->n++];
	strcpy(f->name, name);
	strcpy(f->etag, o->etag);
	f->size = o->size;
	return 0;
}

static int compare_files(const void *a, const void *b)
{
	return strcmp(((const struct known_file *)a)->name, ((const struct known_file *)b)->name);
}

/* Where the entry's files lie, by its pointer if it has one. */
static int find_place(struct s3_client *c, const char *path, struct known *k, struct err *e)
{
	char parent[PATH_MAX], target[PATH_MAX];
	const char *name;
	struct ckpt_pointer p;
	int found = is_attempt(path) || !ckpt_s3_split(path, parent, sizeof parent, &name)
			    ? 0
			    : ckpt_s3_pointer(c, path, &p, NULL, e);
	if (found < 0)
		return -1;
	k->published = found;
	if (!found)
		return s3_place_parse(path, &k->place, e);
	return ckpt_storage_join(target, sizeof target, parent, p.attempt, e) ||
			       s3_place_parse(target, &k->place, e)
		       ? -1
		       : 0;
}

static int look(struct s3_client *c, const char *path, struct known *out, struct err *e)
{
	struct known k = { .path = strdup(path) };
	if (!k.path)
		return err_set(e, ERR_NOMEM, "%s: no memory to look at it", path);
	if (find_place(c, path, &k, e) || s3_list(c, &k.place, false, 0, keep_file, &k, e)) {
		fini_known(&k);
		return -1;
	}
	if (k.n)
		qsort(k.files, k.n, sizeof *k.files, compare_files);
	*out = k;
	return 0;
}

/* Under the lock. NULL: nothing is known of it. */
static struct known *find_known(const char *path)
{
	for (int i = 0; i < KNOWN; i++)
		if (table[i].path && !strcmp(table[i].path, path))
			return &table[i];
	return NULL;
}

static void keep_known(struct known *k)
{
	struct known *at = find_known(k->path);
	for (int i = 0; !at && i < KNOWN; i++)
		if (!table[i].path)
			at = &table[i];
	if (!at)
		at = &table[0];
	for (int i = 0; i < KNOWN && at->path && strcmp(at->path, k->path); i++)
		if (table[i].used < at->used)
			at = &table[i];
	fini_known(at);
	k->used = ++uses;
	*at = *k;
}

void ckpt_s3_entry_forget(const char *path)
{
	pthread_mutex_lock(&lock);
	struct known *k = find_known(path);
	if (k)
		fini_known(k);
	pthread_mutex_unlock(&lock);
}

/* 1: found; 0: there is no such file; under the lock. */
static int find_file(const struct known *k, const char *name, struct s3_place *place,
		     struct s3_object *out)
{
	struct known_file want;
	if (strlen(name) >= sizeof want.name)
		return 0;
	strcpy(want.name, name);
	const struct known_file *f =
		k->n ? bsearch(&want, k->files, k->n, sizeof want, compare_files) : NULL;
	if (!f)
		return 0;
	*place = k->place;
	size_t len = strlen(place->key);
	if (snprintf(place->key + len, sizeof place->key - len, "%s%s", len ? "/" : "", name) >=
	    (int)(sizeof place->key - len))
		return 0;
	*out = (struct s3_object){ .size = f->size };
	strcpy(out->etag, f->etag);
	return 1;
}

int ckpt_s3_entry_file(struct s3_client *c, const char *path, struct s3_place *place,
		       struct s3_object *out, struct err *e)
{
	char entry[PATH_MAX];
	const char *name;
	struct known k;
	if (!ckpt_s3_split(path, entry, sizeof entry, &name))
		return err_set(e, ERR_NOTFOUND, "%s: there is no such object", path);
	if (strcmp(name, MANIFEST_NAME)) {
		pthread_mutex_lock(&lock);
		struct known *kept = find_known(entry);
		int found = kept ? find_file(kept, name, place, out) : 0;
		if (found)
			kept->used = ++uses;
		pthread_mutex_unlock(&lock);
		if (found)
			return 0;
	}
	if (look(c, entry, &k, e))
		return -1;
	int found = find_file(&k, name, place, out);
	if (k.published) {
		pthread_mutex_lock(&lock);
		keep_known(&k);
		pthread_mutex_unlock(&lock);
	} else {
		fini_known(&k);
	}
	return found ? 0 : err_set(e, ERR_NOTFOUND, "%s: there is no such object", path);
}

int ckpt_s3_entry_place(struct s3_client *c, const char *path, struct s3_place *out, struct err *e)
{
	struct known k = { 0 };
	if (find_place(c, path, &k, e))
		return -1;
	*out = k.place;
	return 0;
}
