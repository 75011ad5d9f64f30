/*
 * manifest — the contents of a checkpoint, and the proof that it is complete.
 *
 * MANIFEST.json is a JSON object in UTF-8 whose first line is exactly
 *
 *     {"digest": "<32 hex digits>",
 *
 * The digest is the XXH3-128 of every byte after that line's newline, so each byte of the file is
 * either compared or digested. The other fields follow; all are required except `data`,
 * `optimizer`, `numbers`, `carried`, `from`, `state_digest` and `sums`:
 *
 *     format       "muster-checkpoint"
 *     version      1, or 2 if the slices are packed, as in a manifest of many slices (packed.h)
 *     step, samples, total_steps, generation    whole numbers
 *     seed         a decimal number in a string (64 bits do not fit JSON's numbers everywhere)
 *     model        object: must be equal to load it
 *     layout       object: for people
 *     data         {path, validation, samples}: the training data (struct ckpt_data)
 *     optimizer    the optimizer of the tensors optim.…: a word; if missing, AdamW
 *     numbers      {name: number, …}: more numbers of the run (struct ckpt_number)
 *     carried      [{name, size, digest}]: files attached to the model, in the same entry
 *                  (attached.h)
 *     from         the model's name at its origin, such as "openai-community/gpt2"
 *     state_digest 32 hex digits: the root of the state (state_digest.h); it is there if every
 *                  tensor has sums, and is compared with them
 *     files        [{name, size, header, digest}]: `header` bytes come before the file's buffer,
 *                  digest is theirs
 *     tensors      [{name, dtype: "F32", shape: [rows] or [rows, columns], slices: [[file, offset,
 *                  [lo…], [hi…], digest]]}]: the box lo ≤ i < hi of the tensor is stored row-major
 *                  at byte `offset` of the buffer of files[file]
 *                  sums: [first, "<32 hex digits for each block>"]: the sums of the tensor's
 *                  blocks (sum.h) from block `first` on; those of all others are 0
 *
 * ckpt_manifest_prove proves that the boxes of each tensor cover it exactly once and that the
 * slices of each file tile its buffer. Together with the digests, any changed byte is detected.
 *
 * Each rank describes its own shard as a manifest of one file; world rank 0 merges them.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_MANIFEST_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_MANIFEST_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/ckpt/format/digest.h"
#include "agent/engine/ckpt/format/sum.h"
#include "base/buf.h"

#define MANIFEST_NAME "MANIFEST.json"

enum { MANIFEST_ATTACHED_MAX = 32, MANIFEST_ATTACHED_BYTES = 1 << 28, MANIFEST_FROM = 128 };
enum {
	MANIFEST_FILE_NAME = 64,
	MANIFEST_TENSOR_NAME = 96,
	MANIFEST_BYTES_MAX = 1 << 30,
	MANIFEST_FILES_MAX = 1 << 20,
	MANIFEST_PLAIN_SLICES = 4096 /* a manifest of more slices packs them */
};
enum { MANIFEST_PLAIN = 1, MANIFEST_PACKED = 2 }; /* versions */

struct manifest_file {
	char name[MANIFEST_FILE_NAME];
	int64_t size, header;
	struct digest digest;
};

struct manifest_attached {
	char name[MANIFEST_FILE_NAME];
	int64_t size;
	struct digest digest;
};

/* Vectors have one column: lo[1] = 0, hi[1] = 1. */
struct manifest_slice {
	int64_t file, offset;
	int64_t lo[2], hi[2];
	struct digest digest;
};

struct manifest_tensor {
	char name[MANIFEST_TENSOR_NAME];
	int dims;
	int64_t shape[2];
	struct manifest_slice *slices;
	int64_t n;
	struct ckpt_sums sums; /* of the slices that the manifest lists */
	bool has_sums;         /* false: written by an older version */
};

struct manifest {
	struct ckpt_state state;
	uint32_t generation;
	json_t *model, *layout;
	struct manifest_file *files;
	int64_t n_files;
	struct manifest_attached attached[MANIFEST_ATTACHED_MAX];
	int n_attached;
	char from[MANIFEST_FROM]; /* "": unknown */
	struct manifest_tensor *tensors;
	int64_t n_tensors;
	json_t *index; /* name -> index in tensors; "/" and a file's name -> true */
};

/* Takes references of model and layout. */
void ckpt_manifest_init(struct manifest *m, const struct ckpt_state *state, uint32_t generation,
			json_t *model, json_t *layout);
void ckpt_manifest_fini(struct manifest *m);

/* These functions reject what a manifest may not hold: unsafe or duplicate names, sizes that
 * overflow, boxes outside their tensor, slices outside their file. Errors name the file or tensor,
 * not the manifest: the caller prefixes it. */
int ckpt_manifest_add_file(struct manifest *m, const struct manifest_file *file, struct err *e);
int ckpt_manifest_add_attached(struct manifest *m, const struct manifest_attached *file,
			       struct err *e);
int ckpt_manifest_add_slice(struct manifest *m, const char *name, int dims, const int64_t *shape,
			    const struct manifest_slice *slice, struct err *e);
/* Adds to the sums of a tensor, of which a slice was added before. */
int ckpt_manifest_add_sums(struct manifest *m, const char *name, const struct ckpt_sums *sums,
			   struct err *e);
/* Adds the files, slices and sums of `from`, which must be of the same step and generation. */
int ckpt_manifest_merge(struct manifest *m, const struct manifest *from, struct err *e);

int ckpt_manifest_prove(const struct manifest *m, struct err *e);

void ckpt_manifest_write(const struct manifest *m, struct buf *out);
/* ckpt_manifest_write that packs the slices or not, however many there are. */
void ckpt_manifest_write_as(const struct manifest *m, bool packed, struct buf *out);
/* Parses a manifest without proving it. `name` is the file's name in errors. */
int ckpt_manifest_parse(const char *text, size_t n, const char *name, struct manifest *out,
			struct err *e);
/* Reads and proves the manifest of the checkpoint `path`. */
int ckpt_manifest_load(const char *path, struct manifest *out, struct err *e);
struct ckpt_storage;
int ckpt_manifest_load_from(const struct ckpt_storage *s, const char *path, struct manifest *out,
			    struct err *e);
/* The two halves of ckpt_manifest_load_from: append the text to the buffer; parse and prove it. */
int ckpt_manifest_read_text(const struct ckpt_storage *s, const char *path, struct buf *text,
			    struct err *e);
int ckpt_manifest_parse_of(const char *path, const struct buf *text, struct manifest *out,
			   struct err *e);

/* NULL if there is no such tensor. */
const struct manifest_tensor *ckpt_manifest_find(const struct manifest *m, const char *name);
/* Whether a shard or an attached file has this name. */
bool ckpt_manifest_has_file(const struct manifest *m, const char *name);
/* Whether the text can be a model's name: letters, digits and "._-", with at most one slash; not
 * "". */
bool ckpt_manifest_is_model_name(const char *text);
/* Whether the text is a word of [a-z0-9_] that is shorter than CKPT_WORD; false for NULL. */
bool ckpt_word(const char *text);
int64_t ckpt_slice_bytes(const struct manifest_slice *s);
int64_t ckpt_manifest_bytes(const struct manifest *m); /* of all shards */

/* Fails when the two differ, naming the first field: "model.hidden: the checkpoint has 768, this
 * job 1024". want NULL: every model is accepted. */
int ckpt_manifest_check_model(const struct manifest *m, json_t *want, struct err *e);

#endif
