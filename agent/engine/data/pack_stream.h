/*
 * pack_stream — reads the bytes of a file, decompressing them if the file is compressed.
 *
 * The first bytes decide, not the name: gzip (also several members, as `cat a.gz b.gz` makes) and
 * zstd (also several frames) are decompressed; all other files are read as they are. A compressed
 * file that is truncated, damaged, or followed by other bytes is refused. Memory does not grow with
 * the file or its decompressed size: a zstd window is at most 128 MiB, as for the zstd program.
 *
 * To add a container:
 *   1. pack_NAME.c with its `const struct stream_container data_stream_NAME` (pack_gzip.c is the
 *      shortest), the only file that includes the library's header; its row in `wraps` of
 *      tests/floors,
 *   2. its row in the table of pack_stream.c,
 *   3. the library in PACKAGES and libs_agent of the Makefile and in the link of the fuzzers; the
 *      ending in pack_format.c,
 *   4. a golden file in tests/golden/make_packs.py, which the tests then read.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_STREAM_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_STREAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct stream; /* one thread */

enum { STREAM_HEAD = 1 << 16 };

/* raw: compressed files are not decompressed. A folder is ERR_USAGE. */
int data_stream_open(const char *file, bool raw, struct stream **out, struct err *e);
void data_stream_close(struct stream *s); /* takes NULL */

/* The first bytes that data_stream_read will return, at most STREAM_HEAD; fewer only if the file
 * ends. They are not consumed. */
const char *data_stream_head(const struct stream *s, size_t *n);
/* Reads up to `most` bytes; *got is 0 only at the end. Errors name the file: ERR_CORRUPT, ERR_IO,
 * ERR_NOMEM. */
int data_stream_read(struct stream *s, char *to, size_t most, size_t *got, struct err *e);
/* The container's name, such as "gzip"; NULL: the file is read as it is. */
const char *data_stream_packed(const struct stream *s);
/* The size of a regular file that is read as it is, and its descriptor; 0: it is compressed, not
 * regular, or empty. */
size_t data_stream_plain(const struct stream *s, int *fd);

/* --- for the containers --- */

/* Compressed bytes that were read and are not used yet. */
struct stream_in {
	const char *at;
	size_t n;
	bool end; /* no bytes follow these */
};

const char *data_stream_file(const struct stream *s);
/* Reads more bytes if none are left. */
int data_stream_fill(struct stream *s, struct err *e);
struct stream_in *data_stream_in(struct stream *s);
/* Fails: the file ends too early. */
int data_stream_cut(const struct stream *s, struct err *e);
/* Fails: the library could not read the bytes. */
int data_stream_damaged(const struct stream *s, const char *why, struct err *e);

struct stream_container {
	const char *word;
	bool (*is)(const unsigned char *head, size_t n);
	void *(*open)(void); /* NULL: no memory */
	void (*close)(void *state);
	/* Like data_stream_read. */
	int (*read)(void *state, struct stream *s, char *to, size_t most, size_t *got,
		    struct err *e);
};

extern const struct stream_container data_stream_gzip, data_stream_zstd;

#endif
