#include "agent/engine/train/replicas.h"

#include "agent/engine/train/trainer.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank that differs says about itself. */
struct replica_note {
	char node[BLAME_NAME], tensor[BLAME_NAME];
};

static const struct held_sum *sum_of(const struct held_sum *all, int rank, int class)
{
	return &all[rank * HELD_CLASSES + class];
}

static bool holds_same_part(const struct held_sum *all, int class, int a, int b)
{
	return sum_of(all, a, class)->key == sum_of(all, b, class)->key;
}

static bool agrees(const struct held_sum *all, int class, int a, int b)
{
	return holds_same_part(all, class, a, b) &&
	       sum_of(all, a, class)->digest == sum_of(all, b, class)->digest;
}

static int count_agreeing(const struct held_sum *all, int world, int class, int rank, bool bits)
{
	int n = 0;
	for (int r = 0; r < world; r++)
		n += bits ? agrees(all, class, rank, r) : holds_same_part(all, class, rank, r);
	return n;
}

/* Judges the ranks that hold the same part as `first`, which is the first of them. */
static int judge_part(const struct held_sum *all, int world, int class, int first, bool *differs,
		      struct replicas_verdict *out)
{
	int n = 0, compared = count_agreeing(all, world, class, first, false);
	*out = (struct replicas_verdict){ .class = class, .reference = -1, .compared = compared };
	for (int r = first; r < world && out->reference < 0; r++)
		if (holds_same_part(all, class, first, r) &&
		    2 * count_agreeing(all, world, class, r, true) > compared)
			out->reference = r;
	for (int r = first; r < world; r++) {
		differs[r] = holds_same_part(all, class, first, r) &&
			     (out->reference < 0 || !agrees(all, class, out->reference, r));
		n += differs[r];
	}
	return n;
}

/* The first rank with which `rank` shares a part, but not its bits. -1: none. */
static int find_difference(const struct held_sum *all, int class, int rank)
{
	for (int r = 0; r < rank; r++)
		if (holds_same_part(all, class, r, rank))
			return agrees(all, class, r, rank) ? -1 : r;
	return -1;
}

int train_replicas_judge(const struct held_sum *all, int world, bool *differs,
			 struct replicas_verdict *out)
{
	memset(differs, 0, (size_t)world * sizeof *differs);
	for (int class = 0; class < HELD_CLASSES; class ++)
		for (int r = 1; r < world; r++) {
			int first = sum_of(all, r, class)->key ? find_difference(all, class, r)
							       : -1;
			if (first >= 0)
				return judge_part(all, world, class, first, differs, out);
		}
	return 0;
}

/* --- The collective comparison ---------------------------------------------------------- */

/* Sends the reference's tallies of the class to all ranks. Ranks that hold the same part have as
 * many of them; *n: how many. */
static int share_reference(struct trainer *t, const struct holdings *h,
			   const struct replicas_verdict *v, int root, struct tally **out,
			   int64_t *n, struct err *e)
{
	struct comm *world = t->env->world;
	*n = 0;
	for (int i = 0; i < h->n; i++)
		*n += h->list[i].class == v->class;
	if (comm_broadcast(world, n, 1, COMM_I64, root, e))
		return -1;
	struct tally *list = calloc((size_t)*n + 1, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for %lld tallies", (long long)*n);
	for (int i = 0, at = 0; comm_rank(world) == root && i < h->n; i++)
		if (h->list[i].class == v->class)
			list[at++] = h->list[i].tally;
	if (comm_broadcast(world, list, (size_t)*n * sizeof *list, COMM_U8, root, e)) {
		free(list);
		return -1;
	}
	*out = list;
	return 0;
}

static const struct held *first_difference(const struct holdings *h, enum held_class class,
					   const struct tally *reference, int64_t n)
{
	int64_t at = 0;
	for (int i = 0; i < h->n && at < n; i++)
		if (h->list[i].class == class &&
		    memcmp(&h->list[i].tally, &reference[at++], sizeof *reference))
			return &h->list[i];
	return NULL;
}

/* Without a majority the ranks are compared with the first of them. Sets notes [world]. */
static int collect_notes(struct trainer *t, const struct holdings *h,
			 const struct replicas_verdict *v, const bool *differs,
			 struct replica_note *notes, struct err *e)
{
	struct replica_note own = { "", "" };
	struct tally *reference = NULL;
	int64_t n;
	int root = v->reference, rank = comm_rank(t->env->world);
	for (int r = 0; root < 0; r++)
		root = differs[r] ? r : -1;
	if (share_reference(t, h, v, root, &reference, &n, e))
		return -1;
	const struct held *first = differs[rank] ? first_difference(h, v->class, reference, n)
						 : NULL;
	snprintf(own.node, sizeof own.node, "%s", t->env->node_name ? t->env->node_name : "");
	if (first)
		snprintf(own.tensor, sizeof own.tensor, "%s", first->param->name);
	free(reference);
	return comm_all_gather(t->env->world, &own, notes, sizeof own, COMM_U8, e);
}

static void note_blame(struct trainer *t, const bool *differs, const char *tensor)
{
	struct train_blame *b = t->env->blame;
	if (!b)
		return;
	*b = (struct train_blame){ .suspect = true, .step = t->at.step, .kind = "weights" };
	for (int r = 0; r < comm_size(t->env->world) && b->n < BLAME_RANKS; r++)
		if (differs[r])
			b->ranks[b->n++] = r;
	snprintf(b->tensor, sizeof b->tensor, "%s", tensor);
}

/* "rank 1 on n1, rank 3 on n2", with at most BLAME_RANKS ranks. Returns a tensor that differs. */
static const char *list_ranks(const struct replica_note *notes, const bool *differs, int world,
			      char *out, size_t size)
{
	const char *tensor = "";
	int n = 0;
	size_t at = 0;
	for (int r = 0; r < world; r++) {
		if (!differs[r])
			continue;
		if (!*tensor)
			tensor = notes[r].tensor;
		if (++n > BLAME_RANKS)
			continue;
		at += (size_t)snprintf(out + at, size - at, "%srank %d%s%.40s", n > 1 ? ", " : "",
				       r, *notes[r].node ? " on " : "", notes[r].node);
	}
	if (n > BLAME_RANKS)
		snprintf(out + at, size - at, " and %d more", n - BLAME_RANKS);
	return tensor;
}

static int report_difference(struct trainer *t, const struct holdings *h,
			     const struct replicas_verdict *v, const bool *differs, struct err *e)
{
	int world = comm_size(t->env->world);
	char ranks[64 * (BLAME_RANKS + 1)] = "";
	struct replica_note *notes = calloc((size_t)world, sizeof *notes);
	if (!notes)
		return err_set(e, ERR_NOMEM, "no memory for the notes of %d ranks", world);
	if (collect_notes(t, h, v, differs, notes, e)) {
		free(notes);
		return -1;
	}
	const char *tensor = list_ranks(notes, differs, world, ranks, sizeof ranks),
		   *what = v->class == HELD_STATES ? "optimizer states" : "weights";
	note_blame(t, differs, tensor);
	if (v->reference < 0)
		err_set(e, ERR_REPLICAS,
			"after step %lld, these ranks hold different %s, which must be equal: %s "
			"(first tensor: %s); which of them is wrong cannot be known; test the "
			"memory and the devices of their nodes",
			(long long)t->at.step, what, ranks, tensor);
	else
		err_set(e, ERR_REPLICAS,
			"after step %lld, the %s of %s are not those of the other ranks that hold "
			"the same (%d in all; first tensor: %s): test the memory and the devices "
			"of that node",
			(long long)t->at.step, what, ranks, v->compared, tensor);
	free(notes);
	return -1;
}

static int compare_sums(struct trainer *t, const struct holdings *h, struct err *e)
{
	struct held_sum own[HELD_CLASSES];
	struct replicas_verdict v;
	int world = comm_size(t->env->world), rc = -1;
	struct held_sum *all = calloc((size_t)world * HELD_CLASSES, sizeof *all);
	bool *differs = calloc((size_t)world, sizeof *differs);
	train_holdings_sum(h, backend_isa(pipeline_backend(t->engine)), own);
	if (!all || !differs)
		err_set(e, ERR_NOMEM, "no memory for the digests of %d ranks", world);
	else if (!comm_all_gather(t->env->world, own, all, sizeof own, COMM_U8, e))
		rc = train_replicas_judge(all, world, differs, &v)
			     ? report_difference(t, h, &v, differs, e)
			     : 0;
	free(differs);
	free(all);
	return rc;
}

int train_replicas_compare(struct trainer *t, bool states, struct err *e)
{
	struct holdings h;
	double since = clock_s();
	if (t->server || comm_size(t->env->world) == 1)
		return 0;
	trainer_phase(t, "compare replicas");
	if (param_store_settle(t->state.store, e) || train_holdings_state(&t->state, states, &h, e))
		return -1;
	int rc = compare_sums(t, &h, e);
	train_holdings_close(&h);
	train_phases_lap(&t->spent, "compare replicas", &since);
	return rc;
}
