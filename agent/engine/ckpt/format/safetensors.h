/*
 * safetensors — reads and writes the container format of a shard.
 *
 * A file is u64 little-endian N, a JSON object of N bytes that starts with `{`, and a buffer. Each
 * field but "__metadata__" (strings to strings) is a tensor: {"dtype", "shape", "data_offsets":
 * [begin, end]}, offsets relative to the buffer, row-major, little-endian. The tensors tile the
 * buffer: no overlap, no hole, nothing after the last one.
 *
 * The reader rejects, each with its own message: a file below 8 bytes, N over 100,000,000 or over
 * the file's size, a header that is not UTF-8, not JSON, not an object; duplicate keys, NUL in
 * names; an unknown dtype; missing or unknown fields; numbers that are negative, fractional or
 * beyond 63 bits; not exactly two offsets; end < begin; more than ST_DIMS dimensions; a product of
 * the shape that overflows or differs from end - begin; overlap, hole, a truncated or longer
 * buffer; metadata that is not a string. The writer pads the header with spaces to 8 bytes.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_SAFETENSORS_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { ST_DIMS = 8, ST_HEADER_MAX = 100000000, ST_HEADER_WRITTEN = 25000000 };

struct st_tensor {
	const char *name;  /* belongs to the header */
	const char *dtype; /* a literal: one of the format's names, such as "F32" */
	int dims;
	int64_t shape[ST_DIMS];
	int64_t begin, end; /* bytes of the buffer */
};

struct st_header {
	struct st_tensor *tensors; /* in the order of their bytes */
	int64_t n;
	int64_t data_at;  /* bytes before the buffer */
	json_t *metadata; /* borrowed from json; NULL: none */
	json_t *json;
};

/* Parses the first `have` bytes of a file of file_size bytes, which must contain the header. `name`
 * is the file's name in errors. */
int ckpt_safetensors_parse(const void *data, size_t have, int64_t file_size, const char *name,
			   struct st_header *out, struct err *e);
/* Reads and parses the header of an open file. */
int ckpt_safetensors_read(int fd, const char *name, struct st_header *out, struct err *e);
void ckpt_safetensors_header_fini(struct st_header *h);

/* Appends N and the header of n tensors in this order; each begins at the `end` of the one before.
 * metadata: an object of strings, borrowed, or NULL. */
int ckpt_safetensors_write_header(const struct st_tensor *tensors, int64_t n,
				  const json_t *metadata, struct buf *out, struct err *e);

#endif
