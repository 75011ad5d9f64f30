/*
 * loaded: proves that what the ranks hold after a load is the state that was saved.
 *
 * Each rank adds up the blocks of its boxes. The sum of block b of a tensor, times a key of the
 * tensor's name and b, goes into one of 1024 buckets, which the name selects, so that the ranks
 * need no common list of tensors: rank 0 compares the sums of their buckets with those of the
 * manifest. A bucket is exchanged as 4 words of 32 bits, whose sums do not overflow.
 */
#include "agent/engine/ckpt/format/state_digest.h"

#include "agent/engine/ckpt/save/commit.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, BUCKETS = 1024, LIMBS = 4, MESSAGE = BUCKETS * LIMBS + 1 };

int ckpt_sums_add_box(struct ckpt_sums *s, const struct ckpt_tensor *t,
		      const struct ckpt_watch *watch, struct err *e)
{
	int64_t first, last, n = 1, chunk = CHUNK / (int64_t)sizeof(float);
	for (int i = 0; i < t->dims; i++)
		n *= t->hi[i] - t->lo[i];
	if (n == 0)
		return 0;
	ckpt_blocks_touched(t->dims, t->shape, t->lo, t->hi, &first, &last);
	if (ckpt_sums_reserve(s, first, last, e))
		return -1;
	float *copy = t->there ? malloc(CHUNK) : NULL;
	int rc = t->there && !copy
			 ? err_set(e, ERR_NOMEM, "tensor %.95s: no memory to digest it", t->name)
			 : 0;
	for (int64_t at = 0; at < n && !rc; at += chunk) {
		int64_t run = min_int64(chunk, n - at);
		if (copy)
			rc = t->there->get(t->there->arg, copy, t->data + at,
					   (size_t)run * sizeof(float), e);
		if (!rc)
			ckpt_sums_add(s, t->dims, t->shape, t->lo, t->hi, at, run,
				      copy ? copy : t->data + at);
		if (watch)
			watch->moved(watch->arg);
	}
	free(copy);
	return rc ? -1 : 0;
}

static uint64_t hash_name(const char *name)
{
	struct digest d = ckpt_digest_of(name, strlen(name));
	uint64_t h = 0;
	for (int i = 0; i < 8; i++)
		h = h << 8 | d.bytes[i];
	return h;
}

static void add_to_bucket(const char *name, const struct ckpt_sums *s, ckpt_sum *buckets)
{
	uint64_t h = hash_name(name);
	for (int64_t i = 0; i < s->n; i++)
		buckets[h % BUCKETS] += s->at[i] * ckpt_sum_key(h, (uint64_t)(s->first + i));
}

/* Whether rank 0 has leaves to compare with, and whether those of moments are among them. */
struct question {
	int32_t leaves, moments;
};

static struct question question_of(const struct manifest *m)
{
	struct question q = { 1, strcmp(m->state.optimizer, CKPT_NO_OPTIMIZER) != 0 };
	for (int64_t i = 0; i < m->n_tensors; i++)
		q.leaves &= m->tensors[i].has_sums;
	return q;
}

static int add_boxes(const struct ckpt_tensor *tensors, int n, bool moments,
		     const struct ckpt_watch *watch, ckpt_sum *buckets, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < n && !rc; i++) {
		struct ckpt_sums s = { 0 };
		if (tensors[i].moment && !moments)
			continue;
		rc = ckpt_sums_add_box(&s, &tensors[i], watch, e);
		if (!rc)
			add_to_bucket(tensors[i].name, &s, buckets);
		ckpt_sums_fini(&s);
	}
	return rc;
}

/* Adds the buckets of all ranks; fails on all ranks if one of them has failed. */
static int add_ranks(struct comm *world, int rc, ckpt_sum *buckets, int64_t *message, struct err *e)
{
	struct err lost = ERR_INIT;
	for (int i = 0; i < BUCKETS * LIMBS; i++)
		message[i] = (uint32_t)(buckets[i / LIMBS] >> (32 * (i % LIMBS)));
	message[MESSAGE - 1] = rc != 0;
	if (comm_all_reduce(world, message, message, MESSAGE, COMM_I64, COMM_SUM, &lost)) {
		if (!rc && e)
			*e = lost;
		return -1;
	}
	if (message[MESSAGE - 1])
		return rc ? -1
			  : err_set(e, ERR_PEER, "%d ranks could not digest what they have loaded",
				    (int)message[MESSAGE - 1]);
	memset(buckets, 0, BUCKETS * sizeof *buckets);
	for (int i = 0; i < BUCKETS * LIMBS; i++)
		buckets[i / LIMBS] += (ckpt_sum)(uint64_t)message[i] << (32 * (i % LIMBS));
	return 0;
}

/* Rank 0 has the optional tensors, if the ranks have any. */
static bool has_optional(const struct ckpt_tensor *tensors, int n)
{
	for (int i = 0; i < n; i++)
		if (ckpt_optional(tensors[i].name))
			return true;
	return false;
}

/* Subtracts the ranks' buckets from the manifest's: all must be 0. optional: the ranks have the
 * optional tensors. */
static int compare(const struct manifest *m, bool optional, ckpt_sum *buckets, struct err *e)
{
	for (int i = 0; i < BUCKETS; i++)
		buckets[i] = -buckets[i];
	for (int64_t i = 0; i < m->n_tensors; i++)
		if (optional || !ckpt_optional(m->tensors[i].name))
			add_to_bucket(m->tensors[i].name, &m->tensors[i].sums, buckets);
	for (int64_t i = 0; i < m->n_tensors; i++)
		if (buckets[hash_name(m->tensors[i].name) % BUCKETS])
			return err_set(e, ERR_CORRUPT,
				       "tensor %s: its digest in memory is not the one that was "
				       "saved, although the files are intact: a memory or a "
				       "transfer changed it; test the nodes, and start again",
				       m->tensors[i].name);
	for (int i = 0; i < BUCKETS; i++)
		if (buckets[i])
			return err_set(e, ERR_CORRUPT,
				       "the ranks hold a tensor that the checkpoint does not have");
	return 0;
}

int ckpt_state_check_loaded(struct comm *world, const struct manifest *m,
			    const struct ckpt_tensor *tensors, int n,
			    const struct ckpt_watch *watch, struct err *e)
{
	struct question q = { 0 };
	struct err mine = ERR_INIT;
	if (comm_rank(world) == 0)
		q = question_of(m);
	if (comm_broadcast(world, &q, sizeof q / sizeof q.leaves, COMM_I32, 0, e))
		return -1;
	if (!q.leaves)
		return 0;
	ckpt_sum *buckets = calloc(BUCKETS, sizeof *buckets);
	int64_t *message = calloc(MESSAGE, sizeof *message);
	int rc = -1;
	if (!buckets || !message) {
		err_set(&mine, ERR_NOMEM, "no memory to digest what was loaded");
		comm_abort(world, mine.text);
	} else {
		rc = add_boxes(tensors, n, q.moments, watch, buckets, &mine);
		rc = add_ranks(world, rc, buckets, message, &mine);
	}
	if (!rc) {
		if (comm_rank(world) == 0)
			rc = compare(m, has_optional(tensors, n), buckets, &mine);
		rc = ckpt_commit_share_result(world, 0, rc, &mine);
	}
	free(buckets);
	free(message);
	if (rc && e)
		*e = mine;
	return rc;
}

int ckpt_check_loaded(struct comm *world, const char *path, const struct ckpt_tensor *tensors,
		      int n, const struct ckpt_watch *watch, struct err *e)
{
	struct manifest m = { 0 };
	struct err mine = ERR_INIT;
	int rc = comm_rank(world) == 0 ? ckpt_manifest_load(path, &m, &mine) : 0;
	rc = ckpt_commit_share_result(world, 0, rc, &mine);
	if (!rc && ckpt_state_check_loaded(world, &m, tensors, n, watch, &mine))
		rc = err_prefix(&mine, "%s", path);
	ckpt_manifest_fini(&m);
	if (rc && e)
		*e = mine;
	return rc;
}
