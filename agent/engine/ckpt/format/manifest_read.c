#include "agent/engine/ckpt/format/manifest.h"

#include "agent/engine/ckpt/format/packed.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/engine/ckpt/storage/storage.h"
#include "base/json_member.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 12, FIRST_LINE = PREFIX + 2 * DIGEST_BYTES + 3, FIELDS = 12 };

static int malformed(struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT, "%s", what);
}

/* The first line is compared byte by byte and the rest by its digest, so that every change is
 * detected. */
static int check_digest(const char *text, size_t n, struct err *e)
{
	char line[FIRST_LINE + 1], hex[DIGEST_HEX];
	if (n < FIRST_LINE)
		return malformed(e, "too short: the file was cut");
	struct digest d = ckpt_digest_of(text + FIRST_LINE, n - FIRST_LINE);
	ckpt_digest_hex(&d, hex);
	snprintf(line, sizeof line, "{\"digest\": \"%s\",\n", hex);
	if (memcmp(text, line, FIRST_LINE))
		return malformed(
			e, "its digest does not fit its contents: the file was cut or changed");
	return 0;
}

static int get_seed(json_t *at, uint64_t *out, struct err *e)
{
	char *end;
	const char *text = json_string_value(json_object_get(at, "seed"));
	errno = 0;
	uint64_t seed = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10)
								 : (errno = EINVAL, 0);
	if (errno || *end)
		return malformed(e, "seed is missing or is not a number in a string");
	*out = seed;
	return 0;
}

static int get_digest(json_t *v, struct digest *out, struct err *e)
{
	if (!json_is_string(v) || !ckpt_digest_parse(json_string_value(v), out))
		return malformed(e, "a digest is missing or not 32 hex digits");
	return 0;
}

static int get_sum(const char *hex, ckpt_sum *out, struct err *e)
{
	char digits[DIGEST_HEX];
	struct digest d;
	snprintf(digits, sizeof digits, "%.32s", hex);
	if (!ckpt_digest_parse(digits, &d))
		return malformed(e, "a sum is not 32 hex digits");
	*out = 0;
	for (int i = 0; i < DIGEST_BYTES; i++)
		*out = *out << 8 | d.bytes[i];
	return 0;
}

/* Manifests of older versions do not have this field. */
static int read_data(json_t *root, struct ckpt_data *d, struct err *e)
{
	json_t *v = json_object_get(root, "data"), *share = json_object_get(v, "validation");
	const char *path = json_string_value(json_object_get(v, "path"));
	if (!v)
		return 0;
	if (!path || strlen(path) >= sizeof d->path || !json_is_number(share) ||
	    json_object_size(v) != 3)
		return malformed(e, "data is not {path, validation, samples}");
	strcpy(d->path, path);
	d->validation = json_number_value(share);
	return json_member_int64(v, "samples", 1, INT64_MAX, &d->samples, e);
}

/* Names and words have the same letters, because messages contain them without quoting. */
static int read_options(json_t *root, struct ckpt_state *s, struct err *e)
{
	json_t *word = json_object_get(root, "optimizer"),
	       *numbers = json_object_get(root, "numbers"), *v;
	const char *key;
	if (word && !ckpt_word(json_string_value(word)))
		return malformed(e, "optimizer is not a word");
	snprintf(s->optimizer, sizeof s->optimizer, "%s", word ? json_string_value(word) : "");
	if (numbers && !json_object_size(numbers))
		return malformed(e, "numbers is not an object, or is empty");
	json_object_foreach(
		numbers, key,
		v) if (!json_is_number(v) ||
		       ckpt_number_set(
			       s, key, json_number_value(v),
			       NULL)) return malformed(e, "numbers holds a name or a number that "
							  "cannot be, or too many of them");
	return 0;
}

/* Reads the optional fields. */
static size_t count_options(const struct manifest *m)
{
	const struct ckpt_state *s = &m->state;
	return (s->data.samples > 0) + (s->optimizer[0] != '\0') + (s->n_numbers > 0) +
	       (m->n_attached > 0) + (m->from[0] != '\0');
}

static int read_state(json_t *root, struct manifest *m, struct err *e)
{
	struct ckpt_state s = { 0 };
	int64_t version, generation;
	const char *format = json_string_value(json_object_get(root, "format"));
	if (!format || strcmp(format, "muster-checkpoint"))
		return malformed(e, "format is not \"muster-checkpoint\"");
	if (json_member_int64(root, "version", 1, INT64_MAX, &version, e))
		return -1;
	if (version != MANIFEST_PLAIN && version != MANIFEST_PACKED)
		return err_set(e, ERR_UNSUPPORTED,
			       "version %" PRId64 " of the format, this muster reads %d and %d",
			       version, MANIFEST_PLAIN, MANIFEST_PACKED);
	if (json_member_int64(root, "step", 0, INT64_MAX, &s.step, e) ||
	    json_member_int64(root, "samples", 0, INT64_MAX, &s.samples, e) ||
	    json_member_int64(root, "total_steps", 0, INT64_MAX, &s.total_steps, e) ||
	    json_member_int64(root, "generation", 0, INT64_MAX, &generation, e) ||
	    get_seed(root, &s.seed, e) || read_data(root, &s.data, e) || read_options(root, &s, e))
		return -1;
	json_t *model = json_object_get(root, "model"), *layout = json_object_get(root, "layout");
	if (generation > UINT32_MAX || !json_is_object(model) || !json_is_object(layout))
		return malformed(e, "generation is too large, or model or layout is not an object");
	ckpt_manifest_init(m, &s, (uint32_t)generation, model, layout);
	return 0;
}

static int read_file(json_t *v, struct manifest *m, struct err *e)
{
	struct manifest_file f;
	const char *name = json_string_value(json_object_get(v, "name"));
	if (!name || strlen(name) >= sizeof f.name)
		return malformed(e, "a file has no name or too long a one");
	strcpy(f.name, name);
	if (json_member_int64(v, "size", 0, INT64_MAX, &f.size, e) ||
	    json_member_int64(v, "header", 0, INT64_MAX, &f.header, e) ||
	    get_digest(json_object_get(v, "digest"), &f.digest, e))
		return err_prefix(e, "file %s", f.name);
	return ckpt_manifest_add_file(m, &f, e);
}

static int read_attached_file(json_t *v, struct manifest *m, struct err *e)
{
	struct manifest_attached f;
	const char *name = json_string_value(json_object_get(v, "name"));
	if (!name || strlen(name) >= sizeof f.name)
		return malformed(e, "a carried file has no name or too long a one");
	strcpy(f.name, name);
	if (json_member_int64(v, "size", 0, INT64_MAX, &f.size, e) ||
	    get_digest(json_object_get(v, "digest"), &f.digest, e))
		return err_prefix(e, "file %s", f.name);
	return ckpt_manifest_add_attached(m, &f, e);
}

/* Manifests of older versions do not have this field. */
static int read_attached(json_t *root, struct manifest *m, struct err *e)
{
	json_t *list = json_object_get(root, "carried"), *from = json_object_get(root, "from"), *v;
	size_t i;
	if (list && json_array_size(list) == 0)
		return malformed(e, "carried is not a list of files, or is empty");
	json_array_foreach(list, i, v) if (read_attached_file(v, m, e)) return -1;
	if (from && !ckpt_manifest_is_model_name(json_string_value(from)))
		return malformed(e, "from is not the name of a model");
	snprintf(m->from, sizeof m->from, "%s", from ? json_string_value(from) : "");
	return 0;
}

static int read_numbers(json_t *v, int n, int64_t *out, struct err *e)
{
	if (!json_is_array(v) || json_array_size(v) != (size_t)n)
		return malformed(
			e, "a list of numbers is missing or has another length than the shape");
	for (int i = 0; i < n; i++) {
		json_t *x = json_array_get(v, (size_t)i);
		if (!json_is_integer(x))
			return malformed(e,
					 "a list of integers has a value that is not an integer");
		out[i] = json_integer_value(x);
	}
	return 0;
}

static int read_slice(json_t *v, const char *name, int dims, const int64_t *shape,
		      struct manifest *m, struct err *e)
{
	struct manifest_slice s = { 0 };
	json_t *file = json_array_get(v, 0), *offset = json_array_get(v, 1);
	if (json_array_size(v) != 5 || !json_is_integer(file) || !json_is_integer(offset))
		return malformed(e, "a slice is not [file, offset, [lo], [hi], digest]");
	s.file = json_integer_value(file);
	s.offset = json_integer_value(offset);
	if (read_numbers(json_array_get(v, 2), dims, s.lo, e) ||
	    read_numbers(json_array_get(v, 3), dims, s.hi, e) ||
	    get_digest(json_array_get(v, 4), &s.digest, e))
		return -1;
	return ckpt_manifest_add_slice(m, name, dims, shape, &s, e);
}

/* Manifests of older versions do not have this field. Sums of blocks that the tensor does not have
 * are refused. */
static int read_sums(json_t *v, const char *name, struct manifest *m, struct err *e)
{
	const struct manifest_tensor *t = ckpt_manifest_find(m, name);
	json_t *first = json_array_get(v, 0), *text = json_array_get(v, 1);
	size_t length = json_string_length(text);
	if (json_array_size(v) != 2 || !json_is_integer(first) || !json_is_string(text) ||
	    length % (2 * DIGEST_BYTES))
		return malformed(e, "sums is not [first block, hex digits]");
	struct ckpt_sums sums = { .first = json_integer_value(first),
				  .n = (int64_t)(length / (2 * DIGEST_BYTES)) };
	int64_t blocks = ckpt_blocks_of(t->dims, t->shape).n;
	if (sums.first < 0 || sums.first >= blocks || sums.n > blocks - sums.first)
		return malformed(e, "sums has blocks that the tensor does not have");
	sums.at = calloc((size_t)sums.n + 1, sizeof *sums.at);
	if (!sums.at)
		return err_set(e, ERR_NOMEM, "no memory for the sums of %" PRId64 " blocks",
			       sums.n);
	int rc = sums.n ? 0 : ckpt_manifest_add_sums(m, name, &(struct ckpt_sums){ 0 }, e);
	for (int64_t i = 0; i < sums.n && !rc; i++)
		rc = get_sum(json_string_value(text) + i * 2 * DIGEST_BYTES, &sums.at[i], e);
	if (!rc && sums.n)
		rc = ckpt_manifest_add_sums(m, name, &sums, e);
	ckpt_sums_fini(&sums);
	return rc;
}

/* The tensor that packed slices belong to. */
struct target {
	struct manifest *m;
	const char *name;
	int dims;
	const int64_t *shape;
};

static int add_slice(void *arg, const struct manifest_slice *s, struct err *e)
{
	const struct target *t = arg;
	return ckpt_manifest_add_slice(t->m, t->name, t->dims, t->shape, s, e);
}

/* v: a list or, if `packed`, a string; in both at least one slice. */
static int read_slices(json_t *v, bool packed, const struct target *t, struct err *e)
{
	json_t *slice;
	size_t i;
	if (packed)
		return ckpt_packed_read(json_string_value(v), json_string_length(v), t->dims,
					add_slice, (void *)t, e);
	json_array_foreach(v, i, slice) if (read_slice(slice, t->name, t->dims, t->shape, t->m,
						       e)) return -1;
	return 0;
}

static int read_tensor(json_t *v, bool packed, struct manifest *m, struct err *e)
{
	int64_t shape[2] = { 0, 1 };
	const char *name = json_string_value(json_object_get(v, "name"));
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	json_t *dims = json_object_get(v, "shape"), *slices = json_object_get(v, "slices");
	size_t n = packed ? json_string_length(slices) : json_array_size(slices);
	if (!name)
		return malformed(e, "a tensor has no name");
	if (ckpt_manifest_find(m, name))
		return err_set(e, ERR_CORRUPT, "tensor %.100s is listed twice", name);
	if (!dtype || strcmp(dtype, "F32"))
		return err_set(e, ERR_UNSUPPORTED, "tensor %.100s: dtype is %.20s, F32 is stored",
			       name, dtype ? dtype : "missing");
	if (json_array_size(dims) < 1 || json_array_size(dims) > 2 || n < 1)
		return err_set(
			e, ERR_CORRUPT,
			"tensor %.100s: its shape has not 1 or 2 numbers, or it has no slices",
			name);
	if (read_numbers(dims, (int)json_array_size(dims), shape, e))
		return err_prefix(e, "tensor %.100s", name);
	const struct target to = { m, name, (int)json_array_size(dims), shape };
	if (read_slices(slices, packed, &to, e))
		return err_prefix(e, "tensor %.100s", name);
	json_t *sums = json_object_get(v, "sums");
	return sums && read_sums(sums, name, m, e) ? err_prefix(e, "tensor %.100s", name) : 0;
}

/* The digest is there if and only if it can be computed. */
static int check_state_digest(json_t *root, const struct manifest *m, struct err *e)
{
	json_t *v = json_object_get(root, "state_digest");
	struct digest computed, stated;
	int rc = ckpt_state_digest(m, &computed, e);
	if (rc < 0 || (v && get_digest(v, &stated, e)))
		return -1;
	if ((rc == 1) != (v != NULL) || (v && !ckpt_digest_equal(&computed, &stated)))
		return malformed(e, "state_digest is not that of the tensors' sums");
	return 0;
}

static int read_lists(json_t *root, struct manifest *m, struct err *e)
{
	json_t *files = json_object_get(root, "files"), *tensors = json_object_get(root, "tensors"),
	       *v;
	bool packed = json_integer_value(json_object_get(root, "version")) == MANIFEST_PACKED;
	size_t i;
	if (!json_is_array(files) || !json_is_array(tensors))
		return malformed(e, "files or tensors is missing");
	json_array_foreach(files, i, v) if (read_file(v, m, e)) return -1;
	json_array_foreach(tensors, i, v) if (read_tensor(v, packed, m, e)) return -1;
	if (read_attached(root, m, e))
		return -1;
	if (check_state_digest(root, m, e))
		return -1;
	if (json_object_size(root) !=
	    FIELDS + count_options(m) + (json_object_get(root, "state_digest") != NULL))
		return malformed(e, "it has fields that this muster does not know");
	return 0;
}

int ckpt_manifest_parse(const char *text, size_t n, const char *name, struct manifest *out,
			struct err *e)
{
	struct manifest m = { 0 };
	json_error_t je;
	if (check_digest(text, n, e))
		return err_prefix(e, "%s", name);
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
	if (!root)
		return err_set(e, ERR_CORRUPT, "%s:%d: not JSON: %s", name, je.line, je.text);
	int rc = json_is_object(root) ? 0 : malformed(e, "not a JSON object");
	if (!rc)
		rc = read_state(root, &m, e);
	if (!rc)
		rc = read_lists(root, &m, e);
	json_decref(root);
	if (rc) {
		ckpt_manifest_fini(&m);
		return err_prefix(e, "%s", name);
	}
	*out = m;
	return 0;
}

int ckpt_manifest_read_text(const struct ckpt_storage *storage, const char *path, struct buf *text,
			    struct err *e)
{
	char name[PATH_MAX];
	struct err why = ERR_INIT;
	if (ckpt_storage_join(name, sizeof name, path, MANIFEST_NAME, e))
		return -1;
	if (!ckpt_storage_read_whole(storage, name, MANIFEST_BYTES_MAX, text, &why))
		return 0;
	if (why.code != ERR_NOTFOUND)
		return err_set(e, why.code, "%s", why.text);
	return err_set(e, ERR_NOTFOUND,
		       "%s: no such file, so %s is not a checkpoint; name one such as "
		       "step-00000400",
		       name, path);
}

int ckpt_manifest_parse_of(const char *path, const struct buf *text, struct manifest *out,
			   struct err *e)
{
	char name[PATH_MAX];
	struct manifest m;
	if (ckpt_storage_join(name, sizeof name, path, MANIFEST_NAME, e) ||
	    ckpt_manifest_parse(text->data, text->len, name, &m, e))
		return -1;
	if (ckpt_manifest_prove(&m, e)) {
		ckpt_manifest_fini(&m);
		return err_prefix(e, "%s", name);
	}
	*out = m;
	return 0;
}

int ckpt_manifest_load_from(const struct ckpt_storage *storage, const char *path,
			    struct manifest *out, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = ckpt_manifest_read_text(storage, path, &text, e) ||
		 ckpt_manifest_parse_of(path, &text, out, e);
	buf_fini(&text);
	return rc ? -1 : 0;
}

int ckpt_manifest_load(const char *path, struct manifest *out, struct err *e)
{
	return ckpt_manifest_load_from(ckpt_storage_of(path), path, out, e);
}

static char *text_of(const json_t *v)
{
	return v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS |
					 JSON_REAL_PRECISION(9))
		 : NULL;
}

static int check_field(const char *key, const json_t *have, const json_t *want, struct err *e)
{
	if (have && want && json_equal(have, want))
		return 0;
	char *h = text_of(have), *w = text_of(want);
	err_set(e, ERR_USAGE,
		"model.%s: the checkpoint has %.200s, this job %.200s; resume with the same model, "
		"or "
		"give the run another checkpoint.dir",
		key, h ? h : "none", w ? w : "none");
	free(h);
	free(w);
	return -1;
}

int ckpt_manifest_check_model(const struct manifest *m, json_t *want, struct err *e)
{
	const char *key;
	json_t *v, *all = want ? want : m->model;
	json_object_foreach(all, key, v) if (check_field(key, json_object_get(m->model, key), v,
							 e)) return -1;
	json_object_foreach(m->model, key,
			    v) if (check_field(key, v, json_object_get(all, key), e)) return -1;
	return 0;
}
