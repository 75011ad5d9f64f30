#include "agent/engine/ckpt/load/read.h"

#include "agent/engine/ckpt/format/header.h"
#include "agent/engine/ckpt/places/hold.h"
#include "agent/engine/ckpt/format/part.h"
#include "agent/engine/ckpt/storage/storage.h"
#include "base/numbers.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

struct ckpt_reader {
	const struct ckpt_storage *storage;
	const char *path;
	const struct manifest *m;
	const struct ckpt_watch *watch; /* NULL: none */
	struct ckpt_file **files;       /* NULL: not open yet */
	struct digester *digester;
	float *chunk;
	struct ckpt_hold hold;    /* until the reader is closed */
	struct slice_index index; /* built when the first file is opened */
};

int ckpt_reader_open(const char *path, const struct manifest *m, const struct ckpt_watch *watch,
		     struct ckpt_reader **out, struct err *e)
{
	struct ckpt_reader *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	*r = (struct ckpt_reader){ .storage = ckpt_storage_of(path),
				   .path = path,
				   .m = m,
				   .watch = watch,
				   .files = calloc((size_t)m->n_files + 1, sizeof *r->files),
				   .digester = ckpt_digester_open(),
				   .chunk = malloc(CHUNK),
				   .hold = { -1 } };
	if (!r->files || !r->digester || !r->chunk) {
		ckpt_reader_close(r);
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	}
	if (!ckpt_hold_take(&r->hold, path, CKPT_HOLD_READ)) {
		ckpt_reader_close(r);
		return err_set(
			e, ERR_NOTFOUND,
			"%s: is being removed by `muster ckpt prune`; use a later checkpoint",
			path);
	}
	*out = r;
	return 0;
}

void ckpt_reader_close(struct ckpt_reader *r)
{
	if (!r)
		return;
	for (int64_t i = 0; r->files && i < r->m->n_files; i++)
		if (r->files[i])
			r->storage->ops->close(r->files[i]);
	free(r->files);
	ckpt_hold_release(&r->hold);
	ckpt_digester_close(r->digester);
	ckpt_slice_index_free(&r->index);
	free(r->chunk);
	free(r);
}

static int open_shard(struct ckpt_reader *r, const char *path, struct ckpt_file **out,
		      struct err *e)
{
	struct err why = ERR_INIT;
	if (!r->storage->ops->open(r->storage, path, out, &why))
		return 0;
	if (why.code == ERR_NOTFOUND)
		return err_set(e, ERR_CORRUPT,
			       "%s: a shard of the checkpoint cannot be opened: it does not exist; "
			       "use an earlier checkpoint",
			       path);
	return err_set(e, why.code, "a shard of the checkpoint: %s", why.text);
}

static int check_shard(struct ckpt_reader *r, int64_t file, bool header, const char *path,
		       struct ckpt_file *f, struct err *e)
{
	int64_t size = r->m->files[file].size;
	if (f->size != size)
		return err_set(e, ERR_CORRUPT,
			       "%s: has %" PRId64 " bytes, but the manifest says %" PRId64
			       ": the file was truncated or replaced; use an earlier checkpoint",
			       path, f->size, size);
	if (!header)
		return 0;
	if (!r->index.entries && ckpt_slice_index_build(r->m, &r->index, e))
		return -1;
	return ckpt_header_check(r->path, r->m, file, f, &r->index, e);
}

int ckpt_reader_file(struct ckpt_reader *r, int64_t file, bool header, struct err *e)
{
	char path[PATH_MAX];
	struct ckpt_file *f;
	if (r->files[file])
		return 0;
	if (ckpt_storage_join(path, sizeof path, r->path, r->m->files[file].name, e) ||
	    open_shard(r, path, &f, e))
		return -1;
	if (check_shard(r, file, header, path, f, e)) {
		r->storage->ops->close(f);
		return -1;
	}
	r->files[file] = f;
	return 0;
}

bool ckpt_boxes_touch(int dims, const struct manifest_slice *s, const struct ckpt_tensor *t)
{
	for (int i = 0; i < dims; i++)
		if (s->hi[i] <= t->lo[i] || t->hi[i] <= s->lo[i])
			return false;
	return true;
}

int ckpt_reader_bytes(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, int64_t at, void *data, size_t n,
		      struct err *e)
{
	int64_t base = r->m->files[s->file].header + s->offset;
	if (r->storage->ops->read(r->files[s->file], base + at, data, n, e))
		return err_prefix(e, "tensor %s", t->name);
	if (r->watch)
		r->watch->moved(r->watch->arg);
	return 0;
}

static int read_pieces(struct ckpt_reader *r, const struct manifest_tensor *t,
		       const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		       struct ckpt_sums *sums, struct err *e)
{
	struct part from = ckpt_part_of(t->dims, s->lo, s->hi);
	int64_t bytes = ckpt_slice_bytes(s);
	ckpt_digester_start(r->digester);
	for (int64_t at = 0; at < bytes; at += CHUNK) {
		int64_t n = min_int64(CHUNK, bytes - at);
		if (ckpt_reader_bytes(r, t, s, at, r->chunk, (size_t)n, e))
			return -1;
		ckpt_digester_add(r->digester, r->chunk, (size_t)n);
		if (sums)
			ckpt_sums_add(sums, t->dims, t->shape, s->lo, s->hi,
				      at / (int64_t)sizeof(float), n / (int64_t)sizeof(float),
				      r->chunk);
		for (int i = 0; i < n_into; i++) {
			struct part to = ckpt_part_of(t->dims, into[i].lo, into[i].hi);
			ckpt_part_copy(&from, r->chunk, at / (int64_t)sizeof(float),
				       n / (int64_t)sizeof(float), &to, into[i].data, 0);
		}
	}
	return 0;
}

int ckpt_reader_differs(const struct ckpt_reader *r, const struct manifest_tensor *t,
			const struct manifest_slice *s, struct err *e)
{
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: tensor %s, rows [%" PRId64 ", %" PRId64 ") × columns [%" PRId64
		       ", %" PRId64 "): the digest differs: its bytes changed after they were "
		       "written; use an earlier checkpoint",
		       r->path, r->m->files[s->file].name, t->name, s->lo[0], s->hi[0], s->lo[1],
		       s->hi[1]);
}

static int read_slice(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct ckpt_sums *sums, struct err *e)
{
	if (ckpt_reader_file(r, s->file, true, e) || read_pieces(r, t, s, into, n_into, sums, e))
		return -1;
	struct digest d = ckpt_digester_end(r->digester);
	return ckpt_digest_equal(&d, &s->digest) ? 0 : ckpt_reader_differs(r, t, s, e);
}

int ckpt_reader_slice(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct err *e)
{
	return read_slice(r, t, s, into, n_into, NULL, e);
}

int ckpt_reader_sums(struct ckpt_reader *r, const struct manifest_tensor *t,
		     const struct manifest_slice *s, struct ckpt_sums *sums, struct err *e)
{
	int64_t first, last;
	ckpt_blocks_touched(t->dims, t->shape, s->lo, s->hi, &first, &last);
	return ckpt_sums_reserve(sums, first, last, e) || read_slice(r, t, s, NULL, 0, sums, e) ? -1
												: 0;
}
