#include "agent/engine/ckpt/places/trail.h"

#include "base/numbers.h"

#include <stdlib.h>

struct ckpt_trail {
	struct digester *digester;
	const struct slice_entry *next, *end; /* the slices that follow the current part */
	const char *tensor;                   /* of the current part; NULL: it is no slice */
	const struct digest *want;            /* its digest; NULL: the file has ended */
	int64_t left;                         /* its bytes that are still to come */
};

struct ckpt_trail *ckpt_trail_open(void)
{
	struct ckpt_trail *t = calloc(1, sizeof *t);
	if (t && !(t->digester = ckpt_digester_open())) {
		free(t);
		return NULL;
	}
	return t;
}

void ckpt_trail_close(struct ckpt_trail *t)
{
	if (!t)
		return;
	ckpt_digester_close(t->digester);
	free(t);
}

static void begin_part(struct ckpt_trail *t, const char *tensor, int64_t bytes,
		       const struct digest *want)
{
	t->tensor = tensor;
	t->left = bytes;
	t->want = want;
	ckpt_digester_start(t->digester);
}

void ckpt_trail_shard(struct ckpt_trail *t, const struct manifest *m, const struct slice_index *x,
		      int64_t file)
{
	t->next = x->entries + x->first[file];
	t->end = x->entries + x->first[file + 1];
	begin_part(t, NULL, m->files[file].header, &m->files[file].digest);
}

void ckpt_trail_attached(struct ckpt_trail *t, const struct manifest_attached *a)
{
	t->next = t->end = NULL;
	begin_part(t, NULL, a->size, &a->digest);
}

static int end_part(struct ckpt_trail *t, const char *path, struct err *e)
{
	struct digest d = ckpt_digester_end(t->digester);
	const char *part = t->end ? "its header" : "the file";
	if (!ckpt_digest_equal(&d, t->want))
		return err_set(e, ERR_CORRUPT,
			       "%s: %s%s: the digest differs: its bytes changed after they were "
			       "written; use another checkpoint",
			       path, t->tensor ? "tensor " : "", t->tensor ? t->tensor : part);
	if (t->next == t->end) {
		t->want = NULL;
		return 0;
	}
	begin_part(t, t->next->tensor->name, ckpt_slice_bytes(t->next->slice),
		   &t->next->slice->digest);
	t->next++;
	return 0;
}

int ckpt_trail_add(struct ckpt_trail *t, const char *path, const void *data, size_t n,
		   struct err *e)
{
	const char *at = data;
	while (n > 0 && t->want) {
		size_t now = (size_t)min_int64((int64_t)n, t->left);
		ckpt_digester_add(t->digester, at, now);
		at += now;
		n -= now;
		t->left -= (int64_t)now;
		if (t->left == 0 && end_part(t, path, e))
			return -1;
	}
	return 0;
}
