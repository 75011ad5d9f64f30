#include "agent/engine/ckpt/places/copy.h"

#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/places/hold.h"
#include "agent/engine/ckpt/storage/pace.h"
#include "agent/engine/ckpt/places/trail.h"
#include "base/clock.h"
#include "base/numbers.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

struct copy {
	struct ckpt_copy_options opt;
	const struct ckpt_storage *from, *to;
	const char *source, *dir;
	struct buf text; /* the manifest */
	struct manifest m;
	struct slice_index index;
	struct ckpt_trail *trail;
	struct ckpt_pace pace;
	char *chunk;
	char attempt[PATH_MAX], path[1024], aside[PATH_MAX];
	struct ckpt_copy_result result;
	int64_t done;
	bool damaged; /* the original: no later copy can complete the attempt */
};

/* --- one file -------------------------------------------------------------------- */

/* A file of the checkpoint: index < n_files is a shard, otherwise it is attached. */
static int64_t file_count(const struct copy *c)
{
	return c->m.n_files + c->m.n_attached;
}

static const char *file_name(const struct copy *c, int64_t i)
{
	return i < c->m.n_files ? c->m.files[i].name : c->m.attached[i - c->m.n_files].name;
}

static int64_t file_size(const struct copy *c, int64_t i)
{
	return i < c->m.n_files ? c->m.files[i].size : c->m.attached[i - c->m.n_files].size;
}

static void start_trail(struct copy *c, int64_t i)
{
	if (i < c->m.n_files)
		ckpt_trail_shard(c->trail, &c->m, &c->index, i);
	else
		ckpt_trail_attached(c->trail, &c->m.attached[i - c->m.n_files]);
}

static int moved(struct copy *c, int64_t i, int64_t n, struct err *e)
{
	struct ckpt_copy_progress now = { file_name(c, i), c->done += n, c->result.bytes };
	if (c->opt.watch)
		c->opt.watch->moved(c->opt.watch->arg);
	if (c->opt.progress)
		c->opt.progress(c->opt.progress_arg, &now);
	if (c->opt.cancel && atomic_load(c->opt.cancel))
		return err_set(e, ERR_ABORTED, "%s: the copy was stopped; the next one continues",
			       c->attempt);
	return 0;
}

static int open_source(struct copy *c, int64_t i, const char *path, struct ckpt_file **out,
		       struct err *e)
{
	if (c->from->ops->open(c->from, path, out, e))
		return -1;
	if ((*out)->size == file_size(c, i))
		return 0;
	c->damaged = true;
	err_set(e, ERR_CORRUPT,
		"%s: has %" PRId64 " bytes, but the manifest says %" PRId64
		": the file was truncated or replaced; copy another checkpoint",
		path, (*out)->size, file_size(c, i));
	c->from->ops->close(*out);
	return -1;
}

/* Reads the file and follows its digests; `out` also gets the bytes unless it is NULL. */
static int pass_bytes(struct copy *c, int64_t i, const struct ckpt_storage *s, const char *path,
		      struct ckpt_file *in, struct ckpt_file *out, struct err *e)
{
	int64_t size = file_size(c, i), chunk = ckpt_pace_piece(&c->pace, CHUNK);
	start_trail(c, i);
	for (int64_t at = 0; at < size; at += chunk) {
		size_t n = (size_t)min_int64(chunk, size - at);
		if (s->ops->read(in, at, c->chunk, n, e))
			return -1;
		if (ckpt_trail_add(c->trail, path, c->chunk, n, e)) {
			c->damaged = out != NULL;
			return -1;
		}
		if (!out)
			continue;
		if (c->to->ops->write(out, c->chunk, n, e) || moved(c, i, (int64_t)n, e) ||
		    ckpt_pace_wait(&c->pace, n, c->opt.cancel, e))
			return -1;
		c->result.sent += (int64_t)n;
	}
	return 0;
}

/* Whether an earlier copy has written the file whole, as the digests prove. */
static bool is_there(struct copy *c, int64_t i, const char *path)
{
	struct ckpt_file *f;
	if (c->to->ops->open(c->to, path, &f, NULL))
		return false;
	bool there = f->size == file_size(c, i) && !pass_bytes(c, i, c->to, path, f, NULL, NULL);
	c->to->ops->close(f);
	return there;
}

static int send_file(struct copy *c, int64_t i, const char *from, const char *to, struct err *e)
{
	struct ckpt_file *in, *out;
	if (open_source(c, i, from, &in, e))
		return -1;
	int rc = c->to->ops->create(c->to, to, &out, e);
	if (!rc && pass_bytes(c, i, c->from, from, in, out, e)) {
		c->to->ops->close(out);
		rc = -1;
	} else if (!rc) {
		rc = c->to->ops->finish(out, e);
	}
	c->from->ops->close(in);
	return rc;
}

static int copy_file(struct copy *c, int64_t i, const struct ckpt_storage_names *left,
		     struct err *e)
{
	char from[PATH_MAX], to[PATH_MAX];
	const char *name = file_name(c, i);
	if (ckpt_storage_join(from, sizeof from, c->source, name, e) ||
	    ckpt_storage_join(to, sizeof to, c->attempt, name, e))
		return -1;
	if (ckpt_storage_named(left, name)) {
		if (is_there(c, i, to)) {
			c->result.reused++;
			return (c->to->ops->settle && c->to->ops->settle(c->to, to, e)) ||
					       moved(c, i, file_size(c, i), e)
				       ? -1
				       : 0;
		}
		if (c->to->ops->discard(c->to, to, e))
			return -1;
	}
	return send_file(c, i, from, to, e);
}

/* --- the checkpoint -------------------------------------------------------------- */

static int read_original(struct copy *c, struct err *e)
{
	char path[PATH_MAX];
	struct err why = ERR_INIT;
	if (ckpt_storage_join(path, sizeof path, c->source, MANIFEST_NAME, e))
		return -1;
	if (ckpt_storage_read_whole(c->from, path, MANIFEST_BYTES_MAX, &c->text, &why))
		return why.code == ERR_NOTFOUND
			       ? err_set(e, ERR_NOTFOUND, "%s: there is no such checkpoint",
					 c->source)
			       : err_set(e, why.code, "%s", why.text);
	if (ckpt_manifest_parse(c->text.data, c->text.len, path, &c->m, e))
		return -1;
	if (ckpt_manifest_prove(&c->m, e) || ckpt_slice_index_build(&c->m, &c->index, e))
		return err_prefix(e, "%s", path);
	for (int64_t i = 0; i < file_count(c); i++)
		c->result.bytes += file_size(c, i);
	c->result.files = file_count(c);
	c->result.step = c->m.state.step;
	return 0;
}

static int name_copy(struct copy *c, struct err *e)
{
	char name[64], nonce[DIGEST_HEX];
	struct digest d = ckpt_digest_of(c->text.data, c->text.len);
	ckpt_digest_hex(&d, nonce);
	snprintf(name, sizeof name, "step-%08" PRId64, c->m.state.step);
	if (ckpt_storage_join(c->path, sizeof c->path, c->dir, name, e))
		return -1;
	snprintf(c->aside, sizeof c->aside, "%s.%.16s", c->path, nonce);
	snprintf(name, sizeof name, ATTEMPT_PREFIX "%08" PRId64 "-%u-%.16s", c->m.state.step,
		 c->m.generation, nonce);
	return ckpt_storage_join(c->attempt, sizeof c->attempt, c->dir, name, e);
}

/* 1: the checkpoint is there already; 0: it must be copied; -1. */
static int look_there(struct copy *c, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	if (ckpt_storage_join(path, sizeof path, c->path, MANIFEST_NAME, e))
		return -1;
	int rc = 0;
	if (ckpt_storage_read_whole(c->to, path, MANIFEST_BYTES_MAX, &text, &why))
		rc = why.code == ERR_NOTFOUND || why.code == ERR_CORRUPT
			     ? 0
			     : err_set(e, why.code, "%s", why.text);
	else if (text.len == c->text.len && !memcmp(text.data, c->text.data, text.len))
		rc = !ckpt_folder_check_sizes(c->to, c->path, &c->m, NULL);
	else if (!c->opt.replace)
		rc = err_set(e, ERR_USAGE,
			     "%s: another checkpoint of this step is there; remove it, or copy to "
			     "another folder",
			     c->path);
	buf_fini(&text);
	return rc;
}

static int copy_files(struct copy *c, struct err *e)
{
	struct ckpt_storage_names left = { 0 };
	if (c->to->ops->prepare(c->to, c->dir, e) ||
	    c->to->ops->begin(c->to, c->attempt, false, e) ||
	    ckpt_storage_names_of(c->to, c->attempt, &left, e))
		return -1;
	int rc = 0;
	for (int64_t i = 0; i < file_count(c) && !rc; i++)
		rc = copy_file(c, i, &left, e);
	ckpt_storage_names_free(&left);
	if (c->damaged)
		c->to->ops->remove(c->to, c->attempt, NULL);
	return rc;
}

static int publish(struct copy *c, struct err *e)
{
	const struct ckpt_storage_ops *ops = c->to->ops;
	if ((ops->sync && ops->sync(c->to, c->attempt, e)) ||
	    ckpt_folder_check_sizes(c->to, c->attempt, &c->m, e) ||
	    ops->commit(c->to, c->attempt, c->path, c->aside, c->text.data, c->text.len, e))
		return -1;
	return ops->remove(c->to, c->aside, e);
}

static int run_copy(struct copy *c, struct err *e)
{
	if (read_original(c, e) || name_copy(c, e))
		return -1;
	int there = look_there(c, e);
	if (there < 0)
		return -1;
	c->result.there_already = there;
	if (there)
		c->result.reused = c->result.files;
	if (!there && (copy_files(c, e) || publish(c, e)))
		return -1;
	snprintf(c->result.path, sizeof c->result.path, "%s", c->path);
	return 0;
}

static int run_held(struct copy *c, struct err *e)
{
	struct ckpt_hold hold;
	if (!ckpt_hold_take(&hold, c->source, CKPT_HOLD_READ))
		return err_set(e, ERR_NOTFOUND, "%s: it is being removed by another process",
			       c->source);
	int rc = run_copy(c, e);
	ckpt_hold_release(&hold);
	return rc;
}

int ckpt_copy(const char *from_entry, const char *to_dir, const struct ckpt_copy_options *opt,
	      struct err *e)
{
	static const struct ckpt_copy_options none;
	double started = clock_s();
	struct copy *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "%s: no memory to copy it", from_entry);
	c->opt = opt ? *opt : none;
	c->from = c->opt.from ? c->opt.from : ckpt_storage_of(from_entry);
	c->to = c->opt.to ? c->opt.to : ckpt_storage_of(to_dir);
	c->source = from_entry;
	c->dir = to_dir;
	c->chunk = malloc(CHUNK);
	c->trail = ckpt_trail_open();
	ckpt_pace_start(&c->pace, c->opt.bytes_per_s);
	int rc = c->chunk && c->trail
			 ? run_held(c, e)
			 : err_set(e, ERR_NOMEM, "%s: no memory to copy it", from_entry);
	c->result.seconds = clock_s() - started;
	if (!rc && c->opt.result)
		*c->opt.result = c->result;
	ckpt_trail_close(c->trail);
	ckpt_slice_index_free(&c->index);
	ckpt_manifest_fini(&c->m);
	buf_fini(&c->text);
	free(c->chunk);
	free(c);
	return rc;
}
