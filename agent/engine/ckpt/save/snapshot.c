#include "agent/engine/ckpt/save/snapshot.h"

#include "agent/engine/ckpt/storage/pages.h"
#include "agent/engine/ckpt/format/safetensors.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece stays in the cache of a core from the check of its numbers to its digest, its sums and its
 * copy for the writer. */
enum { CHUNK = 256 << 10 };

/* --- the copy --- */

int ckpt_box_elements(const struct ckpt_tensor *t, int64_t *count, struct err *e)
{
	int64_t n = 1, whole = sizeof(float);
	if (t->dims < 1 || t->dims > 2)
		return err_set(e, ERR_INTERNAL, "tensor %.95s has %d dimensions; 1 or 2 are stored",
			       t->name, t->dims);
	for (int i = 0; i < t->dims; i++) {
		if (t->lo[i] < 0 || t->lo[i] > t->hi[i] || t->hi[i] > t->shape[i])
			return err_set(e, ERR_INTERNAL,
				       "tensor %.95s: the box [%" PRId64 ", %" PRId64
				       ") is outside its %" PRId64,
				       t->name, t->lo[i], t->hi[i], t->shape[i]);
		if (__builtin_mul_overflow(whole, t->shape[i], &whole))
			return err_set(e, ERR_INTERNAL,
				       "tensor %.95s: the product of its shape overflows", t->name);
		n *= t->hi[i] - t->lo[i];
	}
	*count = n;
	return 0;
}

static void free_buffer(struct snapshot *s)
{
	if (s->memory.give_back)
		s->memory.give_back(s->memory.arg, s->buffer);
	else
		free(s->buffer);
	s->memory = (struct ckpt_memory){ 0 };
	s->buffer = NULL;
	s->cap = 0;
}

static void alloc_buffer(struct snapshot *s, size_t bytes, const struct ckpt_memory *there)
{
	s->buffer = there && there->take ? there->take(there->arg, bytes) : NULL;
	if (s->buffer)
		s->memory = *there;
	else
		s->buffer = ckpt_pages_alloc(bytes);
}

static const struct ckpt_memory *find_memory(const struct ckpt_tensor *tensors, int n)
{
	for (int i = 0; i < n; i++)
		if (tensors[i].there)
			return tensors[i].there;
	return NULL;
}

static int reserve_buffer(struct snapshot *s, size_t bytes, const struct ckpt_tensor *from, int n,
			  struct err *e)
{
	struct ckpt_tensor *tensors = realloc(s->tensors, ((size_t)n + 1) * sizeof *tensors);
	if (!tensors)
		return err_set(e, ERR_NOMEM, "no memory for a snapshot of %d tensors", n);
	s->tensors = tensors;
	if (bytes <= s->cap)
		return 0;
	free_buffer(s);
	alloc_buffer(s, bytes, find_memory(from, n));
	if (!s->buffer)
		return err_set(e, ERR_NOMEM,
			       "no memory for a snapshot of %zu bytes; give the node more memory, "
			       "or run fewer ranks per node",
			       bytes);
	s->cap = bytes;
	return 0;
}

static int copy_tensor(const struct ckpt_tensor *t, float *to, size_t bytes, struct err *e)
{
	if (t->there)
		return t->there->get(t->there->arg, to, t->data, bytes, e);
	memcpy(to, t->data, bytes);
	return 0;
}

static int reserve(struct snapshot *s, const struct ckpt_tensor *tensors, int n, size_t *bytes,
		   struct err *e)
{
	int64_t total = 0, count;
	for (int i = 0; i < n; i++) {
		if (ckpt_box_elements(&tensors[i], &count, e))
			return -1;
		total += count;
	}
	*bytes = (size_t)total * sizeof(float);
	return reserve_buffer(s, *bytes, tensors, n, e);
}

static int copy_tensors(struct snapshot *s, const struct ckpt_tensor *tensors, int n, struct err *e)
{
	size_t bytes;
	int64_t count;
	if (reserve(s, tensors, n, &bytes, e))
		return -1;
	float *at = s->buffer;
	for (int i = 0; i < n; i++) {
		ckpt_box_elements(&tensors[i], &count, e);
		if (!count)
			continue;
		if (copy_tensor(&tensors[i], at, (size_t)count * sizeof(float), e))
			return -1;
		s->tensors[s->n] = tensors[i];
		s->tensors[s->n].there = NULL;
		s->tensors[s->n++].data = at;
		at += count;
	}
	s->bytes = bytes;
	return 0;
}

int ckpt_snapshot_take(struct snapshot *s, const struct ckpt_tensor *tensors, int n)
{
	s->n = 0;
	s->bytes = 0;
	s->err = (struct err)ERR_INIT;
	return copy_tensors(s, tensors, n, &s->err);
}

int ckpt_snapshot_reserve(struct snapshot *s, const struct ckpt_tensor *tensors, int n,
			  struct err *e)
{
	size_t bytes;
	return reserve(s, tensors, n, &bytes, e);
}

void ckpt_snapshot_touch(struct snapshot *s)
{
	if (s->buffer && !s->memory.give_back)
		ckpt_pages_touch(s->buffer, s->cap);
}

void ckpt_snapshot_fini(struct snapshot *s)
{
	free(s->tensors);
	free_buffer(s);
	*s = (struct snapshot){ 0 };
}

/* --- the shard --- */

void ckpt_slice_name(const char *name, int dims, const int64_t *shape, const int64_t *lo,
		     const int64_t *hi, char out[SLICE_NAME])
{
	bool whole = true;
	for (int i = 0; i < dims; i++)
		whole &= lo[i] == 0 && hi[i] == shape[i];
	if (whole)
		snprintf(out, SLICE_NAME, "%.95s", name);
	else if (dims == 1)
		snprintf(out, SLICE_NAME, "%.95s[%" PRId64 ":%" PRId64 "]", name, lo[0], hi[0]);
	else
		snprintf(out, SLICE_NAME, "%.95s[%" PRId64 ":%" PRId64 ",%" PRId64 ":%" PRId64 "]",
			 name, lo[0], hi[0], lo[1], hi[1]);
}

static int64_t box_bytes(const struct ckpt_tensor *t)
{
	int64_t n = sizeof(float);
	for (int i = 0; i < t->dims; i++)
		n *= t->hi[i] - t->lo[i];
	return n;
}

int ckpt_shard_header(const struct ckpt_tensor *tensors, int n, int64_t step, struct buf *out,
		      struct err *e)
{
	int rc = -1;
	int64_t at = 0;
	char text[24];
	snprintf(text, sizeof text, "%" PRId64, step);
	struct st_tensor *list = calloc((size_t)n, sizeof *list);
	char(*names)[SLICE_NAME] = calloc((size_t)n, sizeof *names);
	json_t *metadata = json_pack("{s:s}", "format", "pt");
	if (step >= 0)
		json_object_set_new(metadata, "muster.step", json_string(text));
	json_object_set_new(metadata, "muster.manifest", json_string(MANIFEST_NAME));
	if (!list || !names || !metadata) {
		err_set(e, ERR_NOMEM, "no memory for the header of a shard of %d tensors", n);
		goto done;
	}
	for (int i = 0; i < n; i++) {
		const struct ckpt_tensor *t = &tensors[i];
		ckpt_slice_name(t->name, t->dims, t->shape, t->lo, t->hi, names[i]);
		list[i] = (struct st_tensor){ .name = names[i],
					      .dtype = "F32",
					      .dims = t->dims,
					      .begin = at,
					      .end = at + box_bytes(t) };
		for (int j = 0; j < t->dims; j++)
			list[i].shape[j] = t->hi[j] - t->lo[j];
		at = list[i].end;
	}
	rc = ckpt_safetensors_write_header(list, n, metadata, out, e);
done:
	json_decref(metadata);
	free(names);
	free(list);
	return rc;
}

void ckpt_shard_describe(int rank, const struct buf *header, size_t bytes,
			 struct manifest_file *file)
{
	*file = (struct manifest_file){ .header = (int64_t)header->len,
					.size = (int64_t)(header->len + bytes),
					.digest = ckpt_digest_of(header->data, header->len) };
	ckpt_shard_name(rank, file->name);
}

void ckpt_shard_name(int rank, char name[MANIFEST_FILE_NAME])
{
	snprintf(name, MANIFEST_FILE_NAME, "shard-%05d.safetensors", rank);
}

/* The exponent of NaN and of an infinity has all bits set. */
static uint32_t count_bad(const char *data, int n)
{
	const uint32_t exponent = 0x7f800000;
	uint32_t bad = 0;
	for (int i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, data + i * (int)sizeof bits, sizeof bits);
		bad += (bits & exponent) == exponent;
	}
	return bad;
}

/* In groups of a constant size, which the compiler turns into vector instructions. */
bool ckpt_has_bad_number(const char *data, size_t bytes)
{
	enum { GROUP = 256 };
	size_t n = bytes / sizeof(float), i = 0;
	uint32_t bad = 0;
	for (; i + GROUP <= n; i += GROUP)
		bad += count_bad(data + i * sizeof(float), GROUP);
	return bad + count_bad(data + i * sizeof(float), (int)(n - i));
}

int ckpt_bad_number(const char *tensor, struct err *e)
{
	return err_set(
		e, ERR_NUMERIC,
		"tensor %.95s holds NaN or infinity, so the checkpoint is not committed; the "
		"last one is still valid",
		tensor);
}

/* Computes each chunk's digest and sums, and writes the chunk while it is still in the cache. */
static int write_tensor(const struct ckpt_tensor *t, const struct ckpt_watch *watch,
			struct ckpt_file *f, struct digester *d, struct ckpt_sums *sums,
			struct digest *out, struct err *e)
{
	const char *at = (const char *)t->data;
	int64_t bytes = box_bytes(t), first, last;
	ckpt_digester_start(d);
	ckpt_blocks_touched(t->dims, t->shape, t->lo, t->hi, &first, &last);
	if (ckpt_sums_reserve(sums, first, last, e))
		return -1;
	for (int64_t left = bytes; left > 0;) {
		size_t n = left < CHUNK ? (size_t)left : CHUNK;
		if (ckpt_has_bad_number(at, n))
			return ckpt_bad_number(t->name, e);
		ckpt_digester_add(d, at, n);
		ckpt_sums_add(sums, t->dims, t->shape, t->lo, t->hi,
			      (bytes - left) / (int64_t)sizeof(float), (int64_t)(n / sizeof(float)),
			      (const float *)(const void *)at);
		if (f->storage->ops->write(f, at, n, e))
			return -1;
		if (watch)
			watch->moved(watch->arg);
		at += n;
		left -= (int64_t)n;
	}
	*out = ckpt_digester_end(d);
	return 0;
}

static int write_tensors(const struct ckpt_tensor *list, int n, const struct ckpt_watch *watch,
			 struct ckpt_file *f, struct manifest *part, struct err *e)
{
	int rc = 0;
	int64_t at = 0;
	struct digester *d = ckpt_digester_open();
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory to compute the digests of a shard");
	for (int i = 0; i < n && !rc; i++) {
		const struct ckpt_tensor *t = &list[i];
		struct manifest_slice slice = { .file = part->n_files - 1,
						.offset = at,
						.lo = { t->lo[0], t->lo[1] },
						.hi = { t->hi[0], t->hi[1] } };
		struct ckpt_sums sums = { 0 };
		rc = write_tensor(t, watch, f, d, &sums, &slice.digest, e) ||
		     ckpt_manifest_add_slice(part, t->name, t->dims, t->shape, &slice, e) ||
		     ckpt_manifest_add_sums(part, t->name, &sums, e);
		ckpt_sums_fini(&sums);
		at += box_bytes(t);
	}
	ckpt_digester_close(d);
	return rc ? -1 : 0;
}

static int write_shard(const struct ckpt_tensor *list, int n, const struct ckpt_watch *watch,
		       const struct ckpt_storage *storage, const char *path,
		       const struct buf *header, struct manifest *part, struct err *e)
{
	struct ckpt_file *f;
	if (storage->ops->create(storage, path, &f, e))
		return -1;
	if (storage->ops->write(f, header->data, header->len, e) ||
	    write_tensors(list, n, watch, f, part, e)) {
		storage->ops->close(f);
		return -1;
	}
	int rc = storage->ops->finish(f, e);
	if (watch)
		watch->moved(watch->arg);
	return rc;
}

int ckpt_shard_write(const struct snapshot *s, const struct ckpt_tensor *list, int n,
		     const struct ckpt_storage *storage, const char *attempt, const char *name,
		     int64_t step, struct manifest *part, struct err *e)
{
	char path[PATH_MAX];
	struct manifest_file file;
	struct buf header = BUF_INIT;
	size_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += (size_t)box_bytes(&list[i]);
	int rc = ckpt_shard_header(list, n, step, &header, e);
	if (!rc) {
		ckpt_shard_describe(0, &header, bytes, &file);
		snprintf(file.name, sizeof file.name, "%s", name);
		rc = ckpt_storage_join(path, sizeof path, attempt, name, e) ||
		     ckpt_manifest_add_file(part, &file, e) ||
		     write_shard(list, n, s->watch, storage, path, &header, part, e);
	}
	buf_fini(&header);
	return rc ? -1 : 0;
}

int ckpt_snapshot_write(const struct snapshot *s, const struct ckpt_storage *storage,
			const char *attempt, int rank, struct manifest *part, struct err *e)
{
	char name[MANIFEST_FILE_NAME];
	ckpt_shard_name(rank, name);
	return s->n ? ckpt_shard_write(s, s->tensors, s->n, storage, attempt, name,
				       part->state.step, part, e)
		    : 0;
}
