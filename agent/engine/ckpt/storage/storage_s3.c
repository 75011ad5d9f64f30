/*
 * The storage of object stores, s3://bucket/prefix. There are no folders and no renames: an entry's
 * name is a pointer to the attempt that holds its files (s3_entry.h), and `commit` writes the
 * pointer, on the condition that no other writer was faster.
 */
#include "agent/engine/ckpt/storage/storage.h"

#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/storage/s3_entry.h"
#include "agent/engine/ckpt/storage/s3_active.h"
#include "base/clock.h"
#include "base/s3/download.h"
#include "base/s3/upload.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct s3_file {
	struct ckpt_file file;
	struct s3_download *in; /* of a file that is read */
	struct s3_upload *out;  /* of one that is written */
};

/* Uploads of attempts that were begun this long ago and never completed belong to dead writers. */
static const double orphan_s = 86400;

static int client_and_place(const char *path, struct s3_client **c, struct s3_place *at,
			    struct err *e)
{
	return ckpt_s3_client(c, e) || s3_place_parse(path, at, e) ? -1 : 0;
}

/* An error of the object becomes one of the path that the caller knows. */
static int fail_at(const char *path, const struct err *why, struct err *e)
{
	return strncmp(why->text, path, strlen(path))
		       ? err_set(e, why->code, "%s: %s", path, why->text)
		       : err_set(e, why->code, "%s", why->text);
}

/* --- reading ------------------------------------------------------------------- */

static int s3_size(const struct ckpt_storage *s, const char *path, int64_t *size, struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	struct s3_object o;
	(void)s;
	if (ckpt_s3_client(&c, e) || ckpt_s3_entry_file(c, path, &at, &o, e))
		return -1;
	*size = o.size;
	return 0;
}

static int s3_open(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		   struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	struct s3_object o;
	if (ckpt_s3_client(&c, e) || ckpt_s3_entry_file(c, path, &at, &o, e))
		return -1;
	struct s3_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
	f->file = (struct ckpt_file){ s, o.size };
	if (s3_download_open(c, &at, o.size, o.etag, &f->in, e)) {
		free(f);
		return -1;
	}
	*out = &f->file;
	return 0;
}

static int s3_read(struct ckpt_file *file, int64_t at, void *data, size_t n, struct err *e)
{
	struct s3_file *f = (struct s3_file *)file;
	ckpt_s3_active_set(f->in);
	return s3_download_read(f->in, at, data, n, e);
}

/* --- writing ------------------------------------------------------------------- */

struct orphans {
	struct s3_client *client;
	const struct s3_place *at;
	double before; /* those that were begun earlier; 0: all */
};

static int abort_orphan(void *arg, const struct s3_unfinished *u, struct err *e)
{
	struct orphans *o = arg;
	struct s3_place at;
	bool due = o->before <= 0 || (u->begun > 0 && u->begun < o->before);
	if (!due || strlen(u->key) >= sizeof at.key)
		return 0;
	at = *o->at;
	strcpy(at.key, u->key);
	return s3_abort_upload(o->client, &at, u->id, e);
}

/* Aborts unfinished uploads whose keys begin with the place's. A store that cannot list them has
 * none, or a rule of its own that removes them. */
static int abort_orphans(struct s3_client *c, const struct s3_place *at, double before,
			 struct err *e)
{
	struct orphans o = { c, at, before };
	struct err why = ERR_INIT;
	if (!s3_list_unfinished(c, at, abort_orphan, &o, &why) || why.code == ERR_UNSUPPORTED ||
	    why.code == ERR_DENIED)
		return 0;
	return err_set(e, why.code, "%s", why.text);
}

/* Writes and removes a small object, so that a store that refuses writes is found now. */
static int s3_prepare(const struct ckpt_storage *s, const char *dir, struct err *e)
{
	struct s3_client *c;
	struct s3_place at, probe;
	uint64_t nonce = 0;
	char path[PATH_MAX], name[64];
	struct err why = ERR_INIT;
	(void)s;
	if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
		return err_errno(e, ERR_IO, "%s: cannot draw a random number", dir);
	snprintf(name, sizeof name, ".probe-%016" PRIx64, nonce);
	if (client_and_place(dir, &c, &at, e) ||
	    ckpt_storage_join(path, sizeof path, dir, name, e) || s3_place_parse(path, &probe, e))
		return -1;
	if (s3_put(c, &probe, name, strlen(name), S3_ALWAYS, NULL, &why) ||
	    s3_delete(c, &probe, &why))
		return err_set(e, why.code, "%s: checkpoints cannot be written here: %s", dir,
			       why.text);
	if (ckpt_storage_join(path, sizeof path, dir, ATTEMPT_PREFIX, e) ||
	    s3_place_parse(path, &at, e))
		return -1;
	abort_orphans(c, &at, clock_wall_s() - orphan_s, NULL);
	return 0;
}

static int count_one(void *arg, const struct s3_listed *o, struct err *e)
{
	(void)o, (void)e;
	++*(int *)arg;
	return 0;
}

static int s3_begin(const struct ckpt_storage *s, const char *attempt, bool create, struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	int n = 0;
	(void)s;
	if (!create)
		return 0;
	if (client_and_place(attempt, &c, &at, e) || s3_list(c, &at, true, 1, count_one, &n, e))
		return -1;
	return n ? err_set(e, ERR_IO, "%s: exists already", attempt) : 0;
}

static int s3_create(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		     struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	struct s3_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to create it", path);
	f->file = (struct ckpt_file){ s, 0 };
	if (client_and_place(path, &c, &at, e) || s3_upload_open(c, &at, &f->out, e)) {
		free(f);
		return -1;
	}
	*out = &f->file;
	return 0;
}

static int s3_write(struct ckpt_file *file, const void *data, size_t n, struct err *e)
{
	return s3_upload_write(((struct s3_file *)file)->out, data, n, e);
}

static int s3_finish(struct ckpt_file *file, struct err *e)
{
	struct s3_file *f = (struct s3_file *)file;
	int rc = s3_upload_finish(f->out, e);
	free(f);
	return rc;
}

static void s3_close(struct ckpt_file *file)
{
	struct s3_file *f = (struct s3_file *)file;
	if (f->in) {
		ckpt_s3_active_drop(f->in);
		s3_download_close(f->in);
	} else {
		s3_upload_cut(f->out);
	}
	free(f);
}

static int s3_discard(const struct ckpt_storage *s, const char *path, struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	(void)s;
	return client_and_place(path, &c, &at, e) ? -1 : s3_delete(c, &at, e);
}

/* --- entries ------------------------------------------------------------------- */

/* Another writer has published a checkpoint of this name meanwhile. */
static int fail_conflict(struct s3_client *c, const char *path, struct err *e)
{
	struct ckpt_pointer p;
	if (ckpt_s3_pointer(c, path, &p, NULL, NULL) == 1)
		return err_set(e, ERR_STALE,
			       "%s: another writer, %s, published %s under this name at the same "
			       "time; end one of the two",
			       path, p.writer, p.attempt);
	return err_set(e, ERR_STALE,
		       "%s: another writer changed it at the same time; end one of the two", path);
}

/* Removes what lies below the place, its manifest first. */
static int remove_below(struct s3_client *c, const struct s3_place *at, struct err *e)
{
	struct s3_place manifest = *at, uploads = *at;
	size_t n = strlen(at->key);
	snprintf(manifest.key + n, sizeof manifest.key - n, "/" MANIFEST_NAME);
	snprintf(uploads.key + n, sizeof uploads.key - n, "/");
	return s3_delete(c, &manifest, e) || s3_delete_below(c, at, e) ||
			       abort_orphans(c, &uploads, 0, e)
		       ? -1
		       : 0;
}

static int remove_target(struct s3_client *c, const char *path, const struct ckpt_pointer *p,
			 struct err *e)
{
	char dir[PATH_MAX], attempt[PATH_MAX];
	const char *name;
	struct s3_place at;
	if (!ckpt_s3_split(path, dir, sizeof dir, &name) ||
	    ckpt_storage_join(attempt, sizeof attempt, dir, p->attempt, e) ||
	    s3_place_parse(attempt, &at, e))
		return -1;
	return remove_below(c, &at, e);
}

/* Writes the pointer in place of the object of that etag, an older pointer or a damaged one, or
 * where there is none (""). */
static int publish(struct s3_client *c, const char *path, const struct s3_place *at,
		   const struct buf *text, const char *etag, struct err *e)
{
	struct err why = ERR_INIT;
	int rc = s3_put(c, at, text->data, text->len, etag[0] ? S3_IF_SAME : S3_IF_NONE, etag,
			&why);
	if (rc && why.code == ERR_UNSUPPORTED) /* a store without conditions */
		rc = s3_put(c, at, text->data, text->len, S3_ALWAYS, NULL, &why);
	if (rc && why.code == ERR_STALE)
		return fail_conflict(c, path, e);
	return rc ? fail_at(path, &why, e) : 0;
}

static int s3_commit(const struct ckpt_storage *s, const char *attempt, const char *path,
		     const char *aside, const void *manifest, size_t n, struct err *e)
{
	char file[PATH_MAX], etag[S3_ETAG] = "";
	struct s3_client *c;
	struct s3_place at;
	struct ckpt_pointer old;
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	(void)s, (void)aside;
	if (ckpt_storage_join(file, sizeof file, attempt, MANIFEST_NAME, e) ||
	    client_and_place(file, &c, &at, e))
		return -1;
	int before = ckpt_s3_pointer(c, path, &old, etag, e);
	if (before < 0)
		return -1;
	bool mine = before && !strcmp(old.attempt, strrchr(attempt, '/') + 1);
	int put = s3_put(c, &at, manifest, n, S3_IF_NONE, NULL, &why);
	/* Left damaged by a copy that died, or failed, and is continued (copy.h): nobody reads it. */
	if (put && why.code == ERR_STALE && !mine)
		put = s3_put(c, &at, manifest, n, S3_ALWAYS, NULL, &why);
	if (put)
		return fail_at(file, &why, e);
	if (s3_place_parse(path, &at, e))
		return -1;
	int rc = mine ? 0
		      : ckpt_pointer_write(strrchr(attempt, '/') + 1, &text, e) ||
				 publish(c, path, &at, &text, etag, e);
	buf_fini(&text);
	ckpt_s3_entry_forget(path);
	if (!rc && before && !mine) /* what remains is an attempt that no pointer names */
		remove_target(c, path, &old, NULL);
	return rc ? -1 : 0;
}

static int s3_put_file(const struct ckpt_storage *s, const char *path, const void *data, size_t n,
		       struct err *e)
{
	char entry[PATH_MAX];
	const char *name;
	struct s3_client *c;
	struct s3_place at;
	(void)s;
	if (!ckpt_s3_split(path, entry, sizeof entry, &name))
		return err_set(e, ERR_USAGE, "%s: this names a bucket, not a file", path);
	if (ckpt_s3_client(&c, e) || ckpt_s3_entry_place(c, entry, &at, e))
		return -1;
	size_t len = strlen(at.key);
	if (snprintf(at.key + len, sizeof at.key - len, "%s%s", len ? "/" : "", name) >=
	    (int)(sizeof at.key - len))
		return err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
	int rc = s3_put(c, &at, data, n, S3_ALWAYS, NULL, e);
	ckpt_s3_entry_forget(entry);
	return rc;
}

struct references {
	struct s3_client *client;
	const char *dir;
	const struct ckpt_pointer *to;
	int n;
};

static int count_reference(void *arg, const struct s3_listed *o, struct err *e)
{
	struct references *r = arg;
	struct ckpt_pointer p;
	char path[PATH_MAX];
	const char *slash = strrchr(o->key, '/');
	if (o->folder || o->size > CKPT_POINTER_MOST)
		return 0;
	if (ckpt_storage_join(path, sizeof path, r->dir, slash ? slash + 1 : o->key, e))
		return -1;
	int is = ckpt_s3_pointer(r->client, path, &p, NULL, e);
	r->n += is == 1 && !strcmp(p.attempt, r->to->attempt);
	return is < 0 ? -1 : 0;
}

/* Removes a checkpoint's pointer, and its files unless an interrupted rename left another pointer
 * to them. */
static int remove_pointer(struct s3_client *c, const char *path, const struct s3_place *at,
			  const struct ckpt_pointer *p, struct err *e)
{
	char dir[PATH_MAX];
	const char *name;
	struct s3_place parent;
	struct references r = { c, dir, p, 0 };
	if (s3_delete(c, at, e) || !ckpt_s3_split(path, dir, sizeof dir, &name) ||
	    s3_place_parse(dir, &parent, e) ||
	    s3_list(c, &parent, false, 0, count_reference, &r, e))
		return -1;
	return r.n ? 0 : remove_target(c, path, p, e);
}

static int s3_remove(const struct ckpt_storage *s, const char *path, struct err *e)
{
	struct s3_client *c;
	struct s3_place at;
	struct ckpt_pointer p;
	(void)s;
	if (client_and_place(path, &c, &at, e))
		return -1;
	if (!at.key[0])
		return err_set(e, ERR_USAGE, "%s: a bucket is not removed", path);
	const char *name = strrchr(path, '/') + 1;
	bool attempt = !strncmp(name, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX));
	int found = attempt ? 0 : ckpt_s3_pointer(c, path, &p, NULL, e);
	ckpt_s3_entry_forget(path);
	if (found < 0)
		return -1;
	return found ? remove_pointer(c, path, &at, &p, e) : remove_below(c, &at, e);
}

static int s3_rename(const struct ckpt_storage *s, const char *path, const char *to, struct err *e)
{
	struct s3_client *c;
	struct s3_place from, at;
	struct ckpt_pointer p;
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	(void)s;
	if (client_and_place(path, &c, &from, e) || s3_place_parse(to, &at, e))
		return -1;
	int found = ckpt_s3_pointer(c, path, &p, NULL, e);
	if (found == 0)
		return err_set(e, ERR_NOTFOUND,
			       "%s: there is no such checkpoint that can be renamed", path);
	if (found < 0 || s3_get(c, &from, CKPT_POINTER_MOST, &text, NULL, e))
		return -1;
	int rc = s3_put(c, &at, text.data, text.len, S3_IF_NONE, NULL, &why);
	buf_fini(&text);
	ckpt_s3_entry_forget(path);
	ckpt_s3_entry_forget(to);
	if (rc)
		return why.code == ERR_STALE ? 1 : fail_at(path, &why, e);
	return s3_delete(c, &from, e);
}

static const struct ckpt_storage_ops s3_ops = {
	.name = "s3",
	.scheme = "s3://",
	.list = ckpt_s3_list,
	.size = s3_size,
	.open = s3_open,
	.read = s3_read,
	.prepare = s3_prepare,
	.begin = s3_begin,
	.create = s3_create,
	.write = s3_write,
	.finish = s3_finish,
	.close = s3_close,
	.discard = s3_discard,
	.commit = s3_commit,
	.put = s3_put_file,
	.remove = s3_remove,
	.rename = s3_rename,
};

const struct ckpt_storage ckpt_storage_s3 = { &s3_ops, NULL };
