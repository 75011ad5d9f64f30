#include "agent/engine/hf/weights.h"

#include "agent/engine/ckpt/format/safetensors.h"
#include "agent/engine/hf/index.h"
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/numbers.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"

enum { CHUNK = 1 << 20 };

struct weights_file {
	char *name;
	struct st_header header;
};

struct stored_tensor {
	const struct st_tensor *st;
	int shard;
};

struct hf_weights {
	char *path;
	struct weights_file *shards;
	int n_shards;
	struct stored_tensor *entries;
	int64_t n;
	json_t *places; /* name -> index in entries */
	int fd, open;   /* the file that is open; -1: none */
};

/* --- opening the files --- */

static int open_shard(const struct hf_weights *f, const char *name, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", f->path, name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", f->path);
	return file_open(path, O_RDONLY, FILE_REGULAR, e);
}

static int read_header(struct hf_weights *f, const char *name, struct err *e)
{
	struct weights_file *s = &f->shards[f->n_shards];
	int fd = open_shard(f, name, e);
	if (fd < 0)
		return -1;
	s->name = strdup(name);
	int rc = s->name ? ckpt_safetensors_read(fd, name, &s->header, e)
			 : err_set(e, ERR_NOMEM, "%s: no memory to read it", name);
	close(fd);
	f->n_shards++;
	if (rc)
		return err_prefix(e, "%s", f->path);
	if (json_object_get(s->header.metadata, "DCP_SHARDING_INFO"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s/%s: holds parts of tensors (DCP_SHARDING_INFO); consolidate the "
			       "folder first, as torch's "
			       "consolidate_safetensors_files_on_every_rank does",
			       f->path, name);
	return 0;
}

/* Whether the index assigns the tensor to that file. Without an index any file is right. */
static bool is_indexed(const struct hf_index *x, const char *tensor, const char *file)
{
	const json_t *v = x ? json_object_get(x->map, tensor) : NULL;
	return !x || (v && !strcmp(json_string_value(v), file));
}

static int list_tensors(struct hf_weights *f, const struct hf_index *x, struct err *e)
{
	int64_t total = 0;
	for (int i = 0; i < f->n_shards; i++)
		total += f->shards[i].header.n;
	f->entries = calloc((size_t)total + 1, sizeof *f->entries);
	f->places = json_object();
	if (!f->entries || !f->places)
		return err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " tensors", f->path,
			       total);
	for (int i = 0; i < f->n_shards; i++)
		for (int64_t j = 0; j < f->shards[i].header.n; j++) {
			const struct st_tensor *st = &f->shards[i].header.tensors[j];
			if (!is_indexed(x, st->name, f->shards[i].name))
				return err_set(e, ERR_CORRUPT,
					       "%s/%s: contains tensor %.100s, but " HF_INDEX_NAME
					       " names another file for it",
					       f->path, f->shards[i].name, st->name);
			if (json_object_set_new(f->places, st->name, json_integer(f->n)))
				return err_set(e, ERR_NOMEM,
					       "%s: no memory for %" PRId64 " tensors", f->path,
					       total);
			f->entries[f->n++] = (struct stored_tensor){ st, i };
		}
	const char *tensor;
	json_t *file;
	if (x)
		json_object_foreach(x->map, tensor, file) if (
			!json_object_get(f->places,
					 tensor)) return err_set(e, ERR_CORRUPT,
								 "%s/%s: has no tensor "
								 "%.100s, and " HF_INDEX_NAME
								 " says that it has",
								 f->path, json_string_value(file),
								 tensor);
	return 0;
}

static int open_single(struct hf_weights *f, struct err *e)
{
	f->shards = calloc(1, sizeof *f->shards);
	if (!f->shards)
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", f->path);
	return read_header(f, SINGLE, e) ? -1 : list_tensors(f, NULL, e);
}

static int open_indexed(struct hf_weights *f, const char *text, size_t n, struct err *e)
{
	struct hf_index x;
	if (hf_index_parse(text, n, HF_INDEX_NAME, &x, e))
		return err_prefix(e, "%s", f->path);
	int rc = 0;
	f->shards = calloc((size_t)x.n_files + 1, sizeof *f->shards);
	if (!f->shards)
		rc = err_set(e, ERR_NOMEM, "%s: no memory for %d files", f->path, x.n_files);
	for (int i = 0; i < x.n_files && !rc; i++)
		rc = read_header(f, x.files[i], e);
	if (!rc)
		rc = list_tensors(f, &x, e);
	hf_index_fini(&x);
	return rc;
}

bool hf_weights_exist(const char *path)
{
	static const char *const names[] = { SINGLE, HF_INDEX_NAME };
	char file[PATH_MAX];
	for (int i = 0; i < 2; i++)
		if (snprintf(file, sizeof file, "%s/%s", path, names[i]) < (int)sizeof file &&
		    access(file, F_OK) == 0)
			return true;
	return false;
}

/* As in transformers, a single file takes precedence over an index. */
static int open_files(struct hf_weights *f, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	if (snprintf(path, sizeof path, "%s/" SINGLE, f->path) >=
	    (int)sizeof path - (int)sizeof HF_INDEX_NAME)
		return err_set(e, ERR_IO, "%s: the path is too long", f->path);
	if (access(path, F_OK) == 0)
		return open_single(f, e);
	snprintf(path, sizeof path, "%s/" HF_INDEX_NAME, f->path);
	int rc = file_slurp(path, HF_INDEX_BYTES_MAX, &text, &why);
	if (!rc)
		rc = open_indexed(f, buf_str(&text), text.len, e);
	else if (why.code == ERR_NOTFOUND)
		err_set(e, ERR_NOTFOUND,
			"%s: has neither " SINGLE " nor " HF_INDEX_NAME
			"; save files of other formats as safetensors first",
			f->path);
	else
		err_set(e, why.code, "%s", why.text);
	buf_fini(&text);
	return rc;
}

int hf_weights_open(const char *path, struct hf_weights **out, struct err *e)
{
	struct hf_weights *f = calloc(1, sizeof *f);
	if (!f || !(f->path = strdup(path))) {
		free(f);
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
	}
	f->fd = f->open = -1;
	if (open_files(f, e)) {
		hf_weights_close(f);
		return -1;
	}
	*out = f;
	return 0;
}

void hf_weights_close(struct hf_weights *f)
{
	if (!f)
		return;
	for (int i = 0; i < f->n_shards; i++) {
		ckpt_safetensors_header_fini(&f->shards[i].header);
		free(f->shards[i].name);
	}
	if (f->fd >= 0)
		close(f->fd);
	free(f->shards);
	free(f->entries);
	json_decref(f->places);
	free(f->path);
	free(f);
}

/* --- the tensors --- */

/* Finds a tensor by its name, or by its name in a bare model's file. */
static const struct stored_tensor *find_tensor(const struct hf_weights *f,
					       const struct hf_names *names, const char *name)
{
	const json_t *at = json_object_get(f->places, name);
	const char *bare = hf_names_bare(names, name);
	if (!at && bare)
		at = json_object_get(f->places, bare);
	return at ? &f->entries[json_integer_value(at)] : NULL;
}

int64_t hf_tensor_elements(const struct hf_tensor *t)
{
	return t->shape[0] * t->shape[1];
}

static int fail_tensor(const struct hf_weights *f, const struct stored_tensor *entry, struct err *e,
		       const char *why)
{
	return err_set(e, ERR_CORRUPT, "%s/%s: tensor %.100s: %s", f->path,
		       f->shards[entry->shard].name, entry->st->name, why);
}

static int check_tensor(const struct hf_weights *f, const struct hf_names *names,
			const struct hf_tensor *t, struct err *e)
{
	const struct stored_tensor *entry = find_tensor(f, names, t->name);
	if (!entry)
		return err_set(e, ERR_CORRUPT,
			       "%s: has no tensor %s, which the model of its config.json needs; "
			       "use the config.json that belongs to the weights%s",
			       f->path, t->name,
			       strcmp(t->name, "lm_head.weight")
				       ? ""
				       : ", or set tie_word_embeddings to true there");
	const struct st_tensor *st = entry->st;
	int64_t rows = t->shape[t->transposed], columns = t->shape[!t->transposed];
	if (st->dims != t->dims || st->shape[0] != rows ||
	    (st->dims == 2 && st->shape[1] != columns)) {
		char why[160];
		snprintf(why, sizeof why,
			 t->dims == 2 ? "its shape is not [%" PRId64 ", %" PRId64
					"], as config.json has it"
				      : "its shape is not [%" PRId64 "], as config.json has it",
			 rows, columns);
		return fail_tensor(f, entry, e, why);
	}
	if (!hf_numbers_dtype(st->dtype))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s/%s: tensor %s is %s; muster imports F32, BF16 and F16", f->path,
			       f->shards[entry->shard].name, t->name, st->dtype);
	return 0;
}

/* The names in the folder that belong to the model. */
static json_t *known_names(const struct hf_weights *f, const struct hf_names *names)
{
	json_t *known = json_object();
	for (int64_t i = 0; i < names->n; i++)
		json_object_set_new(known, find_tensor(f, names, names->tensors[i].name)->st->name,
				    json_true());
	return known;
}

static int pread_all(struct hf_weights *f, const struct stored_tensor *entry, int64_t at, void *to,
		     int64_t n, struct err *e)
{
	if (f->open != entry->shard) {
		if (f->fd >= 0)
			close(f->fd);
		f->open = -1;
		f->fd = open_shard(f, f->shards[entry->shard].name, e);
		if (f->fd < 0)
			return -1;
		f->open = entry->shard;
	}
	if (file_pread_full(f->fd, to, (size_t)n,
			    f->shards[entry->shard].header.data_at + entry->st->begin + at))
		return err_errno(e, ERR_IO, "%s/%s: cannot read tensor %.100s", f->path,
				 f->shards[entry->shard].name, entry->st->name);
	return 0;
}

/* If a tied head is stored, it must equal the embedding; otherwise the import would lose one of
 * them. */
static int check_tied_head(struct hf_weights *f, const struct hf_names *names,
			   const struct stored_tensor *head, struct err *e)
{
	const struct stored_tensor *table = find_tensor(f, names, names->tensors[0].name);
	int64_t bytes = table->st->end - table->st->begin;
	int rc = strcmp(head->st->dtype, table->st->dtype) ||
		 head->st->end - head->st->begin != bytes;
	char *a = malloc(CHUNK), *b = malloc(CHUNK);
	if (!a || !b) {
		free(a);
		free(b);
		return err_set(e, ERR_NOMEM, "%s: no memory to compare the head with the embedding",
			       f->path);
	}
	for (int64_t at = 0; at < bytes && !rc; at += CHUNK) {
		int64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
		if (pread_all(f, table, at, a, n, e) || pread_all(f, head, at, b, n, e))
			rc = -1;
		else
			rc = memcmp(a, b, (size_t)n) != 0;
	}
	free(a);
	free(b);
	return rc <= 0 ? rc
		       : fail_tensor(
				 f, head, e,
				 "differs from the embedding, and config.json says that they are "
				 "tied; set tie_word_embeddings to false");
}

static int check_extra_tensor(struct hf_weights *f, const struct hf_names *names,
			      const struct stored_tensor *entry, struct err *e)
{
	if (names->tied && !strcmp(entry->st->name, "lm_head.weight"))
		return check_tied_head(f, names, entry, e);
	if (hf_names_may_skip(names, entry->st->name))
		return 0;
	if (hf_unsupported_tensor(entry->st->name))
		return fail_tensor(f, entry, e, hf_unsupported_tensor(entry->st->name));
	return fail_tensor(
		f, entry, e,
		"the model of config.json has no such tensor, and leaving it out would change "
		"what the model computes");
}

int hf_weights_fit(struct hf_weights *f, const struct hf_names *names, struct err *e)
{
	for (int64_t i = 0; i < names->n; i++)
		if (check_tensor(f, names, &names->tensors[i], e))
			return -1;
	json_t *known = known_names(f, names);
	int rc = known ? 0 : err_set(e, ERR_NOMEM, "%s: no memory for its names", f->path);
	for (int64_t i = 0; i < f->n && !rc; i++)
		if (!json_object_get(known, f->entries[i].st->name))
			rc = check_extra_tensor(f, names, &f->entries[i], e);
	json_decref(known);
	return rc;
}

/* --- numbers --- */

void hf_weights_transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
	enum { TILE = 32 };
	for (int64_t r = 0; r < rows; r += TILE)
		for (int64_t c = 0; c < columns; c += TILE)
			for (int64_t i = r; i < rows && i < r + TILE; i++)
				for (int64_t j = c; j < columns && j < c + TILE; j++)
					to[j * rows + i] = from[i * columns + j];
}

/* Reads and widens the tensor piece by piece. */
static int read_floats(struct hf_weights *f, const struct stored_tensor *entry, float *to,
		       struct err *e)
{
	const struct hf_type *type = hf_numbers_dtype(entry->st->dtype);
	int64_t bytes = entry->st->end - entry->st->begin;
	int rc = 0;
	char *piece = malloc(CHUNK);
	if (!piece)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", f->path);
	for (int64_t at = 0; at < bytes && !rc; at += CHUNK) {
		int64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
		rc = pread_all(f, entry, at, piece, n, e);
		if (!rc)
			hf_numbers_widen(type, piece, (size_t)(n / type->size),
					 to + at / type->size);
	}
	free(piece);
	return rc;
}

int hf_weights_read(struct hf_weights *f, const struct hf_names *names, const struct hf_tensor *t,
		    float *out, float *room, struct err *e)
{
	const struct stored_tensor *entry = find_tensor(f, names, t->name);
	if (read_floats(f, entry, t->transposed ? room : out, e))
		return -1;
	if (t->transposed)
		hf_weights_transpose(room, t->shape[1], t->shape[0], out);
	return 0;
}
