#include "agent/engine/ckpt/format/manifest.h"

#include "agent/engine/ckpt/format/packed.h"
#include "agent/engine/ckpt/format/state_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ckpt_manifest_init(struct manifest *m, const struct ckpt_state *state, uint32_t generation,
			json_t *model, json_t *layout)
{
	*m = (struct manifest){ .state = *state,
				.generation = generation,
				.model = json_incref(model),
				.layout = json_incref(layout),
				.index = json_object() };
}

void ckpt_manifest_fini(struct manifest *m)
{
	for (int64_t i = 0; i < m->n_tensors; i++) {
		free(m->tensors[i].slices);
		ckpt_sums_fini(&m->tensors[i].sums);
	}
	free(m->tensors);
	free(m->files);
	json_decref(m->model);
	json_decref(m->layout);
	json_decref(m->index);
	*m = (struct manifest){ 0 };
}

/* Makes room for one more element; an array doubles when its length is a power of two. */
static void *grow_array(void *array, int64_t n, size_t size)
{
	if (n & (n - 1))
		return array;
	return realloc(array, (size_t)(n ? 2 * n : 1) * size);
}

/* Names are used in paths, JSON and messages without quoting. */
static bool safe_name(const char *name, size_t most, bool is_file)
{
	size_t n = strspn(name,
			  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	return n > 0 && n < most && name[n] == '\0' && !(is_file && name[0] == '.');
}

int64_t ckpt_slice_bytes(const struct manifest_slice *s)
{
	return (s->hi[0] - s->lo[0]) * (s->hi[1] - s->lo[1]) * (int64_t)sizeof(float);
}

int64_t ckpt_manifest_bytes(const struct manifest *m)
{
	int64_t bytes = 0;
	for (int64_t i = 0; i < m->n_files; i++)
		bytes += m->files[i].size;
	return bytes;
}

const struct manifest_tensor *ckpt_manifest_find(const struct manifest *m, const char *name)
{
	json_t *at = json_object_get(m->index, name);
	return at ? &m->tensors[json_integer_value(at)] : NULL;
}

/* Tensors and files share the index. The key of a file begins with a slash, which no tensor's name
 * contains. */
static void file_key(const char *name, char key[MANIFEST_FILE_NAME + 2])
{
	snprintf(key, MANIFEST_FILE_NAME + 2, "/%.*s", MANIFEST_FILE_NAME, name);
}

bool ckpt_manifest_has_file(const struct manifest *m, const char *name)
{
	char key[MANIFEST_FILE_NAME + 2];
	file_key(name, key);
	return json_object_get(m->index, key) != NULL;
}

static int check_file_name(const struct manifest *m, const char *name, struct err *e)
{
	return safe_name(name, MANIFEST_FILE_NAME, true)
		       ? 0
		       : err_set(e, ERR_CORRUPT,
				 "file %lld has a name that is empty, too long or not made of "
				 "[A-Za-z0-9._-]",
				 (long long)m->n_files + m->n_attached);
}

/* A name belongs to one file of the checkpoint, shard or attached. */
static int reserve_name(struct manifest *m, const char *name, struct err *e)
{
	char key[MANIFEST_FILE_NAME + 2];
	file_key(name, key);
	if (ckpt_manifest_has_file(m, name) || !strncmp(name, MANIFEST_NAME, strlen(MANIFEST_NAME)))
		return err_set(e, ERR_CORRUPT, "file %s is listed twice", name);
	return json_object_set_new(m->index, key, json_true())
		       ? err_set(e, ERR_NOMEM, "no memory for %lld files",
				 (long long)m->n_files + 1)
		       : 0;
}

int ckpt_manifest_add_file(struct manifest *m, const struct manifest_file *file, struct err *e)
{
	if (check_file_name(m, file->name, e))
		return -1;
	if (m->n_files == MANIFEST_FILES_MAX)
		return err_set(e, ERR_CORRUPT, "more than %d files", MANIFEST_FILES_MAX);
	if (file->header < 8 || file->size < file->header ||
	    file->size > INT64_MAX / MANIFEST_FILES_MAX)
		return err_set(e, ERR_CORRUPT,
			       "file %s: a header of %" PRId64 " bytes in a file of %" PRId64,
			       file->name, file->header, file->size);
	struct manifest_file *files = grow_array(m->files, m->n_files, sizeof *files);
	if (!files)
		return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " files", m->n_files + 1);
	m->files = files;
	if (reserve_name(m, file->name, e))
		return -1;
	m->files[m->n_files++] = *file;
	return 0;
}

int ckpt_manifest_add_attached(struct manifest *m, const struct manifest_attached *file,
			       struct err *e)
{
	if (check_file_name(m, file->name, e))
		return -1;
	if (m->n_attached == MANIFEST_ATTACHED_MAX)
		return err_set(e, ERR_CORRUPT, "more than %d files are carried",
			       MANIFEST_ATTACHED_MAX);
	if (file->size < 0 || file->size > MANIFEST_ATTACHED_BYTES)
		return err_set(e, ERR_CORRUPT,
			       "file %s: has %" PRId64 " bytes; 0 to %d can be carried", file->name,
			       file->size, MANIFEST_ATTACHED_BYTES);
	if (reserve_name(m, file->name, e))
		return -1;
	m->attached[m->n_attached++] = *file;
	return 0;
}

bool ckpt_manifest_is_model_name(const char *text)
{
	size_t n =
		text ? strspn(text,
			      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/")
		     : 0;
	const char *slash = n ? strchr(text, '/') : NULL;
	return n > 0 && n < MANIFEST_FROM && text[n] == '\0' && text[0] != '.' && text[0] != '/' &&
	       text[n - 1] != '/' && (!slash || (!strchr(slash + 1, '/') && slash[1] != '.'));
}

static int check_slice(const struct manifest *m, const char *name, int dims, const int64_t *shape,
		       const struct manifest_slice *s, struct err *e)
{
	int64_t bytes = sizeof(float);
	if (s->file < 0 || s->file >= m->n_files)
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: a slice is in file %" PRId64 " of %" PRId64, name,
			       s->file, m->n_files);
	for (int i = 0; i < dims; i++) {
		if (shape[i] < 1 || s->lo[i] < 0 || s->lo[i] >= s->hi[i] || s->hi[i] > shape[i])
			return err_set(e, ERR_CORRUPT,
				       "tensor %s: the box [%" PRId64 ", %" PRId64
				       ") is empty or outside its %" PRId64 " %s",
				       name, s->lo[i], s->hi[i], shape[i], i ? "columns" : "rows");
		if (__builtin_mul_overflow(bytes, shape[i], &bytes))
			return err_set(e, ERR_CORRUPT,
				       "tensor %s: the product of its shape overflows", name);
	}
	const struct manifest_file *f = &m->files[s->file];
	bytes = ckpt_slice_bytes(s);
	if (s->offset < 0 || s->offset > f->size - f->header ||
	    bytes > f->size - f->header - s->offset)
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: a slice of %" PRId64 " bytes at %" PRId64
			       " goes beyond file %s",
			       name, bytes, s->offset, f->name);
	return 0;
}

/* Finds the tensor of this name, or adds it. */
static struct manifest_tensor *tensor_of(struct manifest *m, const char *name, int dims,
					 const int64_t shape[2], struct err *e)
{
	json_t *at = json_object_get(m->index, name);
	if (at) {
		struct manifest_tensor *t = &m->tensors[json_integer_value(at)];
		if (t->dims == dims && t->shape[0] == shape[0] && t->shape[1] == shape[1])
			return t;
		err_set(e, ERR_CORRUPT, "tensor %s: its slices disagree about its shape", name);
		return NULL;
	}
	struct manifest_tensor *tensors = grow_array(m->tensors, m->n_tensors, sizeof *tensors);
	if (tensors)
		m->tensors = tensors;
	if (!tensors || json_object_set_new(m->index, name, json_integer(m->n_tensors))) {
		err_set(e, ERR_NOMEM, "no memory for %" PRId64 " tensors", m->n_tensors + 1);
		return NULL;
	}
	struct manifest_tensor *t = &m->tensors[m->n_tensors++];
	*t = (struct manifest_tensor){ .dims = dims, .shape = { shape[0], shape[1] } };
	strcpy(t->name, name);
	return t;
}

int ckpt_manifest_add_slice(struct manifest *m, const char *name, int dims, const int64_t *shape,
			    const struct manifest_slice *slice, struct err *e)
{
	if (!safe_name(name, MANIFEST_TENSOR_NAME, false))
		return err_set(e, ERR_CORRUPT,
			       "a tensor has a name that is empty, too long or not made of "
			       "[A-Za-z0-9._-]");
	if (dims < 1 || dims > 2)
		return err_set(e, ERR_CORRUPT, "tensor %s has %d dimensions; 1 or 2 are stored",
			       name, dims);
	int64_t full[2] = { shape[0], dims == 2 ? shape[1] : 1 };
	struct manifest_slice s = *slice;
	if (dims == 1) {
		s.lo[1] = 0;
		s.hi[1] = 1;
	}
	if (check_slice(m, name, dims, full, &s, e))
		return -1;
	struct manifest_tensor *t = tensor_of(m, name, dims, full, e);
	if (!t)
		return -1;
	struct manifest_slice *slices = grow_array(t->slices, t->n, sizeof *slices);
	if (!slices)
		return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " slices", t->n + 1);
	t->slices = slices;
	t->slices[t->n++] = s;
	return 0;
}

int ckpt_manifest_add_sums(struct manifest *m, const char *name, const struct ckpt_sums *sums,
			   struct err *e)
{
	json_t *at = json_object_get(m->index, name);
	if (!at)
		return err_set(e, ERR_INTERNAL, "tensor %.95s: has sums, but no slice", name);
	struct manifest_tensor *t = &m->tensors[json_integer_value(at)];
	t->has_sums = true;
	return ckpt_sums_merge(&t->sums, sums, e);
}

/* The sums count only if all parts of the tensor have some. */
static int merge_tensor(struct manifest *m, const struct manifest_tensor *t, int64_t base,
			struct err *e)
{
	const struct manifest_tensor *known = ckpt_manifest_find(m, t->name);
	bool sums = t->has_sums && (!known || known->has_sums);
	for (int64_t j = 0; j < t->n; j++) {
		struct manifest_slice s = t->slices[j];
		s.file += base;
		if (ckpt_manifest_add_slice(m, t->name, t->dims, t->shape, &s, e))
			return -1;
	}
	if (sums)
		return ckpt_manifest_add_sums(m, t->name, &t->sums, e);
	if (known) /* only here can a tensor of m have sums */
		m->tensors[known - m->tensors].has_sums = false;
	return 0;
}

int ckpt_manifest_merge(struct manifest *m, const struct manifest *from, struct err *e)
{
	int64_t base = m->n_files;
	if (from->state.step != m->state.step || from->generation != m->generation)
		return err_set(e, ERR_STALE, "a shard of step %" PRId64 ", generation %u",
			       from->state.step, from->generation);
	for (int64_t i = 0; i < from->n_files; i++)
		if (ckpt_manifest_add_file(m, &from->files[i], e))
			return -1;
	for (int64_t i = 0; i < from->n_tensors; i++)
		if (merge_tensor(m, &from->tensors[i], base, e))
			return -1;
	return 0;
}

static void write_slice(const struct manifest_slice *s, int dims, struct buf *out)
{
	char hex[DIGEST_HEX];
	ckpt_digest_hex(&s->digest, hex);
	if (dims == 1)
		buf_printf(out, "[%" PRId64 ", %" PRId64 ", [%" PRId64 "], [%" PRId64 "], \"%s\"]",
			   s->file, s->offset, s->lo[0], s->hi[0], hex);
	else
		buf_printf(out,
			   "[%" PRId64 ", %" PRId64 ", [%" PRId64 ", %" PRId64 "], [%" PRId64
			   ", %" PRId64 "], \"%s\"]",
			   s->file, s->offset, s->lo[0], s->lo[1], s->hi[0], s->hi[1], hex);
}

/* Leaves out the zeros at both ends. */
static void write_sums(const struct ckpt_sums *s, struct buf *out)
{
	int64_t first = 0, end = s->at ? s->n : 0;
	while (first < end && !s->at[first])
		first++;
	while (end > first && !s->at[end - 1])
		end--;
	buf_printf(out, ", \"sums\": [%" PRId64 ", \"", first < end ? s->first + first : 0);
	for (int64_t i = first; i < end; i++)
		buf_printf(out, "%016" PRIx64 "%016" PRIx64, (uint64_t)(s->at[i] >> 64),
			   (uint64_t)s->at[i]);
	buf_puts(out, "\"]");
}

static void write_tensor(const struct manifest_tensor *t, bool packed, struct buf *out)
{
	buf_printf(out, "{\"name\": \"%s\", \"dtype\": \"F32\", \"shape\": [%" PRId64, t->name,
		   t->shape[0]);
	if (t->dims == 2)
		buf_printf(out, ", %" PRId64, t->shape[1]);
	buf_puts(out, packed ? "], \"slices\": \"" : "], \"slices\": [");
	if (packed)
		ckpt_packed_write(t, out);
	for (int64_t i = 0; i < t->n && !packed; i++) {
		buf_puts(out, i ? ",\n  " : "");
		write_slice(&t->slices[i], t->dims, out);
	}
	buf_puts(out, packed ? "\"" : "]");
	if (t->has_sums)
		write_sums(&t->sums, out);
	buf_puts(out, "}");
}

static void write_json(const char *key, const json_t *value, struct buf *out)
{
	char *text = value ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	buf_printf(out, "\"%s\": %s,\n", key, text ? text : "{}");
	free(text);
}

static void write_data(const struct ckpt_data *d, struct buf *out)
{
	if (d->samples == 0)
		return;
	json_t *data = json_pack("{s:s, s:f, s:I}", "path", d->path, "validation", d->validation,
				 "samples", (json_int_t)d->samples);
	out->failed |= !data;
	write_json("data", data, out);
	json_decref(data);
}

/* Writes the optional fields. */
static void write_options(const struct ckpt_state *s, struct buf *out)
{
	json_t *numbers = json_object();
	write_data(&s->data, out);
	if (s->optimizer[0])
		buf_printf(out, "\"optimizer\": \"%s\",\n", s->optimizer);
	for (int i = 0; i < s->n_numbers; i++)
		out->failed |= json_object_set_new(numbers, s->numbers[i].name,
						   json_real(s->numbers[i].value)) != 0;
	if (s->n_numbers)
		write_json("numbers", numbers, out);
	json_decref(numbers);
}

static void write_attached(const struct manifest *m, struct buf *out)
{
	for (int i = 0; i < m->n_attached; i++) {
		char hex[DIGEST_HEX];
		ckpt_digest_hex(&m->attached[i].digest, hex);
		buf_printf(out, "%s\n{\"name\": \"%s\", \"size\": %" PRId64 ", \"digest\": \"%s\"}",
			   i ? "," : "\"carried\": [", m->attached[i].name, m->attached[i].size,
			   hex);
	}
	buf_puts(out, m->n_attached ? "],\n" : "");
	if (m->from[0])
		buf_printf(out, "\"from\": \"%s\",\n", m->from);
}

static void write_state_digest(const struct manifest *m, struct buf *out)
{
	struct digest d;
	char hex[DIGEST_HEX];
	int rc = ckpt_state_digest(m, &d, NULL);
	out->failed |= rc < 0;
	if (rc <= 0)
		return;
	ckpt_digest_hex(&d, hex);
	buf_printf(out, "\"state_digest\": \"%s\",\n", hex);
}

static void write_fields(const struct manifest *m, bool packed, struct buf *out)
{
	char hex[DIGEST_HEX];
	buf_printf(out,
		   "\"format\": \"muster-checkpoint\", \"version\": %d,\n\"step\": %" PRId64
		   ", \"samples\": %" PRId64 ", \"seed\": \"%" PRIu64
		   "\", \"total_steps\": %" PRId64 ", \"generation\": %u,\n",
		   packed ? MANIFEST_PACKED : MANIFEST_PLAIN, m->state.step, m->state.samples,
		   m->state.seed, m->state.total_steps, m->generation);
	write_json("model", m->model, out);
	write_json("layout", m->layout, out);
	write_options(&m->state, out);
	write_attached(m, out);
	write_state_digest(m, out);
	buf_puts(out, "\"files\": [");
	for (int64_t i = 0; i < m->n_files; i++) {
		const struct manifest_file *f = &m->files[i];
		ckpt_digest_hex(&f->digest, hex);
		buf_printf(out,
			   "%s\n{\"name\": \"%s\", \"size\": %" PRId64 ", \"header\": %" PRId64
			   ", \"digest\": \"%s\"}",
			   i ? "," : "", f->name, f->size, f->header, hex);
	}
	buf_puts(out, "],\n\"tensors\": [");
	for (int64_t i = 0; i < m->n_tensors; i++) {
		buf_puts(out, i ? ",\n" : "\n");
		write_tensor(&m->tensors[i], packed, out);
	}
	buf_puts(out, "]}\n");
}

void ckpt_manifest_write(const struct manifest *m, struct buf *out)
{
	int64_t slices = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		slices += m->tensors[i].n;
	ckpt_manifest_write_as(m, slices > MANIFEST_PLAIN_SLICES, out);
}

void ckpt_manifest_write_as(const struct manifest *m, bool packed, struct buf *out)
{
	char hex[DIGEST_HEX];
	struct buf fields = BUF_INIT;
	write_fields(m, packed, &fields);
	struct digest d = ckpt_digest_of(buf_str(&fields), fields.len);
	ckpt_digest_hex(&d, hex);
	buf_printf(out, "{\"digest\": \"%s\",\n", hex);
	buf_add(out, fields.data, fields.len);
	out->failed |= fields.failed;
	buf_fini(&fields);
}
