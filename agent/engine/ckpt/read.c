#include "agent/engine/ckpt/read.h"

#include "agent/engine/ckpt/header.h"
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

enum { CHUNK = 1 << 20 };

struct reader {
	const char *path;
	const struct manifest *m;
	const struct ckpt_watch *watch; /* NULL: nobody */
	int *fds;                       /* -1: not open yet */
	struct digester *digester;
	float *chunk;
	struct places places; /* built when the first file is opened */
};

int ckpt_reader_open(const char *path, const struct manifest *m, const struct ckpt_watch *watch,
		     struct reader **out, struct err *e)
{
	struct reader *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	*r = (struct reader){ path,
			      m,
			      watch,
			      malloc(((size_t)m->n_files + 1) * sizeof *r->fds),
			      ckpt_digester_open(),
			      malloc(CHUNK),
			      { 0 } };
	for (int64_t i = 0; r->fds && i < m->n_files; i++)
		r->fds[i] = -1;
	if (!r->fds || !r->digester || !r->chunk) {
		ckpt_reader_close(r);
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	}
	*out = r;
	return 0;
}

void ckpt_reader_close(struct reader *r)
{
	if (!r)
		return;
	for (int64_t i = 0; r->fds && i < r->m->n_files; i++)
		if (r->fds[i] >= 0)
			close(r->fds[i]);
	free(r->fds);
	ckpt_digester_close(r->digester);
	ckpt_slice_index_free(&r->places);
	free(r->chunk);
	free(r);
}

int ckpt_reader_file(struct reader *r, int64_t file, struct err *e)
{
	const struct manifest_file *f = &r->m->files[file];
	char path[PATH_MAX];
	struct stat st;
	if (r->fds[file] >= 0)
		return r->fds[file];
	if (snprintf(path, sizeof path, "%s/%s", r->path, f->name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", r->path);
	struct err why = ERR_INIT;
	int fd = file_open(path, O_RDONLY, FILE_OWN, &why);
	if (fd < 0 && why.code == ERR_NOTFOUND)
		return err_set(e, ERR_CORRUPT,
			       "%s: a shard of the checkpoint cannot be opened: it is not there; "
			       "use an earlier checkpoint",
			       path);
	if (fd < 0)
		return err_set(e, why.code, "a shard of the checkpoint: %s", why.text);
	if (fstat(fd, &st) || st.st_size != f->size) {
		close(fd);
		return err_set(e, ERR_CORRUPT,
			       "%s: %lld bytes, the manifest says %" PRId64
			       ": the file was cut or replaced; use an "
			       "earlier checkpoint",
			       path, (long long)st.st_size, f->size);
	}
	if ((!r->places.list && ckpt_slice_index_build(r->m, &r->places, e)) ||
	    ckpt_header_check(r->path, r->m, file, fd, &r->places, e)) {
		close(fd);
		return -1;
	}
	r->fds[file] = fd;
	return fd;
}

/* Rows and columns; a vector is one row, so that its elements are copied in one piece. */
struct topo_preset {
	int64_t lo[2], hi[2];
};

static struct topo_preset box_of(int dims, const int64_t *lo, const int64_t *hi)
{
	if (dims == 1)
		return (struct topo_preset){ { 0, lo[0] }, { 1, hi[0] } };
	return (struct topo_preset){ { lo[0], lo[1] }, { hi[0], hi[1] } };
}

bool ckpt_boxes_touch(int dims, const struct manifest_slice *s, const struct ckpt_tensor *t)
{
	for (int i = 0; i < dims; i++)
		if (s->hi[i] <= t->lo[i] || t->hi[i] <= s->lo[i])
			return false;
	return true;
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The elements [first, first + n) of the slice, row by row, to where they lie in the other box. */
static void copy(const struct topo_preset *from, const float *data, int64_t first, int64_t n,
		 const struct topo_preset *to, float *out)
{
	int64_t width = from->hi[1] - from->lo[1], to_width = to->hi[1] - to->lo[1];
	while (n > 0) {
		int64_t row = from->lo[0] + first / width, column = from->lo[1] + first % width;
		int64_t run = least(n, from->hi[1] - column);
		int64_t lo = most(column, to->lo[1]), hi = least(column + run, to->hi[1]);
		if (row >= to->lo[0] && row < to->hi[0] && lo < hi)
			memcpy(out + (row - to->lo[0]) * to_width + (lo - to->lo[1]),
			       data + (lo - column), (size_t)(hi - lo) * sizeof *out);
		data += run;
		first += run;
		n -= run;
	}
}

static int read_pieces(struct reader *r, int fd, const struct manifest_tensor *t,
		       const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		       struct err *e)
{
	const struct manifest_file *f = &r->m->files[s->file];
	struct topo_preset from = box_of(t->dims, s->lo, s->hi);
	int64_t bytes = ckpt_slice_bytes(s);
	ckpt_digester_start(r->digester);
	for (int64_t at = 0; at < bytes; at += CHUNK) {
		int64_t n = least(CHUNK, bytes - at);
		if (file_pread_full(fd, r->chunk, (size_t)n, f->header + s->offset + at))
			return err_errno(e, ERR_IO, "%s/%s: cannot read tensor %s", r->path,
					 f->name, t->name);
		ckpt_digester_add(r->digester, r->chunk, (size_t)n);
		if (r->watch)
			r->watch->moved(r->watch->arg);
		for (int i = 0; i < n_into; i++) {
			struct topo_preset to = box_of(t->dims, into[i].lo, into[i].hi);
			copy(&from, r->chunk, at / (int64_t)sizeof(float),
			     n / (int64_t)sizeof(float), &to, into[i].data);
		}
	}
	return 0;
}

int ckpt_reader_slice(struct reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct err *e)
{
	int fd = ckpt_reader_file(r, s->file, e);
	if (fd < 0 || read_pieces(r, fd, t, s, into, n_into, e))
		return -1;
	struct digest d = ckpt_digester_end(r->digester);
	if (ckpt_digest_equal(&d, &s->digest))
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s/%s: tensor %s, rows [%" PRId64 ", %" PRId64 ") × columns [%" PRId64
		       ", %" PRId64 "): the digest differs, its bytes changed after they were "
		       "written; use an earlier checkpoint",
		       r->path, r->m->files[s->file].name, t->name, s->lo[0], s->hi[0], s->lo[1],
		       s->hi[1]);
}
