#include "agent/engine/ckpt/save/stream.h"

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/ckpt/format/safetensors.h"
#include "agent/engine/ckpt/format/state_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SHARD "shard-00000.safetensors"

enum { CHUNK = 1 << 20, GENERATION = 0 };

struct ckpt_stream {
	struct ckpt_stream_options opt;
	const struct ckpt_storage *storage;
	struct attempt attempt;
	struct manifest manifest;
	struct digester *digester;
	struct ckpt_file *shard; /* NULL: it is finished */
	int next;                /* index of the next tensor */
	int64_t offset;          /* its offset in the shard's buffer */
	bool committed;
};

static int64_t tensor_bytes(const struct ckpt_tensor *t)
{
	return t->shape[0] * (t->dims == 2 ? t->shape[1] : 1) * (int64_t)sizeof(float);
}

static int prepare_dir(const struct ckpt_storage *storage, const struct ckpt_stream_options *opt,
		       struct err *e)
{
	char name[32];
	snprintf(name, sizeof name, "step-%08" PRId64, opt->state.step);
	int found = ckpt_storage_has(storage, opt->dir, name, e);
	if (found > 0)
		return err_set(e, ERR_USAGE,
			       "%s/%s: already exists; remove it, or name another folder", opt->dir,
			       name);
	return found < 0 || storage->ops->prepare(storage, opt->dir, e) ? -1 : 0;
}

static int write_shard_header(struct ckpt_stream *s, struct err *e)
{
	const struct ckpt_stream_options *o = &s->opt;
	struct buf text = BUF_INIT;
	struct manifest_file file = { .name = SHARD };
	struct st_tensor *list = calloc((size_t)o->n + 1, sizeof *list);
	json_t *metadata = json_pack("{s:s, s:s}", "format", "pt", "muster.manifest",
				     MANIFEST_NAME);
	int rc = list && metadata
			 ? 0
			 : err_set(e, ERR_NOMEM, "%s: no memory for a header of %d tensors", o->dir,
				   o->n);
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
		     s->storage->ops->write(s->shard, text.data, text.len, e);
	}
	json_decref(metadata);
	free(list);
	buf_fini(&text);
	return rc ? -1 : 0;
}

static int start_shard(struct ckpt_stream *s, struct err *e)
{
	char path[PATH_MAX];
	s->digester = ckpt_digester_open();
	if (!s->digester)
		return err_set(e, ERR_NOMEM, "%s: no memory to write a checkpoint", s->opt.dir);
	if (prepare_dir(s->storage, &s->opt, e) ||
	    ckpt_attempt_make(s->storage, s->opt.dir, s->opt.state.step, GENERATION, &s->attempt,
			      e) ||
	    ckpt_storage_join(path, sizeof path, s->attempt.path, SHARD, e) ||
	    s->storage->ops->create(s->storage, path, &s->shard, e))
		return -1;
	return write_shard_header(s, e);
}

int ckpt_stream_open(const struct ckpt_stream_options *opt, struct ckpt_stream **out, struct err *e)
{
	struct ckpt_stream *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory to write a checkpoint", opt->dir);
	s->opt = *opt;
	s->storage = ckpt_storage_of(opt->dir);
	ckpt_manifest_init(&s->manifest, &opt->state, GENERATION, opt->model, opt->layout);
	if (start_shard(s, e)) {
		ckpt_stream_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

static int add_sums(struct ckpt_stream *s, const struct ckpt_tensor *t, const float *data,
		    struct err *e)
{
	struct ckpt_tensor whole = { .dims = t->dims,
				     .shape = { t->shape[0], t->shape[1] },
				     .hi = { t->shape[0], t->shape[1] },
				     .data = (float *)data };
	struct ckpt_sums sums = { 0 };
	int rc = ckpt_sums_add_box(&sums, &whole, NULL, e) ||
		 ckpt_manifest_add_sums(&s->manifest, t->name, &sums, e);
	ckpt_sums_fini(&sums);
	return rc ? -1 : 0;
}

int ckpt_stream_add_tensor(struct ckpt_stream *s, const float *data, struct err *e)
{
	const struct ckpt_tensor *t = &s->opt.tensors[s->next];
	const char *from = (const char *)data;
	int64_t bytes = tensor_bytes(t), shape[2] = { t->shape[0], t->dims == 2 ? t->shape[1] : 1 };
	struct manifest_slice slice = { .offset = s->offset, .hi = { shape[0], shape[1] } };
	ckpt_digester_start(s->digester);
	for (int64_t at = 0; at < bytes; at += CHUNK) {
		size_t n = (size_t)(bytes - at < CHUNK ? bytes - at : CHUNK);
		ckpt_digester_add(s->digester, from + at, n);
		if (s->storage->ops->write(s->shard, from + at, n, e))
			return -1;
	}
	slice.digest = ckpt_digester_end(s->digester);
	s->offset += bytes;
	s->next++;
	int rc = ckpt_manifest_add_slice(&s->manifest, t->name, t->dims, shape, &slice, e) ||
		 add_sums(s, t, data, e);
	return rc ? -1 : 0;
}

int ckpt_stream_commit(struct ckpt_stream *s, char path[1024], struct err *e)
{
	const struct ckpt_storage_ops *ops = s->storage->ops;
	struct ckpt_file *shard = s->shard;
	if (s->next != s->opt.n)
		return err_set(e, ERR_INTERNAL, "%s: %d of %d tensors were added", s->attempt.path,
			       s->next, s->opt.n);
	s->shard = NULL;
	if (ops->finish(shard, e) ||
	    (s->opt.attached &&
	     ckpt_attached_write(s->opt.attached, s->storage, s->attempt.path, &s->manifest, e)) ||
	    (ops->sync && ops->sync(s->storage, s->attempt.path, e)) ||
	    ckpt_attempt_publish(s->storage, s->opt.dir, &s->attempt, &s->manifest, path, e))
		return -1;
	s->committed = true;
	return 0;
}

void ckpt_stream_close(struct ckpt_stream *s)
{
	if (!s)
		return;
	if (s->shard)
		s->storage->ops->close(s->shard);
	if (s->attempt.name[0] && !s->committed)
		s->storage->ops->remove(s->storage, s->attempt.path, NULL);
	ckpt_manifest_fini(&s->manifest);
	ckpt_digester_close(s->digester);
	free(s);
}
