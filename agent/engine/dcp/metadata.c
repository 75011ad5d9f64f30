#include "agent/engine/dcp/metadata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An entry of storage_data. */
struct dcp_place {
	const struct dcp_value *fqn; /* a text */
	int dims;
	int64_t offset[DCP_DIMS];
	const struct dcp_value *info;
};

static int fail(const char *name, struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT,
		       "%s: %s; it is not the metadata of torch.distributed.checkpoint, or it is "
		       "damaged: copy the folder again",
		       name, what);
}

/* --- tensors --- */

/* The dtype is a member, or the first item of a state that is a tuple. */
static const char *dtype_of(const struct dcp_value *properties)
{
	const struct dcp_value *v = NULL;
	if (dcp_value_is_object(properties, DCP_MEANS_PROPERTIES)) {
		v = dcp_value_item(properties->state, 0);
		if (!v)
			v = dcp_value_member(properties, "dtype");
	}
	return v && v->kind == DCP_GLOBAL && v->global->means == DCP_MEANS_DTYPE ? v->global->dtype
										 : NULL;
}

static int read_name(const struct dcp_value *v, char out[DCP_NAME])
{
	if (v->kind != DCP_TEXT || v->length == 0 || v->length >= DCP_NAME ||
	    memchr(v->text, '\0', v->length))
		return -1;
	memcpy(out, v->text, v->length);
	out[v->length] = '\0';
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct dcp_tensor *)a)->name, ((const struct dcp_tensor *)b)->name);
}

static int read_tensors(struct dcp_metadata *m, const char *name, struct err *e)
{
	const struct dcp_value *list = dcp_value_member(m->pickle.root, "state_dict_metadata");
	if (!list || list->kind != DCP_DICT)
		return fail(name, e, "state_dict_metadata is missing");
	m->tensors = calloc((size_t)list->n / 2 + 1, sizeof *m->tensors);
	if (!m->tensors)
		return err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " tensors", name,
			       list->n / 2);
	for (int64_t i = 0; i < list->n; i += 2) {
		const struct dcp_value *v = list->items[i + 1];
		struct dcp_tensor *t = &m->tensors[m->n];
		if (dcp_value_is_object(v, DCP_MEANS_BYTES)) {
			m->values++;
			continue;
		}
		if (!dcp_value_is_object(v, DCP_MEANS_TENSOR) || read_name(list->items[i], t->name))
			return fail(name, e, "an entry of state_dict_metadata is invalid");
		t->dims = dcp_value_numbers(dcp_value_member(v, "size"), t->shape, DCP_DIMS);
		t->dtype = dtype_of(dcp_value_member(v, "properties"));
		t->listed = dcp_value_member(v, "chunks");
		m->n++;
	}
	qsort(m->tensors, (size_t)m->n, sizeof *m->tensors, by_name);
	for (int64_t i = 1; i < m->n; i++)
		if (!by_name(&m->tensors[i - 1], &m->tensors[i]))
			return fail(name, e, "state_dict_metadata names a tensor twice");
	return 0;
}

/* --- places --- */

static int compare_text(const char *a, size_t n, const char *b, size_t m)
{
	int order = memcmp(a, b, n < m ? n : m);
	return order ? order : (n > m) - (n < m);
}

static int by_key(const void *a, const void *b)
{
	const struct dcp_place *x = a, *y = b;
	int order = compare_text(x->fqn->text, x->fqn->length, y->fqn->text, y->fqn->length);
	if (order || x->dims != y->dims)
		return order ? order : x->dims - y->dims;
	for (int d = 0; d < x->dims; d++)
		if (x->offset[d] != y->offset[d])
			return x->offset[d] < y->offset[d] ? -1 : 1;
	return 0;
}

static int read_places(struct dcp_metadata *m, const char *name, struct err *e)
{
	const struct dcp_value *list = dcp_value_member(m->pickle.root, "storage_data");
	if (!list || list->kind != DCP_DICT)
		return fail(name, e, "storage_data is missing");
	m->places = calloc((size_t)list->n / 2 + 1, sizeof *m->places);
	if (!m->places)
		return err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " chunks", name,
			       list->n / 2);
	for (int64_t i = 0; i < list->n; i += 2) {
		struct dcp_place *p = &m->places[m->n_places];
		const struct dcp_value *key = list->items[i];
		p->fqn = dcp_value_member(key, "fqn");
		p->info = list->items[i + 1];
		if (!dcp_value_is_object(key, DCP_MEANS_INDEX) || !p->fqn ||
		    p->fqn->kind != DCP_TEXT)
			return fail(name, e, "a key of storage_data is invalid");
		p->dims = dcp_value_numbers(dcp_value_member(key, "offset"), p->offset, DCP_DIMS);
		m->n_places += p->dims >= 0; /* what is not a tensor has no offset */
	}
	qsort(m->places, (size_t)m->n_places, sizeof *m->places, by_key);
	for (int64_t i = 1; i < m->n_places; i++)
		if (!by_key(&m->places[i - 1], &m->places[i]))
			return fail(name, e, "storage_data names a chunk twice");
	return 0;
}

int dcp_metadata_parse(const void *data, size_t n, const char *name, struct dcp_metadata *out,
		       struct err *e)
{
	struct dcp_metadata m = { 0 };
	int rc = dcp_pickle_parse(data, n, name, &m.pickle, e);
	if (!rc && !dcp_value_is_object(m.pickle.root, DCP_MEANS_METADATA))
		rc = fail(name, e, "its value is not a Metadata");
	if (rc || read_tensors(&m, name, e) || read_places(&m, name, e)) {
		dcp_metadata_free(&m);
		return -1;
	}
	*out = m;
	return 0;
}

void dcp_metadata_free(struct dcp_metadata *m)
{
	for (int64_t i = 0; i < m->n; i++)
		free(m->tensors[i].chunks);
	free(m->tensors);
	free(m->places);
	dcp_pickle_free(&m->pickle);
	*m = (struct dcp_metadata){ 0 };
}

/* --- the chunks of one tensor --- */

static int fail_tensor(const struct dcp_tensor *t, struct err *e, const char *why)
{
	return err_set(e, ERR_CORRUPT, "tensor %.100s: %s; save the checkpoint again", t->name,
		       why);
}

static bool is_plain_file(const char *text, size_t n)
{
	if (n == 0 || n > 200 || text[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f ||
		    text[i] == '/')
			return false;
	return true;
}

static int set_place(const struct dcp_metadata *m, const struct dcp_tensor *t, struct dcp_chunk *c,
		     struct err *e)
{
	const struct dcp_value fqn = { .kind = DCP_TEXT,
				       .text = t->name,
				       .length = strlen(t->name) };
	struct dcp_place key = { .fqn = &fqn, .dims = t->dims };
	memcpy(key.offset, c->lo, sizeof key.offset);
	const struct dcp_place *p = bsearch(&key, m->places, (size_t)m->n_places, sizeof key,
					    by_key);
	if (!p || !dcp_value_is_object(p->info, DCP_MEANS_STORAGE_INFO))
		return fail_tensor(t, e, "storage_data names no file for one of its chunks");
	const struct dcp_value *path = dcp_value_member(p->info, "relative_path");
	const struct dcp_value *coded = dcp_value_member(p->info, "transform_descriptors");
	if (coded && coded->kind != DCP_NONE &&
	    !((coded->kind == DCP_LIST || coded->kind == DCP_TUPLE) && !coded->n))
		return err_set(e, ERR_UNSUPPORTED,
			       "tensor %.100s is compressed or encrypted by an extension of the "
			       "writer; save it without extensions",
			       t->name);
	if (!path || path->kind != DCP_TEXT || !is_plain_file(path->text, path->length))
		return fail_tensor(t, e, "the file of one of its chunks is not a plain name");
	if (!dcp_value_int(dcp_value_member(p->info, "offset"), &c->at) ||
	    !dcp_value_int(dcp_value_member(p->info, "length"), &c->length) || c->at < 0 ||
	    c->length < 0 || c->length > INT64_MAX - c->at)
		return fail_tensor(t, e, "the place of one of its chunks is invalid");
	c->file = path->text;
	c->file_length = path->length;
	return 0;
}

/* Returns 1 for an empty chunk, which is left out. */
static int read_chunk(const struct dcp_metadata *m, const struct dcp_tensor *t,
		      const struct dcp_value *v, struct dcp_chunk *c, struct err *e)
{
	int64_t size[DCP_DIMS] = { 0 };
	bool empty = false;
	*c = (struct dcp_chunk){ 0 };
	if (!dcp_value_is_object(v, DCP_MEANS_CHUNK) ||
	    dcp_value_numbers(dcp_value_member(v, "offsets"), c->lo, DCP_DIMS) != t->dims ||
	    dcp_value_numbers(dcp_value_member(v, "sizes"), size, DCP_DIMS) != t->dims)
		return fail_tensor(t, e, "one of its chunks is invalid");
	for (int d = 0; d < t->dims; d++) {
		empty = empty || !size[d];
		c->hi[d] = c->lo[d] + size[d];
		if (c->hi[d] > t->shape[d])
			return fail_tensor(t, e, "one of its chunks lies outside it");
	}
	return empty ? 1 : set_place(m, t, c, e);
}

static int by_lo(const void *a, const void *b)
{
	const struct dcp_chunk *x = a, *y = b;
	for (int d = 0; d < DCP_DIMS; d++)
		if (x->lo[d] != y->lo[d])
			return x->lo[d] < y->lo[d] ? -1 : 1;
	return 0;
}

/* False if the product is above 2^60. */
static bool volume(const int64_t *lo, const int64_t *hi, int dims, int64_t *out)
{
	*out = 1;
	for (int d = 0; d < dims; d++)
		if (__builtin_mul_overflow(*out, hi[d] - lo[d], out) || *out >> 60)
			return false;
	return true;
}

static bool overlap(const struct dcp_chunk *a, const struct dcp_chunk *b, int dims)
{
	for (int d = 0; d < dims; d++)
		if (a->hi[d] <= b->lo[d] || b->hi[d] <= a->lo[d])
			return false;
	return true;
}

/* Chunks that do not overlap cover the tensor if they have as many elements as it. Only chunks that
 * share rows of dimension 0 are compared. */
static int check_cover(const struct dcp_tensor *t, struct err *e)
{
	static const int64_t none[DCP_DIMS];
	const int64_t comparisons_max = (int64_t)1 << 28;
	int64_t whole, total = 0, comparisons = 0;
	if (!volume(none, t->shape, t->dims, &whole))
		return fail_tensor(t, e, "it is too large");
	for (int64_t i = 0; i < t->n; i++) {
		const struct dcp_chunk *c = &t->chunks[i];
		int64_t elements;
		if (!volume(c->lo, c->hi, t->dims, &elements) || elements > whole - total)
			return fail_tensor(t, e, "its chunks overlap");
		total += elements;
		for (int64_t j = i + 1; j < t->n && t->dims && t->chunks[j].lo[0] < c->hi[0]; j++) {
			if (++comparisons > comparisons_max)
				return fail_tensor(t, e, "it has too many chunks");
			if (overlap(c, &t->chunks[j], t->dims))
				return fail_tensor(t, e, "its chunks overlap");
		}
	}
	return total == whole ? 0 : fail_tensor(t, e, "its chunks do not cover it");
}

int dcp_metadata_chunks(const struct dcp_metadata *m, struct dcp_tensor *t, struct err *e)
{
	if (t->chunks)
		return 0;
	if (t->dims < 0 || !t->dtype || !t->listed || t->listed->kind != DCP_LIST)
		return fail_tensor(t, e, "its size, dtype or list of chunks is invalid");
	t->chunks = calloc((size_t)t->listed->n + 1, sizeof *t->chunks);
	int rc = t->chunks ? 0 : err_set(e, ERR_NOMEM, "no memory for the chunks");
	for (int64_t i = 0; i < t->listed->n && rc >= 0; i++) {
		struct dcp_chunk *c = &t->chunks[t->n];
		rc = read_chunk(m, t, t->listed->items[i], c, e);
		if (rc == 0) {
			t->n++;
			int64_t rows = t->dims ? c->hi[0] - c->lo[0] : 0;
			t->tallest = rows > t->tallest ? rows : t->tallest;
		}
	}
	if (rc >= 0) {
		qsort(t->chunks, (size_t)t->n, sizeof *t->chunks, by_lo);
		rc = check_cover(t, e);
	}
	if (rc < 0) {
		free(t->chunks);
		t->chunks = NULL;
		t->n = 0;
	}
	return rc < 0 ? -1 : 0;
}
