#include "agent/engine/dcp/archive.h"

#include "agent/engine/dcp/zip.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PICKLE_MAX = 1 << 16, KEY = 32 };

static const struct {
	const char *word;
	int size;
} dtypes[] = { { "float32", 4 }, { "float16", 2 }, { "bfloat16", 2 }, { "float64", 8 } };

int dcp_dtype_size(const char *dtype)
{
	for (size_t i = 0; dtype && i < sizeof dtypes / sizeof *dtypes; i++)
		if (!strcmp(dtypes[i].word, dtype))
			return dtypes[i].size;
	return 0;
}

struct source {
	int fd;
	const char *name;
	const struct dcp_tensor *tensor;
	struct dcp_chunk *chunk;
	struct err *e;
};

static int fail(const struct source *s, const char *why)
{
	return err_set(s->e, ERR_CORRUPT, "%s: tensor %.100s: %s; save the checkpoint again",
		       s->name, s->tensor->name, why);
}

/* What a storage is: its dtype, its entry's name, and how many elements it has. */
struct storage {
	const char *dtype;
	char key[KEY];
	int64_t elements;
};

static int read_storage(const struct source *s, const struct dcp_value *v, struct storage *out)
{
	const struct dcp_value *id = v && v->kind == DCP_PERSISTENT ? v->args : NULL;
	const struct dcp_value *class = dcp_value_item(id, 1), *key = dcp_value_item(id, 2);
	if (!dcp_value_is_text(dcp_value_item(id, 0), "storage") || !class ||
	    class->kind != DCP_GLOBAL || class->global->means != DCP_MEANS_STORAGE || !key ||
	    key->kind != DCP_TEXT || key->length == 0 || key->length > KEY - 8 ||
	    memchr(key->text, '\0', key->length) ||
	    !dcp_value_int(dcp_value_item(id, 4), &out->elements) || out->elements < 0)
		return fail(s, "its storage is invalid");
	out->dtype = class->global->dtype;
	snprintf(out->key, sizeof out->key, "data/%.*s", (int)key->length, key->text);
	return 0;
}

/* Proves that offset and strides stay inside the storage. */
static int check_strides(const struct source *s, const struct dcp_archive *a, int64_t offset,
			 int64_t elements)
{
	int64_t last = offset, reach;
	for (int d = 0; d < s->tensor->dims; d++)
		if (__builtin_mul_overflow(a->size[d] - 1, a->stride[d], &reach) ||
		    __builtin_add_overflow(last, reach, &last))
			return fail(s, "its strides are invalid");
	return last < elements ? 0 : fail(s, "its strides lead out of its storage");
}

static int read_tensor(const struct source *s, const struct dcp_value *root,
		       const struct dcp_zip *z, struct dcp_archive *out)
{
	const struct dcp_chunk *c = s->chunk;
	struct storage storage;
	int64_t offset, bytes;
	int dims = s->tensor->dims;
	if (dcp_value_is_object(root, DCP_MEANS_REBUILD_PARAMETER))
		root = dcp_value_item(root->args, 0);
	if (!dcp_value_is_object(root, DCP_MEANS_REBUILD_TENSOR))
		return fail(s, "its archive does not hold a plain tensor");
	if (read_storage(s, dcp_value_item(root->args, 0), &storage))
		return -1;
	if (!dcp_value_int(dcp_value_item(root->args, 1), &offset) || offset < 0 ||
	    dcp_value_numbers(dcp_value_item(root->args, 2), out->size, DCP_DIMS) != dims ||
	    dcp_value_numbers(dcp_value_item(root->args, 3), out->stride, DCP_DIMS) != dims)
		return fail(s, "its shape is invalid");
	for (int d = 0; d < dims; d++)
		if (out->size[d] != c->hi[d] - c->lo[d])
			return fail(s, "its shape is not that of the chunk in " DCP_METADATA_NAME);
	if (strcmp(storage.dtype, s->tensor->dtype))
		return fail(s, "its dtype is not that of " DCP_METADATA_NAME);
	const struct dcp_zip_entry *entry = dcp_zip_find(z, storage.key);
	if (!entry ||
	    __builtin_mul_overflow(storage.elements, dcp_dtype_size(storage.dtype), &bytes) ||
	    bytes != entry->size)
		return fail(s, "its storage has another size than its archive");
	if (check_strides(s, out, offset, storage.elements))
		return -1;
	out->dtype = storage.dtype;
	out->at = entry->at + offset * dcp_dtype_size(storage.dtype);
	if (!s->chunk->checked && dcp_zip_check(s->fd, entry, s->name, s->e))
		return -1;
	s->chunk->checked = true;
	return 0;
}

static int check_byteorder(const struct source *s, const struct dcp_zip *z)
{
	const struct dcp_zip_entry *entry = dcp_zip_find(z, "byteorder");
	char word[6];
	if (!entry)
		return 0; /* PyTorch before 2.1; little-endian */
	if (entry->size == sizeof word && !file_pread_full(s->fd, word, sizeof word, entry->at) &&
	    !memcmp(word, "little", sizeof word))
		return 0;
	return err_set(s->e, ERR_UNSUPPORTED,
		       "%s: its numbers are not little-endian; save it on another machine",
		       s->name);
}

static int read_members(const struct source *s, const struct dcp_zip *z, struct dcp_archive *out)
{
	const struct dcp_zip_entry *entry = dcp_zip_find(z, "data.pkl");
	struct dcp_pickle pickle;
	char *text;
	if (!entry || entry->size > PICKLE_MAX)
		return fail(s, "its archive has no data.pkl of a tensor");
	if (check_byteorder(s, z) || dcp_zip_check(s->fd, entry, s->name, s->e))
		return -1;
	if (!(text = malloc((size_t)entry->size + 1)))
		return err_set(s->e, ERR_NOMEM, "%s: no memory to read it", s->name);
	int rc = file_pread_full(s->fd, text, (size_t)entry->size, entry->at)
			 ? err_errno(s->e, ERR_IO, "%s: cannot read it", s->name)
			 : dcp_pickle_parse(text, (size_t)entry->size, s->name, &pickle, s->e);
	if (!rc) {
		rc = read_tensor(s, pickle.root, z, out);
		dcp_pickle_free(&pickle);
	}
	free(text);
	return rc;
}

int dcp_archive_read(int fd, const char *name, const struct dcp_tensor *t, struct dcp_chunk *c,
		     struct dcp_archive *out, struct err *e)
{
	const struct source s = { .fd = fd, .name = name, .tensor = t, .chunk = c, .e = e };
	struct dcp_zip z;
	*out = (struct dcp_archive){ 0 };
	if (dcp_zip_read(fd, c->at, c->length, name, &z, e))
		return -1;
	int rc = read_members(&s, &z, out);
	dcp_zip_free(&z);
	return rc;
}
