#include "agent/engine/dcp/folder.h"

#include "agent/engine/dcp/archive.h"
#include "base/buf.h"
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dcp_folder {
	char *path;
	struct buf text; /* .metadata */
	struct dcp_metadata metadata;
	int fd;                       /* of the file that is open; -1: none */
	const struct dcp_chunk *open; /* a chunk of that file */
	char open_path[PATH_MAX];
	char *piece;   /* [DCP_PIECE] stored numbers */
	float *floats; /* [DCP_PIECE / 2] the same, converted */
};

bool dcp_is_folder(const char *path)
{
	char name[PATH_MAX];
	return snprintf(name, sizeof name, "%s/" DCP_METADATA_NAME, path) < (int)sizeof name &&
	       !access(name, F_OK);
}

static int read_metadata(struct dcp_folder *f, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/" DCP_METADATA_NAME, f->path) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", f->path);
	return file_slurp(path, DCP_PICKLE_BYTES_MAX, &f->text, e) ||
			       dcp_metadata_parse(buf_str(&f->text), f->text.len, path,
						  &f->metadata, e)
		       ? -1
		       : 0;
}

int dcp_folder_open(const char *path, struct dcp_folder **out, struct err *e)
{
	struct dcp_folder *f = calloc(1, sizeof *f);
	if (f) {
		f->fd = -1;
		f->path = strdup(path);
		f->piece = malloc(DCP_PIECE);
		f->floats = malloc(DCP_PIECE / 2 * sizeof *f->floats);
	}
	int rc = f && f->path && f->piece && f->floats
			 ? read_metadata(f, e)
			 : err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	if (rc) {
		dcp_folder_close(f);
		return -1;
	}
	*out = f;
	return 0;
}

void dcp_folder_close(struct dcp_folder *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	dcp_metadata_free(&f->metadata);
	buf_fini(&f->text);
	free(f->floats);
	free(f->piece);
	free(f->path);
	free(f);
}

const struct dcp_metadata *dcp_folder_metadata(const struct dcp_folder *f)
{
	return &f->metadata;
}

int dcp_folder_prepare(struct dcp_folder *f, struct dcp_tensor *t, struct err *e)
{
	return dcp_metadata_chunks(&f->metadata, t, e)
		       ? err_prefix(e, "%s/" DCP_METADATA_NAME, f->path)
		       : 0;
}

static int open_file(struct dcp_folder *f, const struct dcp_chunk *c, struct err *e)
{
	if (f->fd >= 0 && f->open->file_length == c->file_length &&
	    !memcmp(f->open->file, c->file, c->file_length))
		return 0;
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	if (snprintf(f->open_path, sizeof f->open_path, "%s/%.*s", f->path, (int)c->file_length,
		     c->file) >= (int)sizeof f->open_path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", f->path);
	f->open = c;
	f->fd = file_open(f->open_path, O_RDONLY, FILE_REGULAR, e);
	return f->fd < 0 ? -1 : 0;
}

/* --- a box --- */

/* A loop over one dimension: n steps, in the file and in the output. */
struct loop {
	int64_t n, from, to;
};

struct copy {
	struct loop loops[DCP_DIMS]; /* outer to inner; each has n > 1 */
	int dims;
	int run;    /* the loop whose elements are adjacent in the file; -1: one element */
	int64_t at; /* of the first element in the file */
	float *out;
};

/* Joins loops that are one both in the file and in the output. */
static void add_loop(struct copy *copy, struct loop next)
{
	struct loop *last = copy->dims ? &copy->loops[copy->dims - 1] : NULL;
	if (next.n == 1)
		return;
	if (last && last->from == next.n * next.from && last->to == next.n * next.to)
		*last = (struct loop){ last->n * next.n, next.from, next.to };
	else
		copy->loops[copy->dims++] = next;
}

static int copy_run(struct dcp_folder *f, const struct copy *copy, const char *dtype, int64_t at,
		    float *out, dcp_widen *widen, struct err *e)
{
	int64_t size = dcp_dtype_size(dtype), most = DCP_PIECE / size;
	struct loop run = copy->run < 0 ? (struct loop){ 1, 1, 1 } : copy->loops[copy->run];
	for (int64_t done = 0; done < run.n; done += most) {
		int64_t n = run.n - done < most ? run.n - done : most;
		float *to = run.to == 1 ? out + done : f->floats;
		if (file_pread_full(f->fd, f->piece, (size_t)(n * size), at + done * size))
			return err_errno(e, ERR_IO, "%s: cannot read it", f->open_path);
		widen(dtype, f->piece, (size_t)n, to);
		for (int64_t i = 0; to == f->floats && i < n; i++)
			out[(done + i) * run.to] = to[i];
	}
	return 0;
}

/* Runs through all loops but the run. */
static int copy_all(struct dcp_folder *f, const struct copy *copy, const char *dtype,
		    dcp_widen *widen, struct err *e)
{
	int64_t index[DCP_DIMS] = { 0 }, size = dcp_dtype_size(dtype), from = 0, to = 0;
	for (;;) {
		int d = copy->dims - 1;
		if (copy_run(f, copy, dtype, copy->at + from * size, copy->out + to, widen, e))
			return -1;
		for (; d >= 0; d--) {
			const struct loop *l = &copy->loops[d];
			if (d == copy->run)
				continue;
			from += l->from;
			to += l->to;
			if (++index[d] < l->n)
				break;
			from -= l->n * l->from;
			to -= l->n * l->to;
			index[d] = 0;
		}
		if (d < 0)
			return 0;
	}
}

/* The part of the box that is in the chunk. */
static int read_chunk(struct dcp_folder *f, struct dcp_tensor *t, struct dcp_chunk *c,
		      const int64_t *lo, const int64_t *hi, dcp_widen *widen, float *out,
		      struct err *e)
{
	struct dcp_archive a;
	struct copy copy = { .run = -1, .out = out };
	int64_t stride[DCP_DIMS], row = 1;
	if (open_file(f, c, e) || dcp_archive_read(f->fd, f->open_path, t, c, &a, e))
		return -1;
	for (int d = t->dims - 1; d >= 0; d--) {
		stride[d] = row;
		row *= hi[d] - lo[d];
	}
	copy.at = a.at;
	for (int d = 0; d < t->dims; d++) {
		int64_t from = lo[d] > c->lo[d] ? lo[d] : c->lo[d];
		int64_t end = hi[d] < c->hi[d] ? hi[d] : c->hi[d];
		copy.at += (from - c->lo[d]) * a.stride[d] * dcp_dtype_size(a.dtype);
		copy.out += (from - lo[d]) * stride[d];
		add_loop(&copy, (struct loop){ end - from, a.stride[d], stride[d] });
	}
	for (int d = 0; d < copy.dims; d++)
		copy.run = copy.loops[d].from == 1 ? d : copy.run;
	if (copy.dims && copy.run < 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor %.100s: its elements are not dense in its storage; "
			       "save tensor.contiguous()",
			       f->open_path, t->name);
	return copy_all(f, &copy, a.dtype, widen, e);
}

/* The first chunk that can reach row `row` of dimension 0. */
static int64_t first_chunk(const struct dcp_tensor *t, int64_t row)
{
	int64_t lo = 0, hi = t->dims ? t->n : 0;
	while (lo < hi) {
		int64_t middle = lo + (hi - lo) / 2;
		if (t->chunks[middle].lo[0] + t->tallest <= row)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

int dcp_folder_read(struct dcp_folder *f, struct dcp_tensor *t, const int64_t *lo,
		    const int64_t *hi, dcp_widen *widen, float *out, struct err *e)
{
	if (!dcp_dtype_size(t->dtype))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor %.100s is %s; muster imports float32, bfloat16, float16 "
			       "and float64",
			       f->path, t->name, t->dtype ? t->dtype : "of no known type");
	if (dcp_folder_prepare(f, t, e))
		return -1;
	for (int64_t i = first_chunk(t, t->dims ? lo[0] : 0); i < t->n; i++) {
		struct dcp_chunk *c = &t->chunks[i];
		bool meets = true;
		if (t->dims && c->lo[0] >= hi[0])
			break;
		for (int d = 0; d < t->dims; d++)
			meets = meets && c->lo[d] < hi[d] && lo[d] < c->hi[d];
		if (meets && read_chunk(f, t, c, lo, hi, widen, out, e))
			return -1;
	}
	return 0;
}
