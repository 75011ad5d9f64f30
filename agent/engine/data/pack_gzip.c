#define ZLIB_CONST /* input is const */
#include "agent/engine/data/pack_stream.h"

#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

struct gzip {
	z_stream z;
	bool between; /* between two members: the previous one has ended */
};

static bool gzip_is(const unsigned char *head, size_t n)
{
	return n >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8;
}

static void *gzip_open(void)
{
	enum { GZIP_ONLY = 16 };
	struct gzip *g = calloc(1, sizeof *g);
	if (g && inflateInit2(&g->z, MAX_WBITS + GZIP_ONLY) != Z_OK) {
		free(g);
		return NULL;
	}
	return g;
}

static void gzip_close(void *state)
{
	struct gzip *g = state;
	inflateEnd(&g->z);
	free(g);
}

/* After the last member there may be another one, or the zeros that fill a tape's last block. Sets
 * *more to whether another one follows. */
static int next_member(struct gzip *g, struct stream *s, bool *more, struct err *e)
{
	struct stream_in *in = data_stream_in(s);
	*more = false;
	for (;;) {
		if (data_stream_fill(s, e))
			return -1;
		if (!in->n)
			return 0;
		if (*in->at)
			break;
		in->at++;
		in->n--;
	}
	inflateReset(&g->z);
	g->between = false;
	*more = true;
	return 0;
}

static int gzip_read(void *state, struct stream *s, char *to, size_t most, size_t *got,
		     struct err *e)
{
	struct gzip *g = state;
	struct stream_in *in = data_stream_in(s);
	uInt room = most < (1U << 30) ? (uInt)most : 1U << 30;
	g->z.next_out = (Bytef *)to;
	g->z.avail_out = room;
	while (g->z.avail_out == room) {
		bool more;
		if (g->between && next_member(g, s, &more, e))
			return -1;
		if (g->between)
			break;
		if (data_stream_fill(s, e))
			return -1;
		if (!in->n)
			return data_stream_cut(s, e);
		g->z.next_in = (const Bytef *)in->at;
		g->z.avail_in = (uInt)in->n;
		int rc = inflate(&g->z, Z_NO_FLUSH);
		in->at += in->n - g->z.avail_in;
		in->n = g->z.avail_in;
		if (rc == Z_MEM_ERROR)
			return err_set(e, ERR_NOMEM, "%s: no memory to unpack it",
				       data_stream_file(s));
		if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
			return data_stream_damaged(s, g->z.msg ? g->z.msg : "not readable", e);
		g->between = rc == Z_STREAM_END;
	}
	*got = room - g->z.avail_out;
	return 0;
}

const struct stream_container data_stream_gzip = { "gzip", gzip_is, gzip_open, gzip_close,
						   gzip_read };
