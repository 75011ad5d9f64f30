#include "agent/engine/data/pack_stream.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

struct zstd {
	ZSTD_DStream *z;
	bool inside; /* within a frame */
};

/* A file may begin with a frame or with a skippable frame. Programs that compress in parallel write
 * the latter first. */
static bool zstd_is(const unsigned char *head, size_t n)
{
	return n >= 4 && (!memcmp(head, "\x28\xb5\x2f\xfd", 4) ||
			  ((head[0] & 0xf0) == 0x50 && !memcmp(head + 1, "\x2a\x4d\x18", 3)));
}

static void zstd_close(void *state)
{
	struct zstd *d = state;
	ZSTD_freeDStream(d->z);
	free(d);
}

static void *zstd_open(void)
{
	struct zstd *d = calloc(1, sizeof *d);
	if (d && !(d->z = ZSTD_createDStream())) {
		free(d);
		return NULL;
	}
	return d;
}

static int zstd_fails(const struct stream *s, size_t code, struct err *e)
{
	if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
		return err_set(e, ERR_NOMEM, "%s: no memory to unpack it", data_stream_file(s));
	if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: its zstd window is larger than 128 MiB; unpack it with `zstd "
			       "-d --long=31 %s` and "
			       "pack that",
			       data_stream_file(s), data_stream_file(s));
	return data_stream_damaged(s, ZSTD_getErrorName(code), e);
}

static int zstd_read(void *state, struct stream *s, char *to, size_t most, size_t *got,
		     struct err *e)
{
	struct zstd *d = state;
	struct stream_in *in = data_stream_in(s);
	ZSTD_outBuffer out = { to, most, 0 };
	while (!out.pos) {
		if (data_stream_fill(s, e))
			return -1;
		if (!in->n && !d->inside)
			break;
		ZSTD_inBuffer from = { in->at, in->n, 0 };
		size_t rc = ZSTD_decompressStream(d->z, &out, &from);
		if (ZSTD_isError(rc))
			return zstd_fails(s, rc, e);
		in->at += from.pos;
		in->n -= from.pos;
		d->inside = rc != 0;
		if (d->inside && in->end && !out.pos)
			return data_stream_cut(s, e);
	}
	*got = out.pos;
	return 0;
}

const struct stream_container data_stream_zstd = { "zstd", zstd_is, zstd_open, zstd_close,
						   zstd_read };
