/*
 * pack_stream — the bytes of a file, unpacked on the way where the file is compressed.
 *
 * The first bytes decide, not the name: gzip (also several members, as `cat a.gz b.gz` makes them)
 * and zstd (also several frames) are unpacked, everything else is given as it is. A compressed file
 * that is cut, damaged, or followed by bytes that are not its container's is refused. Memory does
 * not grow with the file or with what it unpacks to: a zstd window is at most 128 MiB, as for the
 * zstd program.
 *
 * To add a container:
 *   1. a file pack_NAME.c with its `const struct stream_container stream_NAME` (pack_gzip.c is the
 *      shortest), the only file that includes the library's header; its row in `wraps` of
 *      tests/floors,
 *   2. the row in the table of pack_stream.c,
 *   3. the library in PACKAGES and libs_agent of the Makefile and in the link of the fuzzers, the
 *      ending in pack_kind.c,
 *   4. a golden file in tests/golden/make_packs.py, which the tests then read.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_STREAM_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_STREAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct stream; /* one thread */

enum { STREAM_HEAD = 1 << 16 };

/* raw: compressed files are given as they are. ERR_USAGE for a folder. */
int data_stream_open(const char *file, bool raw, struct stream **out, struct err *e);
void data_stream_close(struct stream *s); /* takes NULL */

/* The first bytes of what data_stream_read gives, at most STREAM_HEAD; fewer only when there are
 * no more. They stay to be read. */
const char *data_stream_head(const struct stream *s, size_t *n);
/* Up to `most` bytes; *got is 0 at the end only. ERR_CORRUPT, ERR_IO, ERR_NOMEM name the file. */
int data_stream_read(struct stream *s, char *to, size_t most, size_t *got, struct err *e);
/* The container's word, "gzip", or NULL for a file that is given as it is. */
const char *data_stream_packed(const struct stream *s);
/* Bytes of a regular file that is given as it is, with its descriptor; 0: it is another, or
 * empty. */
size_t data_stream_plain(const struct stream *s, int *fd);

/* --- for the containers --- */

/* Compressed bytes that were read and not used yet. */
struct stream_in {
	const char *at;
	size_t n;
	bool end; /* none will follow these */
};

const char *data_stream_file(const struct stream *s);
/* Reads more, when none are left. */
int data_stream_fill(struct stream *s, struct err *e);
struct stream_in *data_stream_in(struct stream *s);
/* refuses a file that ends too early */
int data_stream_cut(const struct stream *s, struct err *e);
/* refuses what the library did not read */
int data_stream_damaged(const struct stream *s, const char *why, struct err *e);

struct stream_container {
	const char *word;
	bool (*is)(const unsigned char *head, size_t n);
	void *(*open)(void); /* NULL: no memory */
	void (*close)(void *state);
	/* As data_stream_read. */
	int (*read)(void *state, struct stream *s, char *to, size_t most, size_t *got,
		    struct err *e);
};

extern const struct stream_container data_stream_gzip, data_stream_zstd;

#endif
