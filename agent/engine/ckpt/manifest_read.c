#include "agent/engine/ckpt/manifest.h"
#include "agent/engine/ckpt/storage.h"
#include "base/json_member.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, PREFIX = 12, FIRST_LINE = PREFIX + 2 * DIGEST_BYTES + 3, FIELDS = 12 };

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
	if (version != VERSION)
		return err_set(e, ERR_UNSUPPORTED,
			       "version %" PRId64 " of the format, this muster reads %d", version,
			       VERSION);
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

static int read_tensor(json_t *v, struct manifest *m, struct err *e)
{
	int64_t shape[2] = { 0, 1 };
	const char *name = json_string_value(json_object_get(v, "name"));
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	json_t *dims = json_object_get(v, "shape"), *slices = json_object_get(v, "slices"), *slice;
	size_t i;
	if (!name)
		return malformed(e, "a tensor has no name");
	if (ckpt_manifest_find(m, name))
		return err_set(e, ERR_CORRUPT, "tensor %.100s is listed twice", name);
	if (!dtype || strcmp(dtype, "F32"))
		return err_set(e, ERR_UNSUPPORTED, "tensor %.100s: dtype is %.20s, F32 is stored",
			       name, dtype ? dtype : "missing");
	if (json_array_size(dims) < 1 || json_array_size(dims) > 2 || json_array_size(slices) < 1)
		return err_set(
			e, ERR_CORRUPT,
			"tensor %.100s: its shape has not 1 or 2 numbers, or it has no slices",
			name);
	if (read_numbers(dims, (int)json_array_size(dims), shape, e))
		return err_prefix(e, "tensor %.100s", name);
	json_array_foreach(slices, i,
			   slice) if (read_slice(slice, name, (int)json_array_size(dims), shape, m,
						 e)) return err_prefix(e, "tensor %.100s", name);
	return 0;
}

static int read_lists(json_t *root, struct manifest *m, struct err *e)
{
	json_t *files = json_object_get(root, "files"), *tensors = json_object_get(root, "tensors"),
	       *v;
	size_t i;
	if (!json_is_array(files) || !json_is_array(tensors))
		return malformed(e, "files or tensors is missing");
	json_array_foreach(files, i, v) if (read_file(v, m, e)) return -1;
	json_array_foreach(tensors, i, v) if (read_tensor(v, m, e)) return -1;
	if (read_attached(root, m, e))
		return -1;
	if (json_object_size(root) != FIELDS + count_options(m))
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
