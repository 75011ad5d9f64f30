#include "agent/engine/ckpt/load/provider.h"

#include "agent/engine/ckpt/places/local.h"
#include "agent/engine/ckpt/load/read.h"

#include <stdlib.h>

struct from_storage {
	struct ckpt_provider provider;
	struct ckpt_reader *reader;
	const struct ckpt_local_found *found; /* NULL: every rank can read all files */
};

static struct ckpt_reader *reader_of(const struct ckpt_provider *p)
{
	return ((const struct from_storage *)p)->reader;
}

static int holders(const struct ckpt_provider *p, const struct slice_entry *slice,
		   const int **ranks)
{
	const struct ckpt_local_found *f = ((const struct from_storage *)p)->found;
	return ckpt_local_holders(f, slice->slice->file, ranks);
}

static int begin(struct ckpt_provider *p, const struct slice_entry *slice, bool check,
		 struct err *e)
{
	return ckpt_reader_file(reader_of(p), slice->slice->file, check, e);
}

static int read_bytes(struct ckpt_provider *p, const struct slice_entry *slice, int64_t at,
		      void *data, size_t n, struct err *e)
{
	return ckpt_reader_bytes(reader_of(p), slice->tensor, slice->slice, at, data, n, e);
}

static int differs(const struct ckpt_provider *p, const struct slice_entry *slice, struct err *e)
{
	return ckpt_reader_differs(reader_of(p), slice->tensor, slice->slice, e);
}

static void close_reader(struct ckpt_provider *p)
{
	ckpt_reader_close(reader_of(p));
	free(p);
}

static const struct ckpt_provider_ops storage_ops = {
	.name = "storage",
	.begin = begin,
	.read = read_bytes,
	.differs = differs,
	.close = close_reader,
};

static const struct ckpt_provider_ops local_ops = {
	.name = "local",
	.holders = holders,
	.begin = begin,
	.read = read_bytes,
	.differs = differs,
	.close = close_reader,
};

static int open_provider(const struct ckpt_provider_ops *ops, const char *path,
			 const struct ckpt_local_found *found, const struct manifest *m,
			 const struct ckpt_watch *watch, struct ckpt_provider **out, struct err *e)
{
	struct from_storage *p = malloc(sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	p->provider.ops = ops;
	p->found = found;
	if (ckpt_reader_open(path, m, watch, &p->reader, e)) {
		free(p);
		return -1;
	}
	*out = &p->provider;
	return 0;
}

int ckpt_provider_storage_open(const char *path, const struct manifest *m,
			       const struct ckpt_watch *watch, struct ckpt_provider **out,
			       struct err *e)
{
	return open_provider(&storage_ops, path, NULL, m, watch, out, e);
}

int ckpt_provider_local_open(const struct ckpt_local_found *found, const struct manifest *m,
			     const struct ckpt_watch *watch, struct ckpt_provider **out,
			     struct err *e)
{
	return open_provider(&local_ops, found->path, found, m, watch, out, e);
}

void ckpt_provider_close(struct ckpt_provider *p)
{
	if (p)
		p->ops->close(p);
}
