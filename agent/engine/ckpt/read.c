#include "agent/engine/ckpt/read.h"

#include "agent/engine/ckpt/header.h"
#include "agent/engine/ckpt/hold.h"
#include "agent/engine/ckpt/storage.h"
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

static int check_shard(struct ckpt_reader *r, int64_t file, const char *path, struct ckpt_file *f,
		       struct err *e)
{
	int64_t size = r->m->files[file].size;
	if (f->size != size)
		return err_set(e, ERR_CORRUPT,
			       "%s: has %" PRId64 " bytes, but the manifest says %" PRId64
			       ": the file was truncated or replaced; use an earlier checkpoint",
			       path, f->size, size);
	if (!r->index.entries && ckpt_slice_index_build(r->m, &r->index, e))
		return -1;
	return ckpt_header_check(r->path, r->m, file, f, &r->index, e);
}

int ckpt_reader_file(struct ckpt_reader *r, int64_t file, struct err *e)
{
	char path[PATH_MAX];
	struct ckpt_file *f;
	if (r->files[file])
		return 0;
	if (ckpt_storage_join(path, sizeof path, r->path, r->m->files[file].name, e) ||
	    open_shard(r, path, &f, e))
		return -1;
	if (check_shard(r, file, path, f, e)) {
		r->storage->ops->close(f);
		return -1;
	}
	r->files[file] = f;
	return 0;
}

/* A box in rows and columns. A vector is one row, so that its elements are copied at once. */
struct box {
	int64_t lo[2], hi[2];
};

static struct box box_of(int dims, const int64_t *lo, const int64_t *hi)
{
	if (dims == 1)
		return (struct box){ { 0, lo[0] }, { 1, hi[0] } };
	return (struct box){ { lo[0], lo[1] }, { hi[0], hi[1] } };
}

bool ckpt_boxes_touch(int dims, const struct manifest_slice *s, const struct ckpt_tensor *t)
{
	for (int i = 0; i < dims; i++)
		if (s->hi[i] <= t->lo[i] || t->hi[i] <= s->lo[i])
			return false;
	return true;
}

/* Copies the elements [first, first + n) of the slice, row by row, to their positions in the box
 * `to`. */
static void copy_elements(const struct box *from, const float *data, int64_t first, int64_t n,
			  const struct box *to, float *out)
{
	int64_t width = from->hi[1] - from->lo[1], to_width = to->hi[1] - to->lo[1];
	while (n > 0) {
		int64_t row = from->lo[0] + first / width, column = from->lo[1] + first % width;
		int64_t run = min_int64(n, from->hi[1] - column);
		int64_t lo = max_int64(column, to->lo[1]), hi = min_int64(column + run, to->hi[1]);
		if (row >= to->lo[0] && row < to->hi[0] && lo < hi)
			memcpy(out + (row - to->lo[0]) * to_width + (lo - to->lo[1]),
			       data + (lo - column), (size_t)(hi - lo) * sizeof *out);
		data += run;
		first += run;
		n -= run;
	}
}

static int read_pieces(struct ckpt_reader *r, const struct manifest_tensor *t,
		       const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		       struct ckpt_sums *sums, struct err *e)
{
	const struct manifest_file *f = &r->m->files[s->file];
	struct box from = box_of(t->dims, s->lo, s->hi);
	int64_t bytes = ckpt_slice_bytes(s);
	ckpt_digester_start(r->digester);
	for (int64_t at = 0; at < bytes; at += CHUNK) {
		int64_t n = min_int64(CHUNK, bytes - at);
		if (r->storage->ops->read(r->files[s->file], f->header + s->offset + at, r->chunk,
					  (size_t)n, e))
			return err_prefix(e, "tensor %s", t->name);
		ckpt_digester_add(r->digester, r->chunk, (size_t)n);
		if (r->watch)
			r->watch->moved(r->watch->arg);
		if (sums)
			ckpt_sums_add(sums, t->dims, t->shape, s->lo, s->hi,
				      at / (int64_t)sizeof(float), n / (int64_t)sizeof(float),
				      r->chunk);
		for (int i = 0; i < n_into; i++) {
			struct box to = box_of(t->dims, into[i].lo, into[i].hi);
			copy_elements(&from, r->chunk, at / (int64_t)sizeof(float),
				      n / (int64_t)sizeof(float), &to, into[i].data);
		}
	}
	return 0;
}

static int read_slice(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct ckpt_sums *sums, struct err *e)
{
	if (ckpt_reader_file(r, s->file, e) || read_pieces(r, t, s, into, n_into, sums, e))
		return -1;
	struct digest d = ckpt_digester_end(r->digester);
	if (ckpt_digest_equal(&d, &s->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: tensor %s, rows [%" PRId64 ", %" PRId64 ") × columns [%" PRId64
		       ", %" PRId64 "): the digest differs: its bytes changed after they were "
		       "written; use an earlier checkpoint",
		       r->path, r->m->files[s->file].name, t->name, s->lo[0], s->hi[0], s->lo[1],
		       s->hi[1]);
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
