#include "agent/engine/ckpt/memory/copies.h"
#include "agent/engine/ckpt/load/provider.h"

#include <stdlib.h>
#include <string.h>

/* The ranks that hold a file of the manifest. */
struct holders {
	int64_t first; /* in ranks */
	int n;
	const char *image; /* of this rank's copy; NULL: it has none */
};

struct from_memory {
	struct ckpt_provider provider;
	const struct manifest *m;
	struct holders *files;
	int *ranks;
};

static const struct holders *holders_of(const struct ckpt_provider *p,
					const struct slice_entry *slice)
{
	return &((const struct from_memory *)p)->files[slice->slice->file];
}

static int list_holders(const struct ckpt_provider *p, const struct slice_entry *slice,
			const int **ranks)
{
	const struct holders *h = holders_of(p, slice);
	*ranks = ((const struct from_memory *)p)->ranks + h->first;
	return h->n;
}

/* The copies were verified when they were completed; the digest of each slice is verified again. */
static int begin(struct ckpt_provider *p, const struct slice_entry *slice, bool check,
		 struct err *e)
{
	(void)check;
	return holders_of(p, slice)->image
		       ? 0
		       : err_set(e, ERR_INTERNAL, "tensor %s: this rank has no copy of its slice",
				 slice->tensor->name);
}

static int read_bytes(struct ckpt_provider *p, const struct slice_entry *slice, int64_t at,
		      void *data, size_t n, struct err *e)
{
	const struct manifest *m = ((const struct from_memory *)p)->m;
	(void)e;
	memcpy(data,
	       holders_of(p, slice)->image + m->files[slice->slice->file].header +
		       slice->slice->offset + at,
	       n);
	return 0;
}

static int differs(const struct ckpt_provider *p, const struct slice_entry *slice, struct err *e)
{
	const struct manifest *m = ((const struct from_memory *)p)->m;
	return err_set(e, ERR_CORRUPT,
		       "%s: tensor %s: the digest of its copy in this rank's memory differs: the "
		       "memory changed; use a checkpoint",
		       m->files[slice->slice->file].name, slice->tensor->name);
}

static void close_memory(struct ckpt_provider *p)
{
	struct from_memory *x = (struct from_memory *)p;
	free(x->files);
	free(x->ranks);
	free(x);
}

static const struct ckpt_provider_ops memory_ops = {
	.name = "memory",
	.holders = list_holders,
	.begin = begin,
	.read = read_bytes,
	.differs = differs,
	.close = close_memory,
};

/* This rank's own copy with the identity of `held`. */
static const char *find_image(const struct ckpt_store *store, const struct copy_held *held)
{
	struct store_copy copy;
	return ckpt_store_find(store, held->owner, held->step, held->generation, &copy) ? copy.image
											: NULL;
}

static int find_holders(struct from_memory *x, const struct copies *c,
			const struct ckpt_store *store, int rank, const struct slice_index *index,
			struct err *e)
{
	int64_t used = 0;
	for (int64_t f = 0; f < x->m->n_files; f++) {
		struct holders *h = &x->files[f];
		struct digest identity;
		const struct copy_held *held;
		if (ckpt_copy_identity(x->m, f, index, &identity, e))
			return -1;
		int64_t n = ckpt_copies_of(c, &identity, &held);
		*h = (struct holders){ .first = used };
		for (int64_t i = 0; i < n; i++) {
			if (i && held[i].rank == held[i - 1].rank)
				continue;
			x->ranks[used + h->n++] = held[i].rank;
			if (held[i].rank == rank && store)
				h->image = find_image(store, &held[i]);
		}
		used += h->n;
	}
	return 0;
}

int ckpt_provider_memory_open(const struct manifest *m, const struct copies *copies,
			      const struct ckpt_store *store, int rank, struct ckpt_provider **out,
			      struct err *e)
{
	struct from_memory *x = calloc(1, sizeof *x);
	struct slice_index index = { 0 };
	if (x)
		*x = (struct from_memory){
			.provider.ops = &memory_ops,
			.m = m,
			.files = calloc((size_t)m->n_files + 1, sizeof *x->files),
			.ranks = malloc(((size_t)copies->n + 1) * sizeof *x->ranks)
		};
	if (!x || !x->files || !x->ranks || ckpt_slice_index_build(m, &index, NULL)) {
		if (x)
			close_memory(&x->provider);
		return err_set(e, ERR_NOMEM, "no memory to find copies of %lld shards",
			       (long long)m->n_files);
	}
	int rc = find_holders(x, copies, store, rank, &index, e);
	ckpt_slice_index_free(&index);
	if (rc)
		close_memory(&x->provider);
	else
		*out = &x->provider;
	return rc;
}
