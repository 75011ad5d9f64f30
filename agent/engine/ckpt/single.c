#include "agent/engine/ckpt/single.h"

#include "agent/engine/ckpt/carry.h"
#include "agent/engine/ckpt/commit.h"
#include "agent/engine/ckpt/safetensors.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD "shard-00000.safetensors"

enum { CHUNK = 1 << 20, GENERATION = 0 };

struct ckpt_stream {
	struct ckpt_stream_options opt;
	const struct ckpt_io *io;
	struct attempt attempt;
	struct manifest manifest;
	struct digester *digester;
	char path[PATH_MAX]; /* of the shard */
	int fd, next;
	int64_t at;
	bool committed;
};

static int64_t tensor_bytes(const struct ckpt_tensor *t)
{
	return t->shape[0] * (t->dims == 2 ? t->shape[1] : 1) * (int64_t)sizeof(float);
}

static int check_new(const struct ckpt_stream_options *opt, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;
	if (snprintf(path, sizeof path, "%s/step-%08" PRId64, opt->dir, opt->state.step) >=
	    (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", opt->dir);
	if (!lstat(path, &st))
		return err_set(e, ERR_USAGE,
			       "%s: is there already; remove it, or name another folder", path);
	return file_make_dirs(opt->dir, e);
}

static int write_header(struct ckpt_stream *s, struct err *e)
{
	const struct ckpt_stream_options *o = &s->opt;
	struct buf text = BUF_INIT;
	struct manifest_file file = { .name = SHARD };
	struct st_tensor *list = calloc((size_t)o->n + 1, sizeof *list);
	json_t *metadata = json_pack("{s:s, s:s}", "format", "pt", "muster.manifest",
				     MANIFEST_NAME);
	int rc = list && metadata
			 ? 0
			 : err_set(e, ERR_NOMEM, "%s: no memory for a header of %d tensors",
				   s->path, o->n);
	for (int i = 0; i < o->n && !rc; i++) {
		const struct ckpt_tensor *t = &o->tensors[i];
		int64_t end = file.size + tensor_bytes(t);
		list[i] = (struct st_tensor){ .name = t->name,
					      .dtype = "F32",
					      .dims = t->dims,
					      .begin = file.size,
					      .end = end,
					      .shape = { t->shape[0], t->shape[1] } };
		file.size = end;
	}
	if (!rc)
		rc = ckpt_safetensors_write_header(list, o->n, metadata, &text, e);
	if (!rc) {
		file.header = (int64_t)text.len;
		file.size += file.header;
		file.digest = ckpt_digest_of(text.data, text.len);
		rc = ckpt_manifest_add_file(&s->manifest, &file, e) ||
		     ckpt_io_write_full(s->io, s->fd, s->path, text.data, text.len, e);
	}
	json_decref(metadata);
	free(list);
	buf_fini(&text);
	return rc ? -1 : 0;
}

static int begin(struct ckpt_stream *s, struct err *e)
{
	s->digester = ckpt_digester_open();
	if (!s->digester)
		return err_set(e, ERR_NOMEM, "%s: no memory to write a checkpoint", s->opt.dir);
	if (check_new(&s->opt, e) ||
	    ckpt_attempt_make(s->io, s->opt.dir, s->opt.state.step, GENERATION, &s->attempt, e))
		return -1;
	if (snprintf(s->path, sizeof s->path, "%s/" SHARD, s->attempt.path) >= (int)sizeof s->path)
		return err_set(e, ERR_IO, "%s: the path is too long", s->attempt.path);
	s->fd = s->io->create(s->path);
	if (s->fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create", s->path);
	return write_header(s, e);
}

int ckpt_stream_open(const struct ckpt_stream_options *opt, struct ckpt_stream **out, struct err *e)
{
	struct ckpt_stream *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory to write a checkpoint", opt->dir);
	s->opt = *opt;
	s->io = &ckpt_io_system;
	s->fd = -1;
	ckpt_manifest_init(&s->manifest, &opt->state, GENERATION, opt->model, opt->layout);
	if (begin(s, e)) {
		ckpt_stream_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

int ckpt_stream_add_tensor(struct ckpt_stream *s, const float *data, struct err *e)
{
	const struct ckpt_tensor *t = &s->opt.tensors[s->next];
	const char *from = (const char *)data;
	int64_t bytes = tensor_bytes(t), shape[2] = { t->shape[0], t->dims == 2 ? t->shape[1] : 1 };
	struct manifest_slice slice = { .offset = s->at, .hi = { shape[0], shape[1] } };
	ckpt_digester_start(s->digester);
	for (int64_t at = 0; at < bytes; at += CHUNK) {
		size_t n = (size_t)(bytes - at < CHUNK ? bytes - at : CHUNK);
		ckpt_digester_add(s->digester, from + at, n);
		if (ckpt_io_write_full(s->io, s->fd, s->path, from + at, n, e))
			return -1;
	}
	slice.digest = ckpt_digester_end(s->digester);
	s->at += bytes;
	s->next++;
	return ckpt_manifest_add_slice(&s->manifest, t->name, t->dims, shape, &slice, e);
}

int ckpt_stream_commit(struct ckpt_stream *s, char path[1024], struct err *e)
{
	if (s->next != s->opt.n)
		return err_set(e, ERR_INTERNAL, "%s: %d of %d tensors were given", s->path, s->next,
			       s->opt.n);
	int fd = s->fd;
	s->fd = -1;
	if (ckpt_io_finish(s->io, fd, s->path, e) ||
	    (s->opt.carry &&
	     ckpt_attached_write(s->opt.carry, s->io, s->attempt.path, &s->manifest, e)) ||
	    ckpt_io_sync_dir(s->io, s->attempt.path, e) ||
	    ckpt_attempt_publish(s->io, s->opt.dir, &s->attempt, &s->manifest, path, e))
		return -1;
	s->committed = true;
	return 0;
}

void ckpt_stream_close(struct ckpt_stream *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		s->io->close(s->fd);
	if (s->attempt.name[0] && !s->committed)
		ckpt_io_remove_folder(s->io, s->attempt.path, NULL);
	ckpt_manifest_fini(&s->manifest);
	ckpt_digester_close(s->digester);
	free(s);
}
