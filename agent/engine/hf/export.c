#include "agent/engine/hf/import.h"

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/storage/io.h"
#include "agent/engine/ckpt/load/read.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/engine/ckpt/format/safetensors.h"
#include "agent/engine/hf/card.h"
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/index.h"
#include "agent/engine/hf/side.h"
#include "agent/engine/hf/weights.h"
#include "agent/engine/train/state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An export in progress. */
struct departure {
	struct hf_names names;
	const struct hf_type *type;
	struct st_tensor *headers; /* [names.n] with offsets in their file */
	int *files;                /* [names.n] each tensor's file */
	int n_files;
	struct ckpt_reader *reader;
	const struct manifest *manifest;
	const struct ckpt_io *io;
	struct attached carry;   /* the model's other files */
	float *numbers, *turned; /* for the largest tensor; the largest transposed one */
	char folder[PATH_MAX];   /* the temporary folder */
};

/* --- the plan of the files --- */

static void describe(const struct hf_tensor *t, const struct hf_type *type, int64_t at,
		     struct st_tensor *out)
{
	*out = (struct st_tensor){ .name = t->name,
				   .dtype = type->dtype,
				   .dims = t->dims,
				   .begin = at,
				   .end = at + hf_tensor_elements(t) * type->size };
	out->shape[0] = t->shape[t->transposed];
	out->shape[1] = t->shape[!t->transposed];
}

/* Assigns tensors to files in the model's order. A file ends where the next tensor would exceed
 * shard_size. */
static int plan_files(struct departure *d, int64_t shard_size, struct err *e)
{
	int64_t at = 0;
	size_t n = (size_t)d->names.n + 1;
	d->headers = calloc(n, sizeof *d->headers);
	d->files = calloc(n, sizeof *d->files);
	if (!d->headers || !d->files)
		return err_set(e, ERR_NOMEM, "no memory for %zu tensors", n);
	for (int64_t i = 0; i < d->names.n; i++) {
		int64_t bytes = hf_tensor_elements(&d->names.tensors[i]) * d->type->size;
		if (at && bytes > shard_size - at) {
			d->n_files++;
			at = 0;
		}
		describe(&d->names.tensors[i], d->type, at, &d->headers[i]);
		d->files[i] = d->n_files;
		at += bytes;
	}
	d->n_files++;
	return 0;
}

enum { FILE_NAME = 64 };

static void file_name(const struct departure *d, int file, char out[FILE_NAME])
{
	if (d->n_files == 1)
		snprintf(out, FILE_NAME, "model.safetensors");
	else
		snprintf(out, FILE_NAME, "model-%05d-of-%05d.safetensors", file + 1, d->n_files);
}

/* --- one tensor --- */

/* Compares the sums of a whole tensor in memory with those that were saved. */
static int check_sums(const struct manifest_tensor *have, const struct ckpt_tensor *t,
		      struct err *e)
{
	struct ckpt_sums sums = { 0 };
	int rc = ckpt_sums_add_box(&sums, t, NULL, e);
	if (!rc && !ckpt_sums_equal(&sums, &have->sums))
		rc = err_set(e, ERR_CORRUPT,
			     "tensor %s: the sums of its blocks are not those that were saved, "
			     "although its slices' digests agree; verify the checkpoint, and test "
			     "the memory of this machine",
			     have->name);
	ckpt_sums_fini(&sums);
	return rc;
}

/* Reads a part into its rows of the tensor. Every slice that is read is checked against its
 * digest. */
static int read_part(struct departure *d, const struct hf_tensor *t, const struct hf_part *part,
		     float *to, struct err *e)
{
	const struct manifest_tensor *have = ckpt_manifest_find(d->manifest, part->name);
	struct ckpt_tensor want = { .dims = t->dims,
				    .shape = { part->rows, t->shape[1] },
				    .hi = { part->rows, t->shape[1] },
				    .data = to };
	if (!have)
		return err_set(e, ERR_CORRUPT,
			       "the checkpoint has no tensor %s, which its model needs",
			       part->name);
	if (have->dims != t->dims || have->shape[0] != part->rows || have->shape[1] != t->shape[1])
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: the checkpoint has another shape than its model",
			       part->name);
	for (int64_t i = 0; i < have->n; i++)
		if (ckpt_reader_slice(d->reader, have, &have->slices[i], &want, 1, e))
			return -1;
	return have->has_sums ? check_sums(have, &want, e) : 0;
}

static int write_tensor(struct departure *d, const struct hf_tensor *t, int fd, const char *path,
			struct err *e)
{
	float *at = d->numbers;
	for (int i = 0; i < t->n; i++) {
		if (read_part(d, t, &t->parts[i], at, e))
			return -1;
		at += t->parts[i].rows * t->shape[1];
	}
	float *out = t->transposed ? d->turned : d->numbers;
	if (t->transposed)
		hf_weights_transpose(d->numbers, t->shape[0], t->shape[1], out);
	size_t n = (size_t)hf_tensor_elements(t);
	if (!hf_numbers_narrow(d->type, out, n, out))
		return err_set(e, ERR_NUMERIC, "tensor %s has numbers beyond %s; export it as %s",
			       t->name, d->type->name,
			       d->type == hf_numbers_type("bf16") ? "fp32" : "bf16 or fp32");
	return ckpt_io_write_full(d->io, fd, path, out, n * (size_t)d->type->size, e);
}

/* --- files --- */

static int path_in(const struct departure *d, const char *name, char path[PATH_MAX], struct err *e)
{
	if (snprintf(path, PATH_MAX, "%s/%s", d->folder, name) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%s: the path is too long", d->folder);
	return 0;
}

static int write_tensors(struct departure *d, int64_t first, int64_t n, int fd, const char *path,
			 struct err *e)
{
	struct buf header = BUF_INIT;
	json_t *metadata = json_pack("{s:s}", "format", "pt");
	int rc = metadata ? ckpt_safetensors_write_header(d->headers + first, n, metadata, &header,
							  e)
			  : err_set(e, ERR_NOMEM, "%s: no memory for its metadata", path);
	json_decref(metadata);
	if (!rc)
		rc = ckpt_io_write_full(d->io, fd, path, header.data, header.len, e);
	buf_fini(&header);
	for (int64_t i = first; i < first + n && !rc; i++)
		rc = write_tensor(d, &d->names.tensors[i], fd, path, e);
	return rc;
}

static int write_file(struct departure *d, int64_t first, int64_t n, struct err *e)
{
	char name[FILE_NAME], path[PATH_MAX];
	file_name(d, d->files[first], name);
	if (path_in(d, name, path, e))
		return -1;
	int fd = d->io->create(path);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create", path);
	if (write_tensors(d, first, n, fd, path, e)) {
		d->io->close(fd);
		return -1;
	}
	return ckpt_io_finish(d->io, fd, path, e);
}

static int write_files(struct departure *d, struct err *e)
{
	for (int64_t i = 0; i < d->names.n;) {
		int64_t n = 1;
		while (i + n < d->names.n && d->files[i + n] == d->files[i])
			n++;
		if (write_file(d, i, n, e))
			return -1;
		i += n;
	}
	return 0;
}

/* Takes ownership of the value. */
static int write_json(struct departure *d, const char *name, json_t *value, struct err *e)
{
	char path[PATH_MAX];
	char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
	int rc = text ? path_in(d, name, path, e) ||
				 ckpt_io_write_file(d->io, path, text, strlen(text), e)
		      : err_set(e, ERR_NOMEM, "%s: no memory for it", name);
	free(text);
	json_decref(value);
	return rc ? -1 : 0;
}

static int write_index(struct departure *d, int64_t bytes, struct err *e)
{
	json_t *map = json_object();
	int bad = !map;
	for (int64_t i = 0; i < d->names.n && !bad; i++) {
		char name[FILE_NAME];
		file_name(d, d->files[i], name);
		bad = json_object_set_new(map, d->names.tensors[i].name, json_string(name));
	}
	if (bad) {
		json_decref(map);
		return err_set(e, ERR_NOMEM, "%s: no memory for it", HF_INDEX_NAME);
	}
	return write_json(d, HF_INDEX_NAME,
			  json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes,
				    "weight_map", map),
			  e);
}

/* Writes the carried files unchanged. */
static int write_attached(struct departure *d, struct err *e)
{
	char path[PATH_MAX];
	for (int i = 0; i < d->carry.n; i++) {
		const struct attached_file *f = &d->carry.files[i];
		if (hf_side_exported(f->name) &&
		    (path_in(d, f->name, path, e) ||
		     ckpt_io_write_file(d->io, path, f->data, f->size, e)))
			return -1;
	}
	return 0;
}

static int write_card(struct departure *d, const struct job *job, int64_t params, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	hf_card_write(d->manifest, job, params, d->type, &text);
	int rc = buf_failed(&text)
			 ? err_set(e, ERR_NOMEM, "README.md: no memory for it")
			 : path_in(d, "README.md", path, e) ||
				   ckpt_io_write_file(d->io, path, text.data, text.len, e);
	buf_fini(&text);
	return rc ? -1 : 0;
}

/* --- the folder --- */

/* Creates a temporary folder beside the target; it gets the target's name at the end. */
static int make_folder(struct departure *d, const char *folder, struct err *e)
{
	struct stat st;
	size_t n = strlen(folder);
	while (n > 1 && folder[n - 1] == '/')
		n--;
	if (snprintf(d->folder, sizeof d->folder, "%.*s.tmp.%ld", (int)n, folder, (long)getpid()) >=
	    (int)sizeof d->folder) {
		d->folder[0] = '\0';
		return err_set(e, ERR_USAGE, "%s: the path is too long", folder);
	}
	if (!lstat(folder, &st) && (!S_ISDIR(st.st_mode) || (rmdir(folder) && errno != ENOENT))) {
		d->folder[0] = '\0';
		return err_set(e, ERR_USAGE,
			       "%s: already exists and is not an empty folder; remove it or choose "
			       "another name",
			       folder);
	}
	if (d->io->mkdir(d->folder, 0700)) {
		err_errno(e, ERR_IO, "%s: cannot make the folder", d->folder);
		d->folder[0] = '\0';
		return -1;
	}
	return 0;
}

static int open_departure(struct departure *d, const char *path, const struct job *job,
			  int64_t shard_size, struct err *e)
{
	struct model_shape shape;
	size_t most = 0, turned = 0;
	shape_of_job(job, &shape);
	if (hf_names_build(&shape, &d->names, e) || plan_files(d, shard_size, e) ||
	    ckpt_reader_open(path, d->manifest, NULL, &d->reader, e))
		return -1;
	for (int64_t i = 0; i < d->names.n; i++) {
		const struct hf_tensor *t = &d->names.tensors[i];
		size_t n = (size_t)hf_tensor_elements(t);
		most = n > most ? n : most;
		turned = t->transposed && n > turned ? n : turned;
	}
	d->numbers = malloc(most * sizeof(float) + 1);
	d->turned = malloc(turned * sizeof(float) + 1);
	return d->numbers && d->turned
		       ? 0
		       : err_set(e, ERR_NOMEM, "no memory for the largest tensor, of %zu numbers",
				 most);
}

static void close_departure(struct departure *d)
{
	if (d->folder[0])
		ckpt_io_remove_folder(d->io, d->folder, NULL);
	ckpt_attached_fini(&d->carry);
	free(d->turned);
	free(d->numbers);
	ckpt_reader_close(d->reader);
	free(d->files);
	free(d->headers);
	hf_names_free(&d->names);
}

static int settle(struct departure *d, const char *folder, struct err *e)
{
	if (ckpt_io_sync_dir(d->io, d->folder, e))
		return -1;
	if (ckpt_io_rename(d->io, d->folder, folder))
		return err_errno(e, ERR_IO, "%s: cannot rename to %s", d->folder, folder);
	d->folder[0] = '\0';
	return 0;
}

int hf_export(const char *path, const struct manifest *m, const char *folder,
	      const struct hf_type *type, int64_t shard_size, struct hf_report *report,
	      struct err *e)
{
	struct departure d = { .type = type, .manifest = m, .io = &ckpt_io_system };
	struct hf_report *r = calloc(1, sizeof *r); /* too large for a small stack */
	json_t *config = NULL;
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to export it", path);
	int rc = train_state_model_job(m->model, &r->job, e);
	/* aux_loss is not one of the model's sizes (state.h), so it is kept as a number */
	r->job.model.aux_loss = ckpt_number(&m->state, "aux_loss", 0);
	if (!rc &&
	    (!(config = hf_config_write(&r->job, type->torch, e)) ||
	     ckpt_attached_load(path, m, &d.carry, e) || hf_side_add_keys(&d.carry, config, e)))
		rc = -1;
	if (!rc)
		rc = open_departure(&d, path, &r->job, shard_size, e) || make_folder(&d, folder, e);
	for (int64_t i = 0; i < d.names.n; i++)
		r->params += hf_tensor_elements(&d.names.tensors[i]);
	r->bytes = r->params * type->size;
	if (!rc)
		rc = write_json(&d, "config.json", json_incref(config), e) || write_files(&d, e) ||
		     (d.n_files > 1 && write_index(&d, r->bytes, e)) || write_attached(&d, e) ||
		     write_card(&d, &r->job, r->params, e) || settle(&d, folder, e);
	r->tensors = d.names.n;
	r->files = d.n_files;
	r->carried = d.carry.n;
	snprintf(r->path, sizeof r->path, "%s", folder);
	json_decref(config);
	close_departure(&d);
	if (!rc)
		*report = *r;
	free(r);
	return rc ? -1 : 0;
}
