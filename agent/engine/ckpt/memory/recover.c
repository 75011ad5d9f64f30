#include "agent/engine/ckpt/memory/recover.h"

#include "agent/engine/ckpt/load/agree.h"

#include <stdlib.h>
#include <string.h>

/* The manifests that this rank is the first to hold, by owner, each after its length. */
static int write_parts(const struct ckpt_store *store, const struct copy_held *const *owned,
		       int owners, int rank, struct buf *out, struct err *e)
{
	for (int owner = 0; owner < owners; owner++) {
		const struct copy_held *h = owned[owner];
		struct buf text = BUF_INIT;
		struct store_copy copy;
		if (h->rank != rank)
			continue;
		if (!store || !ckpt_store_find(store, owner, h->step, h->generation, &copy))
			return err_set(e, ERR_INTERNAL, "the copy of rank %d's shard is gone",
				       owner);
		ckpt_manifest_write(copy.part, &text);
		int64_t n = (int64_t)text.len;
		buf_add(out, &n, sizeof n);
		buf_add(out, text.data, text.len);
		out->failed |= buf_failed(&text);
		buf_fini(&text);
	}
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for the manifests of copies") : 0;
}

/* The lists of all ranks, on rank 0. */
struct parts {
	struct buf own;
	int64_t *bytes;
	size_t *counts;
	char *all;
};

static void free_parts(struct parts *p)
{
	buf_fini(&p->own);
	free(p->bytes);
	free(p->counts);
	free(p->all);
}

static int gather_parts(struct comm *group, struct parts *p, int rc, struct err *mine, int *culprit,
			struct err *e)
{
	size_t ranks = (size_t)comm_size(group), total = 0;
	p->bytes = malloc(ranks * sizeof *p->bytes);
	p->counts = malloc(ranks * sizeof *p->counts);
	if (!rc && (!p->bytes || !p->counts))
		rc = err_set(mine, ERR_NOMEM, "no memory for the lists of %zu ranks", ranks);
	if (ckpt_agree(group, rc, mine, culprit, e) ||
	    ckpt_agree_all(group, 0, mine, (int64_t)p->own.len, p->bytes, culprit, e))
		return -1;
	for (size_t r = 0; r < ranks; r++)
		total += p->counts[r] = (size_t)p->bytes[r];
	p->all = comm_rank(group) == 0 ? malloc(total + 1) : NULL;
	rc = p->all || comm_rank(group)
		     ? 0
		     : err_set(mine, ERR_NOMEM, "no memory for %zu bytes of lists", total);
	if (ckpt_agree(group, rc, mine, culprit, e))
		return -1;
	return comm_gatherv(group, p->own.data, p->all, p->counts, COMM_U8, 0, e);
}

/* The rest of a rank's list. */
struct span {
	const char *at, *end;
};

static int merge_part(struct manifest *m, bool first, struct span *from, struct err *e)
{
	struct manifest part;
	int64_t n = -1;
	if (from->end - from->at >= (int64_t)sizeof n)
		memcpy(&n, from->at, sizeof n);
	if (n < 0 || n > from->end - from->at - (int64_t)sizeof n)
		return err_set(e, ERR_PROTO, "the manifest of a copy is cut");
	from->at += sizeof n;
	if (ckpt_manifest_parse(from->at, (size_t)n, "the manifest of a copy", &part, e))
		return -1;
	from->at += n;
	if (first)
		ckpt_manifest_init(m, &part.state, part.generation, part.model, part.layout);
	int rc = ckpt_manifest_merge(m, &part, e);
	ckpt_manifest_fini(&part);
	return rc;
}

static int merge_parts(struct comm *group, const struct parts *p,
		       const struct copy_held *const *owned, int owners, struct buf *text,
		       struct err *e)
{
	size_t ranks = (size_t)comm_size(group);
	struct span *spans = malloc(ranks * sizeof *spans);
	const char *at = p->all;
	struct manifest m = { 0 };
	int rc = spans ? 0 : err_set(e, ERR_NOMEM, "no memory to merge %d manifests", owners);
	for (size_t r = 0; r < ranks && !rc; at = spans[r++].end)
		spans[r] = (struct span){ at, at + p->counts[r] };
	for (int owner = 0; owner < owners && !rc; owner++)
		rc = merge_part(&m, owner == 0, &spans[owned[owner]->rank], e);
	if (!rc) {
		ckpt_manifest_write(&m, text);
		rc = buf_failed(text) ? err_set(e, ERR_NOMEM, "no memory for a manifest") : 0;
	}
	ckpt_manifest_fini(&m);
	free(spans);
	return rc;
}

int ckpt_recover_manifest(struct comm *group, const struct ckpt_store *store,
			  const struct copy_held *const *owned, int owners, struct buf *text,
			  struct err *why, int *culprit, struct err *e)
{
	struct parts p = { .own = BUF_INIT };
	struct err mine = ERR_INIT;
	int rc = write_parts(store, owned, owners, comm_rank(group), &p.own, &mine);
	rc = gather_parts(group, &p, rc, &mine, culprit, e);
	if (!rc && comm_rank(group) == 0 && merge_parts(group, &p, owned, owners, text, why))
		buf_clear(text);
	free_parts(&p);
	return rc;
}
