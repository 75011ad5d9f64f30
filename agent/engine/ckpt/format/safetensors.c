#include "agent/engine/ckpt/format/safetensors.h"

#include "base/file.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* clang-format off */
static const struct {
	const char *name;
	int64_t size;
} dtypes[] = {
	{ "BOOL", 1 }, { "U8", 1 },  { "I8", 1 },  { "F8_E5M2", 1 }, { "F8_E4M3", 1 },
	{ "I16", 2 },  { "U16", 2 }, { "F16", 2 }, { "BF16", 2 },    { "I32", 4 },
	{ "U32", 4 },  { "F32", 4 }, { "F64", 8 }, { "I64", 8 },     { "U64", 8 },
};
/* clang-format on */

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int find_dtype(const char *name)
{
	for (int i = 0; i < DTYPES; i++)
		if (!strcmp(dtypes[i].name, name))
			return i;
	return -1;
}

/* Bytes per element; 0: the name is not a dtype. */
static int64_t dtype_size(const char *dtype)
{
	int i = find_dtype(dtype);
	return i < 0 ? 0 : dtypes[i].size;
}

static int bad(struct err *e, const char *file, const char *tensor, const char *what)
{
	return err_set(e, ERR_CORRUPT, "%s: tensor %.100s: %s", file, tensor, what);
}

/* --- reading --- */

static int read_dtype(json_t *v, const char *file, struct st_tensor *t, struct err *e)
{
	int i = json_is_string(v) ? find_dtype(json_string_value(v)) : -1;
	if (i < 0)
		return bad(e, file, t->name, "dtype is missing or none of the format's");
	t->dtype = dtypes[i].name;
	return 0;
}

static int read_shape(json_t *v, const char *file, struct st_tensor *t, struct err *e)
{
	if (!json_is_array(v))
		return bad(e, file, t->name, "shape is missing or no array");
	if (json_array_size(v) > ST_DIMS)
		return bad(e, file, t->name, "shape has more than 8 dimensions");
	t->dims = (int)json_array_size(v);
	for (int i = 0; i < t->dims; i++) {
		json_t *dim = json_array_get(v, (size_t)i);
		if (!json_is_integer(dim) || json_integer_value(dim) < 0)
			return bad(e, file, t->name,
				   "shape has a value that is not an integer of at least 0");
		t->shape[i] = json_integer_value(dim);
	}
	return 0;
}

static int read_offsets(json_t *v, const char *file, struct st_tensor *t, struct err *e)
{
	if (!json_is_array(v) || json_array_size(v) != 2)
		return bad(e, file, t->name, "data_offsets is missing or not two numbers");
	json_t *begin = json_array_get(v, 0), *end = json_array_get(v, 1);
	if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0)
		return bad(e, file, t->name,
			   "data_offsets has a value that is not an integer of at least 0");
	t->begin = json_integer_value(begin);
	t->end = json_integer_value(end);
	if (t->end < t->begin)
		return bad(e, file, t->name, "data_offsets end before they begin");
	return 0;
}

static int check_size(const char *file, const struct st_tensor *t, struct err *e)
{
	int64_t size = dtype_size(t->dtype);
	for (int i = 0; i < t->dims; i++)
		if (__builtin_mul_overflow(size, t->shape[i], &size))
			return bad(e, file, t->name, "the product of its shape overflows");
	if (size != t->end - t->begin)
		return err_set(
			e, ERR_CORRUPT,
			"%s: tensor %.100s: its shape needs %lld bytes, its data_offsets hold %lld",
			file, t->name, (long long)size, (long long)(t->end - t->begin));
	return 0;
}

static int read_tensor(const char *name, json_t *v, const char *file, struct st_tensor *t,
		       struct err *e)
{
	t->name = name;
	if (!json_is_object(v))
		return bad(e, file, name, "is not an object");
	if (read_dtype(json_object_get(v, "dtype"), file, t, e) ||
	    read_shape(json_object_get(v, "shape"), file, t, e) ||
	    read_offsets(json_object_get(v, "data_offsets"), file, t, e))
		return -1;
	if (json_object_size(v) != 3)
		return bad(e, file, name, "has fields besides dtype, shape and data_offsets");
	return check_size(file, t, e);
}

static int check_metadata(json_t *v, const char *file, struct err *e)
{
	const char *key;
	json_t *text;
	if (!json_is_object(v))
		return err_set(e, ERR_CORRUPT, "%s: __metadata__ is not an object", file);
	json_object_foreach(v, key, text) if (!json_is_string(text)) return err_set(
		e, ERR_CORRUPT, "%s: __metadata__: %.100s is not a string", file, key);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/* Checks that, sorted by offset, each tensor begins where the previous one ends, and that the last
 * one ends with the file. */
static int check_tiling(struct st_header *h, int64_t buffer, const char *file, struct err *e)
{
	int64_t at = 0;
	qsort(h->tensors, (size_t)h->n, sizeof *h->tensors, by_place);
	for (int64_t i = 0; i < h->n; i++) {
		const struct st_tensor *t = &h->tensors[i];
		if (t->begin != at)
			return err_set(e, ERR_CORRUPT,
				       "%s: tensor %.100s begins at byte %lld, %s %lld", file,
				       t->name, (long long)t->begin,
				       t->begin < at ? "overlapping the one that ends at"
						     : "leaving a hole behind",
				       (long long)at);
		at = t->end;
	}
	if (at != buffer)
		return err_set(
			e, ERR_CORRUPT,
			"%s: its tensors end at byte %lld, its buffer at %lld: the file was cut or "
			"something was added",
			file, (long long)at, (long long)buffer);
	return 0;
}

static int read_tensors(struct st_header *h, const char *file, struct err *e)
{
	const char *key;
	json_t *v;
	h->tensors = calloc(json_object_size(h->json) + 1, sizeof *h->tensors);
	if (!h->tensors)
		return err_set(e, ERR_NOMEM, "%s: no memory for its %zu tensors", file,
			       json_object_size(h->json));
	json_object_foreach(h->json, key, v)
	{
		if (!strcmp(key, "__metadata__")) {
			if (check_metadata(v, file, e))
				return -1;
			h->metadata = v;
		} else if (read_tensor(key, v, file, &h->tensors[h->n++], e)) {
			return -1;
		}
	}
	return 0;
}

/* Reads the length N and checks that the header is inside the file. */
static int read_length(const void *data, size_t have, int64_t file_size, const char *file,
		       int64_t *n, struct err *e)
{
	uint64_t le;
	if (file_size < 8 || have < 8)
		return err_set(e, ERR_CORRUPT, "%s: %lld bytes are too few for a safetensors file",
			       file, (long long)file_size);
	memcpy(&le, data, sizeof le);
	uint64_t length = le64toh(le);
	if (length > ST_HEADER_MAX)
		return err_set(
			e, ERR_CORRUPT,
			"%s: says that its header has %llu bytes, %d is the most there may be",
			file, (unsigned long long)length, ST_HEADER_MAX);
	if ((int64_t)length > file_size - 8)
		return err_set(e, ERR_CORRUPT,
			       "%s: its header of %llu bytes goes beyond its end at %lld: the file "
			       "was cut",
			       file, (unsigned long long)length, (long long)file_size);
	*n = (int64_t)length;
	return 0;
}

int ckpt_safetensors_parse(const void *data, size_t have, int64_t file_size, const char *name,
			   struct st_header *out, struct err *e)
{
	struct st_header h = { 0 };
	json_error_t je;
	int64_t length;
	if (read_length(data, have, file_size, name, &length, e))
		return -1;
	const char *text = (const char *)data + 8;
	if (length > (int64_t)have - 8)
		return err_set(e, ERR_INTERNAL, "%s: read %zu bytes for a header of %lld", name,
			       have, (long long)length);
	if (length == 0 || text[0] != '{')
		return err_set(e, ERR_CORRUPT,
			       "%s: its header does not start with {: not a safetensors file",
			       name);
	h.json = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &je);
	if (!h.json)
		return err_set(e, ERR_CORRUPT, "%s: its header is not JSON: %s at byte %d", name,
			       je.text, je.position + 8);
	h.data_at = 8 + length;
	if (read_tensors(&h, name, e) || check_tiling(&h, file_size - h.data_at, name, e)) {
		ckpt_safetensors_header_fini(&h);
		return -1;
	}
	*out = h;
	return 0;
}

int ckpt_safetensors_read(int fd, const char *name, struct st_header *out, struct err *e)
{
	struct stat st;
	unsigned char first[8];
	int64_t length;
	if (fstat(fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", name);
	size_t have = st.st_size < 8 ? 0 : 8;
	if (have && file_pread_full(fd, first, have, 0))
		return err_errno(e, ERR_IO, "%s: cannot read", name);
	if (read_length(first, have, st.st_size, name, &length, e))
		return -1;
	char *text = malloc((size_t)length + 8);
	if (!text)
		return err_set(e, ERR_NOMEM, "%s: no memory for a header of %lld bytes", name,
			       (long long)length);
	int rc;
	if (file_pread_full(fd, text, (size_t)length + 8, 0))
		rc = err_errno(e, ERR_IO, "%s: cannot read", name);
	else
		rc = ckpt_safetensors_parse(text, (size_t)length + 8, st.st_size, name, out, e);
	free(text);
	return rc;
}

void ckpt_safetensors_header_fini(struct st_header *h)
{
	free(h->tensors);
	json_decref(h->json);
	*h = (struct st_header){ 0 };
}

/* --- writing --- */

static json_t *tensor_json(const struct st_tensor *t)
{
	json_t *shape = json_array();
	for (int i = 0; i < t->dims; i++)
		json_array_append_new(shape, json_integer(t->shape[i]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets",
			 (json_int_t)t->begin, (json_int_t)t->end);
}

int ckpt_safetensors_write_header(const struct st_tensor *tensors, int64_t n,
				  const json_t *metadata, struct buf *out, struct err *e)
{
	int rc = -1;
	char *text = NULL;
	json_t *root = json_object();
	if (metadata && json_object_set_new(root, "__metadata__", json_deep_copy(metadata)))
		goto nomem;
	for (int64_t i = 0; i < n; i++)
		if (json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i])))
			goto nomem;
	text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
	if (!text)
		goto nomem;
	size_t length = strlen(text), padded = (length + 7) / 8 * 8;
	if (padded > ST_HEADER_WRITTEN) {
		err_set(e, ERR_UNSUPPORTED,
			"a header of %zu bytes is more than readers take; give a shard fewer "
			"tensors",
			padded);
		goto done;
	}
	uint64_t le = htole64(padded);
	buf_add(out, &le, sizeof le);
	buf_add(out, text, length);
	buf_add(out, "       ", padded - length);
	if (buf_failed(out))
		goto nomem;
	rc = 0;
	goto done;
nomem:
	err_set(e, ERR_NOMEM, "no memory for a header of %lld tensors", (long long)n);
done:
	free(text);
	json_decref(root);
	return rc;
}
