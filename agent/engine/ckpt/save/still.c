#include "agent/engine/ckpt/save/still.h"

#include "base/numbers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLANCE = 4096 };

/* A slice in the last save. */
struct seen {
	char name[MANIFEST_TENSOR_NAME];
	int64_t lo[2], hi[2];
	struct digest glance; /* of its first bytes: most slices that change differ there */
	struct digest whole;
};

struct ckpt_still {
	struct seen *seen; /* in the order of the snapshot's tensors */
	int n;
	bool kept;            /* `file` is set */
	struct manifest file; /* the file of what is still: its slices and sums */
	bool committed;       /* it is at `path` */
	char path[PATH_MAX];
	struct ckpt_stamp stamp;
};

struct ckpt_still *ckpt_still_open(void)
{
	return calloc(1, sizeof(struct ckpt_still));
}

static void forget_file(struct ckpt_still *k)
{
	if (k->kept)
		ckpt_manifest_fini(&k->file);
	k->kept = k->committed = false;
}

void ckpt_still_close(struct ckpt_still *k)
{
	if (!k)
		return;
	forget_file(k);
	free(k->seen);
	free(k);
}

/* --- what is still --- */

static size_t tensor_bytes(const struct ckpt_tensor *t)
{
	int64_t elements = 0;
	ckpt_box_elements(t, &elements, NULL);
	return (size_t)elements * sizeof *t->data;
}

static struct digest glance_at(const struct ckpt_tensor *t)
{
	return ckpt_digest_of(t->data, min_size(tensor_bytes(t), GLANCE));
}

static bool same_box(int dims, const int64_t *lo, const int64_t *hi, const int64_t *lo2,
		     const int64_t *hi2)
{
	for (int i = 0; i < dims; i++)
		if (lo[i] != lo2[i] || hi[i] != hi2[i])
			return false;
	return true;
}

/* now: this save's entry of the tensor; its digest is set if the slice is still. */
static bool is_still(const struct ckpt_still *k, int i, const struct ckpt_tensor *t,
		     struct seen *now)
{
	const struct seen *was = i < k->n ? &k->seen[i] : NULL;
	if (!was || strcmp(was->name, t->name) ||
	    !same_box(t->dims, was->lo, was->hi, t->lo, t->hi) ||
	    !ckpt_digest_equal(&was->glance, &now->glance))
		return false;
	now->whole = ckpt_digest_of(t->data, tensor_bytes(t));
	return ckpt_digest_equal(&was->whole, &now->whole);
}

/* The tensors of a save: those that are still come first. */
struct split {
	struct ckpt_tensor *list;
	int n, still;
	struct seen *now; /* in the order of the snapshot */
};

static int split_tensors(const struct ckpt_still *k, const struct snapshot *s, struct split *out,
			 struct err *e)
{
	struct split p = { .list = malloc((size_t)s->n * sizeof *p.list), .n = s->n };
	bool *still = calloc((size_t)s->n, sizeof *still);
	size_t bytes = 0;
	p.now = calloc((size_t)s->n, sizeof *p.now);
	*out = p;
	if (!p.list || !still || !p.now) {
		free(still);
		return err_set(e, ERR_NOMEM, "no memory for a list of %d tensors", s->n);
	}
	for (int i = 0; i < s->n; i++) {
		const struct ckpt_tensor *t = &s->tensors[i];
		struct seen *now = &p.now[i];
		snprintf(now->name, sizeof now->name, "%s", t->name);
		memcpy(now->lo, t->lo, sizeof now->lo);
		memcpy(now->hi, t->hi, sizeof now->hi);
		now->glance = glance_at(t);
		still[i] = is_still(k, i, t, now);
		bytes += still[i] ? tensor_bytes(t) : 0;
		if (still[i] && s->watch)
			s->watch->moved(s->watch->arg);
	}
	int at = 0;
	for (int moving = 0; moving < 2; moving++) {
		for (int i = 0; i < s->n; i++)
			if ((still[i] && bytes >= STILL_LEAST) == !moving)
				p.list[at++] = s->tensors[i];
		p.still = moving ? p.still : at;
	}
	free(still);
	*out = p;
	return 0;
}

static void free_split(struct split *p)
{
	free(p->list);
	free(p->now);
}

static const struct manifest_slice *find_slice(const struct manifest *m,
					       const struct ckpt_tensor *t)
{
	const struct manifest_tensor *have = ckpt_manifest_find(m, t->name);
	for (int64_t i = 0; have && i < have->n; i++)
		if (same_box(t->dims, have->slices[i].lo, have->slices[i].hi, t->lo, t->hi))
			return &have->slices[i];
	return NULL;
}

/* --- the file of what is still --- */

/* Whether the file holds exactly these slices. now: of the snapshot s. */
static bool holds(const struct ckpt_still *k, const struct snapshot *s, const struct split *p)
{
	int64_t slices = 0;
	for (int64_t i = 0; i < k->file.n_tensors; i++)
		slices += k->file.tensors[i].n;
	if (slices != p->still)
		return false;
	for (int i = 0; i < s->n; i++) {
		const struct manifest_slice *slice = find_slice(&k->file, &s->tensors[i]);
		if (slice && !ckpt_digest_equal(&slice->digest, &p->now[i].whole))
			return false;
		slices -= slice != NULL;
	}
	return slices == 0;
}

/* Gives the file a name in the attempt. Any failure means that it must be written. */
static bool link_file(const struct ckpt_still *k, const struct ckpt_storage *storage,
		      const char *attempt)
{
	char to[PATH_MAX];
	if (!k->kept || !k->committed || !storage->ops->link ||
	    ckpt_storage_join(to, sizeof to, attempt, k->file.files[0].name, NULL))
		return false;
	if (!storage->ops->link(storage, k->path, to, &k->stamp, NULL))
		return true;
	storage->ops->discard(storage, to, NULL);
	return false;
}

static int write_file(struct ckpt_still *k, const struct snapshot *s, const struct split *p,
		      const struct ckpt_storage *storage, const char *attempt, int rank,
		      const struct manifest *part, struct err *e)
{
	char name[MANIFEST_FILE_NAME];
	snprintf(name, sizeof name, "shard-%05d-still.safetensors", rank);
	forget_file(k);
	ckpt_manifest_init(&k->file, &part->state, part->generation, part->model, part->layout);
	k->kept = true;
	return ckpt_shard_write(s, p->list, p->still, storage, attempt, name, -1, &k->file, e);
}

static int add_still(struct ckpt_still *k, const struct snapshot *s, const struct split *p,
		     const struct ckpt_storage *storage, const char *attempt, int rank,
		     struct manifest *part, struct err *e)
{
	if (!p->still) {
		forget_file(k);
		return 0;
	}
	bool linked = k->kept && holds(k, s, p) && link_file(k, storage, attempt);
	k->committed = false;
	if (!linked && write_file(k, s, p, storage, attempt, rank, part, e))
		return -1;
	k->file.state.step = part->state.step;
	k->file.generation = part->generation;
	return ckpt_manifest_merge(part, &k->file, e);
}

int ckpt_still_write(struct ckpt_still *k, const struct snapshot *s,
		     const struct ckpt_storage *storage, const char *attempt, int rank,
		     struct manifest *part, struct err *e)
{
	struct split p = { 0 };
	if (!k || !storage->ops->link || !s->n)
		return ckpt_snapshot_write(s, storage, attempt, rank, part, e);
	int rc = split_tensors(k, s, &p, e) || add_still(k, s, &p, storage, attempt, rank, part, e);
	if (!rc && p.still < p.n) {
		char name[MANIFEST_FILE_NAME];
		ckpt_shard_name(rank, name);
		rc = ckpt_shard_write(s, p.list + p.still, p.n - p.still, storage, attempt, name,
				      part->state.step, part, e);
	}
	for (int i = 0; i < s->n && !rc; i++)
		p.now[i].whole = find_slice(part, &s->tensors[i])->digest;
	free(k->seen);
	k->seen = rc ? NULL : p.now;
	k->n = rc ? 0 : s->n;
	p.now = rc ? p.now : NULL;
	free_split(&p);
	return rc ? -1 : 0;
}

void ckpt_still_settle(struct ckpt_still *k, const struct ckpt_storage *storage, const char *path)
{
	if (!k)
		return;
	if (!path) {
		forget_file(k);
		k->n = 0;
	} else if (k->kept) {
		k->committed = !ckpt_storage_join(k->path, sizeof k->path, path,
						  k->file.files[0].name, NULL) &&
			       !storage->ops->stamp(storage, k->path, &k->stamp, NULL);
	}
}
