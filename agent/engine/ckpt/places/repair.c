#include "agent/engine/ckpt/places/repair.h"

#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/format/header.h"
#include "agent/engine/ckpt/places/hold.h"
#include "agent/engine/ckpt/load/read.h"
#include "agent/engine/ckpt/format/state_digest.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name that muster does not take for a checkpoint. */
#define DAMAGED "damaged-"

struct repair {
	const char *bad, *good;
	const struct ckpt_storage *at, *from; /* their storages */
	struct buf text;                      /* the manifest of both, byte for byte */
	struct manifest m, other;             /* bad's, good's */
	struct ckpt_reader *reader;           /* of good */
	struct slice_index index;             /* of m */
	bool *slice_bad, *header_bad;         /* by place in the index, by file */
	bool attached_bad[MANIFEST_ATTACHED_MAX];
	void *slice; /* memory for the largest slice */
	struct ckpt_hold hold;
	char dir[PATH_MAX]; /* of bad */
	struct attempt attempt;
	struct ckpt_repair result;
};

/* --- what is damaged --- */

/* Returns NULL if the file does not exist or cannot be opened. */
static struct ckpt_file *open_bad(const struct repair *r, int64_t file)
{
	char path[PATH_MAX];
	struct ckpt_file *f;
	if (ckpt_storage_join(path, sizeof path, r->bad, r->m.files[file].name, NULL) ||
	    r->at->ops->open(r->at, path, &f, NULL))
		return NULL;
	return f;
}

/* Whether n bytes of the file can be read and have this digest. */
static bool read_good(struct ckpt_file *f, int64_t at, void *to, int64_t n,
		      const struct digest *want)
{
	if (!f || at + n > f->size || f->storage->ops->read(f, at, to, (size_t)n, NULL))
		return false;
	struct digest d = ckpt_digest_of(to, (size_t)n);
	return ckpt_digest_equal(&d, want);
}

/* The bytes of the file's header from `f`. false: they are damaged, or there is no memory. */
static bool read_header(struct ckpt_file *f, const struct manifest_file *want, struct buf *out)
{
	char *to = buf_room(out, (size_t)want->header + 1);
	if (!to || !read_good(f, 0, to, want->header, &want->digest))
		return false;
	out->len += (size_t)want->header;
	return true;
}

static void look_at_file(struct repair *r, int64_t file)
{
	const struct manifest_file *want = &r->m.files[file];
	struct ckpt_file *f = open_bad(r, file);
	struct buf header = BUF_INIT;
	r->header_bad[file] = !read_header(f, want, &header) || f->size != want->size;
	r->result.headers += r->header_bad[file];
	for (int64_t i = r->index.first[file]; i < r->index.first[file + 1]; i++) {
		const struct manifest_slice *s = r->index.entries[i].slice;
		r->slice_bad[i] = !read_good(f, want->header + s->offset, r->slice,
					     ckpt_slice_bytes(s), &s->digest);
		r->result.fetched += r->slice_bad[i];
		r->result.slices++;
	}
	if (f)
		r->at->ops->close(f);
	buf_fini(&header);
}

/* Reads an attached file of a checkpoint. false: it is not what the manifest says. */
static bool read_attached(const struct ckpt_storage *s, const char *entry,
			  const struct manifest_attached *want, struct buf *out)
{
	char path[PATH_MAX];
	if (ckpt_storage_join(path, sizeof path, entry, want->name, NULL) ||
	    ckpt_storage_read_whole(s, path, MANIFEST_ATTACHED_BYTES, out, NULL))
		return false;
	struct digest d = ckpt_digest_of(out->data, out->len);
	return (int64_t)out->len == want->size && ckpt_digest_equal(&d, &want->digest);
}

static int count_stranger(void *arg, const char *name, struct err *e)
{
	struct repair *r = arg;
	(void)e;
	r->result.strangers += strcmp(name, MANIFEST_NAME) && !ckpt_manifest_has_file(&r->m, name);
	return 0;
}

static int look_at_all(struct repair *r, struct err *e)
{
	if (r->at->ops->list(r->at, r->bad, count_stranger, r, e))
		return -1;
	for (int64_t f = 0; f < r->m.n_files; f++)
		look_at_file(r, f);
	for (int i = 0; i < r->m.n_attached; i++) {
		struct buf data = BUF_INIT;
		r->attached_bad[i] = !read_attached(r->at, r->bad, &r->m.attached[i], &data);
		r->result.attached += r->attached_bad[i];
		buf_fini(&data);
	}
	r->result.whole = !r->result.fetched && !r->result.headers && !r->result.attached &&
			  !r->result.strangers;
	return 0;
}

/* --- what replaces it --- */

/* Fills r->slice from the good checkpoint. */
static int fetch_slice(struct repair *r, const struct slice_entry *p, struct err *e)
{
	const struct manifest_slice *s = p->slice;
	const struct manifest_tensor *t = ckpt_manifest_find(&r->other, p->tensor->name);
	struct ckpt_tensor box = { .dims = p->tensor->dims,
				   .shape = { p->tensor->shape[0], p->tensor->shape[1] },
				   .lo = { s->lo[0], s->lo[1] },
				   .hi = { s->hi[0], s->hi[1] },
				   .data = r->slice };
	if (!t || t->dims != box.dims || memcmp(t->shape, p->tensor->shape, sizeof t->shape))
		return err_set(e, ERR_USAGE,
			       "%s: has no tensor %s of this shape, which is damaged in %s; name "
			       "another copy of the checkpoint",
			       r->good, p->tensor->name, r->bad);
	for (int64_t i = 0; i < t->n; i++)
		if (ckpt_boxes_touch(t->dims, &t->slices[i], &box) &&
		    ckpt_reader_slice(r->reader, t, &t->slices[i], &box, 1, e))
			return -1;
	struct digest d = ckpt_digest_of(r->slice, (size_t)ckpt_slice_bytes(s));
	if (ckpt_digest_equal(&d, &s->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s: tensor %s: the elements there are not those that %s lacks; it is "
		       "another state: name another copy",
		       r->good, t->name, r->bad);
}

/* The header of a file from a file of the good checkpoint that has the same one. */
static bool fetch_header(const struct repair *r, const struct manifest_file *want, struct buf *out)
{
	char path[PATH_MAX];
	bool found = false;
	for (int64_t i = 0; i < r->other.n_files && !found; i++) {
		const struct manifest_file *have = &r->other.files[i];
		struct ckpt_file *f;
		if (have->header != want->header ||
		    !ckpt_digest_equal(&have->digest, &want->digest) ||
		    ckpt_storage_join(path, sizeof path, r->good, have->name, NULL) ||
		    r->from->ops->open(r->from, path, &f, NULL))
			continue;
		found = read_header(f, want, out);
		r->from->ops->close(f);
	}
	return found;
}

/* The header from the damaged file, from the good checkpoint, or made again. */
static int get_header(const struct repair *r, int64_t file, struct ckpt_file *f, struct buf *out,
		      struct err *e)
{
	const struct manifest_file *want = &r->m.files[file];
	if (read_header(f, want, out) || fetch_header(r, want, out))
		return 0;
	return ckpt_header_rebuild(&r->m, file, &r->index, out, e);
}

/* --- the new attempt --- */

static int write_slices(struct repair *r, int64_t file, struct ckpt_file *from,
			struct ckpt_file *to, struct err *e)
{
	int64_t header = r->m.files[file].header;
	for (int64_t i = r->index.first[file]; i < r->index.first[file + 1]; i++) {
		const struct slice_entry *p = &r->index.entries[i];
		int64_t n = ckpt_slice_bytes(p->slice);
		if ((r->slice_bad[i] ||
		     !read_good(from, header + p->slice->offset, r->slice, n, &p->slice->digest)) &&
		    fetch_slice(r, p, e))
			return -1;
		if (r->at->ops->write(to, r->slice, (size_t)n, e))
			return -1;
	}
	return 0;
}

static int write_file(struct repair *r, int64_t file, struct err *e)
{
	char path[PATH_MAX];
	struct buf header = BUF_INIT;
	struct ckpt_file *from = open_bad(r, file), *to;
	int rc = get_header(r, file, from, &header, e) ||
				 ckpt_storage_join(path, sizeof path, r->attempt.path,
						   r->m.files[file].name, e) ||
				 r->at->ops->create(r->at, path, &to, e)
			 ? -1
			 : 0;
	if (!rc) {
		rc = r->at->ops->write(to, header.data, header.len, e) ||
		     write_slices(r, file, from, to, e);
		if (rc)
			r->at->ops->close(to);
		else
			rc = r->at->ops->finish(to, e);
	}
	if (from)
		r->at->ops->close(from);
	buf_fini(&header);
	return rc ? -1 : 0;
}

static int write_attached(struct repair *r, int i, struct err *e)
{
	char path[PATH_MAX];
	struct buf data = BUF_INIT;
	const struct manifest_attached *want = &r->m.attached[i];
	bool good = read_attached(r->at, r->bad, want, &data);
	if (!good) {
		buf_fini(&data);
		good = read_attached(r->from, r->good, want, &data);
	}
	int rc = good ? 0
		      : err_set(e, ERR_CORRUPT,
				"%s: neither this checkpoint nor %s has the file %s as it was",
				r->bad, r->good, want->name);
	if (!rc)
		rc = ckpt_storage_join(path, sizeof path, r->attempt.path, want->name, e) ||
		     ckpt_storage_write_whole(r->at, path, data.data, data.len, e);
	buf_fini(&data);
	return rc ? -1 : 0;
}

static int write_all(struct repair *r, struct err *e)
{
	for (int64_t f = 0; f < r->m.n_files; f++)
		if (write_file(r, f, e))
			return -1;
	for (int i = 0; i < r->m.n_attached; i++)
		if (write_attached(r, i, e))
			return -1;
	return r->at->ops->sync ? r->at->ops->sync(r->at, r->attempt.path, e) : 0;
}

/* Gives bad another name if it has that of the result, because a commit may remove what it replaces.
 * Files that another program copied to an object store cannot be renamed, but stay where they are. */
static int move_bad(struct repair *r, char kept[PATH_MAX], struct err *e)
{
	struct err why = ERR_INIT;
	snprintf(kept, PATH_MAX, "%s", r->bad);
	if (strcmp(r->bad, r->result.path))
		return 0;
	if (snprintf(kept, PATH_MAX, "%s/" DAMAGED "step-%08" PRId64 ".%016" PRIx64, r->dir,
		     r->result.step, r->attempt.nonce) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%s: the path is too long", r->bad);
	int taken = r->at->ops->rename(r->at, r->bad, kept, &why);
	if (!taken)
		return 0;
	snprintf(kept, PATH_MAX, "%s", r->bad);
	return taken < 0 && why.code == ERR_NOTFOUND
		       ? 0
		       : err_set(e, why.code ? why.code : ERR_IO, "%s",
				 why.code ? why.text : "the name of the damaged one is taken");
}

/* Publishes the attempt as step-N. */
static int publish(struct repair *r, struct err *e)
{
	char aside[PATH_MAX], kept[PATH_MAX];
	snprintf(aside, sizeof aside, "%s.%016" PRIx64, r->result.path, r->attempt.nonce);
	if (ckpt_folder_check_sizes(r->at, r->attempt.path, &r->m, e) || move_bad(r, kept, e))
		return -1;
	if (r->at->ops->commit(r->at, r->attempt.path, r->result.path, aside, r->text.data,
			       r->text.len, e)) {
		if (strcmp(kept, r->bad))
			r->at->ops->rename(r->at, kept, r->bad, NULL);
		return -1;
	}
	snprintf(r->result.kept, sizeof r->result.kept, "%.1023s", kept);
	return 0;
}

/* --- the two checkpoints --- */

static int read_bad(struct repair *r, struct err *e)
{
	char path[PATH_MAX];
	if (ckpt_storage_join(path, sizeof path, r->bad, MANIFEST_NAME, e) ||
	    ckpt_storage_read_whole(r->at, path, MANIFEST_BYTES_MAX, &r->text, e))
		return -1;
	if (ckpt_manifest_parse(r->text.data, r->text.len, path, &r->m, e) ||
	    ckpt_manifest_prove(&r->m, e))
		return err_set(e, ERR_CORRUPT,
			       "%s: is damaged, so nothing says what this checkpoint held; copy "
			       "the good one in its place: muster ckpt copy %s DIR",
			       path, r->good);
	return 0;
}

/* The two must be one state. */
static int check_states(const struct repair *r, struct err *e)
{
	struct digest a, b;
	if (r->m.state.step != r->other.state.step)
		return err_set(e, ERR_USAGE, "%s is of step %" PRId64 ", %s of step %" PRId64,
			       r->bad, r->m.state.step, r->good, r->other.state.step);
	if (ckpt_manifest_check_model(&r->other, r->m.model, e))
		return err_prefix(e, "%s", r->good);
	int have = ckpt_state_digest(&r->m, &a, e), has = ckpt_state_digest(&r->other, &b, e);
	if (have < 0 || has < 0)
		return -1;
	if (have && has && !ckpt_digest_equal(&a, &b))
		return err_set(e, ERR_USAGE,
			       "%s: its state digest is not that of %s: it is another state of the "
			       "same step",
			       r->good, r->bad);
	return 0;
}

static int reserve(struct repair *r, struct err *e)
{
	int64_t most = 1, n = 0;
	for (int64_t i = 0; i < r->m.n_tensors; i++)
		for (int64_t j = 0; j < r->m.tensors[i].n; j++, n++) {
			int64_t bytes = ckpt_slice_bytes(&r->m.tensors[i].slices[j]);
			most = bytes > most ? bytes : most;
		}
	r->slice = malloc((size_t)most);
	r->slice_bad = calloc((size_t)n + 1, sizeof *r->slice_bad);
	r->header_bad = calloc((size_t)r->m.n_files + 1, sizeof *r->header_bad);
	if (!r->slice || !r->slice_bad || !r->header_bad)
		return err_set(e, ERR_NOMEM, "%s: no memory for a slice of %" PRId64 " bytes",
			       r->bad, most);
	return ckpt_slice_index_build(&r->m, &r->index, e);
}

/* Sets the DIR, and the path of the repaired checkpoint, which no valid one may have. */
static int set_paths(struct repair *r, struct err *e)
{
	struct manifest there;
	const char *slash = strrchr(r->bad, '/');
	struct folder_entry entry = { .step = r->m.state.step };
	snprintf(r->dir, sizeof r->dir, "%.*s", slash ? (int)(slash - r->bad) : 1,
		 slash ? r->bad : ".");
	snprintf(entry.name, sizeof entry.name, "step-%08" PRId64, entry.step);
	r->result.step = entry.step;
	if (ckpt_storage_join(r->result.path, sizeof r->result.path, r->dir, entry.name, e))
		return -1;
	if (!strcmp(r->result.path, r->bad) ||
	    ckpt_folder_check(r->at, r->dir, &entry, &there, NULL))
		return 0;
	ckpt_manifest_fini(&there);
	return err_set(e, ERR_USAGE, "%s: already exists and is valid, so %s needs no repair",
		       r->result.path, r->bad);
}

static int repair(struct repair *r, bool only_look, struct err *e)
{
	if (read_bad(r, e) || ckpt_manifest_load(r->good, &r->other, e) || check_states(r, e) ||
	    set_paths(r, e) || reserve(r, e) ||
	    ckpt_reader_open(r->good, &r->other, NULL, &r->reader, e))
		return -1;
	ckpt_hold_take(&r->hold, r->bad, CKPT_HOLD_READ);
	if (look_at_all(r, e))
		return -1;
	if (r->result.whole)
		snprintf(r->result.path, sizeof r->result.path, "%.1023s", r->bad);
	if (r->result.whole || only_look)
		return 0;
	if (ckpt_attempt_make(r->at, r->dir, r->m.state.step, r->m.generation, &r->attempt, e))
		return -1;
	if (!write_all(r, e) && !publish(r, e))
		return 0;
	r->at->ops->remove(r->at, r->attempt.path, NULL);
	return -1;
}

int ckpt_repair(const char *bad, const char *good, bool only_look, struct ckpt_repair *out,
		struct err *e)
{
	struct repair *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to repair it", bad);
	r->bad = bad;
	r->good = good;
	r->at = ckpt_storage_of(bad);
	r->from = ckpt_storage_of(good);
	r->hold.fd = -1;
	int rc = repair(r, only_look, e);
	if (!rc)
		*out = r->result;
	ckpt_hold_release(&r->hold);
	ckpt_reader_close(r->reader);
	ckpt_slice_index_free(&r->index);
	ckpt_manifest_fini(&r->m);
	ckpt_manifest_fini(&r->other);
	buf_fini(&r->text);
	free(r->slice);
	free(r->slice_bad);
	free(r->header_bad);
	free(r);
	return rc;
}
