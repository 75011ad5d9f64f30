#include "agent/engine/train/diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct decision {
	const struct rank_findings *all;
	int world;
	const struct step_results *r;
	struct train_blame *blame;
	char *text;
	size_t size;
};

/* "rank 3 on n2" */
enum { RANK_TEXT = BLAME_NAME + 32, PLACE_TEXT = 128 };
static const char *name_rank(const struct decision *d, int rank, char out[static RANK_TEXT])
{
	const char *node = d->all[rank].node;
	snprintf(out, RANK_TEXT, "rank %d%s%.*s", rank, *node ? " on " : "", BLAME_NAME - 1, node);
	return out;
}

static const char *name_layer(const struct decision *d, int layer, char out[static 32])
{
	if (layer < 0)
		snprintf(out, 32, "the embedding");
	else if (layer >= d->r->layers)
		snprintf(out, 32, "the head");
	else
		snprintf(out, 32, "layer %d", layer);
	return out;
}

static void blame_rank(struct decision *d, int rank, const char *kind, const char *tensor,
		       bool suspect)
{
	struct train_blame *b = d->blame;
	b->ranks[0] = rank;
	b->n = 1;
	b->kind = kind;
	b->suspect = suspect;
	snprintf(b->tensor, sizeof b->tensor, "%s", tensor);
}

/* --- The state before the step ---------------------------------------------------------- */

static bool tensor_before(const struct bad_tensor *a, const struct bad_tensor *b)
{
	return a->layer != b->layer ? a->layer < b->layer : a->ordinal < b->ordinal;
}

/* Whether another rank holds the same parameters, and they are good. */
static bool has_good_replica(const struct decision *d, int rank)
{
	for (int r = 0; r < d->world; r++)
		if (r != rank && d->all[r].held == d->all[rank].held && !d->all[r].before.bad)
			return true;
	return false;
}

/* A rank whose replica is good comes first: its state was not bad because of the training. */
static int find_bad_state(const struct decision *d, int *n, bool *alone)
{
	int best = -1;
	*n = 0;
	*alone = false;
	for (int r = 0; r < d->world; r++) {
		const struct bad_tensor *b = &d->all[r].before;
		if (!b->bad)
			continue;
		++*n;
		bool good = has_good_replica(d, r);
		if (best < 0 || (good && !*alone) ||
		    (good == *alone && tensor_before(b, &d->all[best].before))) {
			best = r;
			*alone = good;
		}
	}
	return best;
}

static bool decide_state(struct decision *d)
{
	char who[RANK_TEXT], others[64] = "no other rank has any";
	int n;
	bool alone;
	int rank = find_bad_state(d, &n, &alone);
	if (rank < 0)
		return false;
	const struct bad_tensor *b = &d->all[rank].before;
	if (n > 1)
		snprintf(others, sizeof others, "%d ranks have some", n);
	snprintf(d->text, d->size,
		 "%s had bad numbers before this step: %lld of %lld in the %s %s are NaN or "
		 "infinite (%s)%s",
		 name_rank(d, rank, who), (long long)b->bad, (long long)b->count,
		 b->state ? "optimizer's states of" : "weights", b->name, others,
		 alone ? "; its replicas are good, so test the memory and the device of that node"
		       : "");
	blame_rank(d, rank, b->state ? "optimizer-state" : "weights", b->name, alone);
	return true;
}

/* --- The second computation ------------------------------------------------------------- */

bool train_diagnosis_before(const struct model_finding *a, const struct model_finding *b)
{
	if (a->micro != b->micro)
		return a->micro < b->micro;
	if (a->backward != b->backward)
		return !a->backward;
	if (a->layer != b->layer)
		return a->backward ? a->layer > b->layer : a->layer < b->layer;
	return a->order < b->order;
}

static int find_origin(const struct decision *d, int *ties)
{
	int best = -1;
	*ties = 0;
	for (int r = 0; r < d->world; r++) {
		const struct model_finding *f = &d->all[r].again;
		if (!f->bad)
			continue;
		if (best < 0 || train_diagnosis_before(f, &d->all[best].again)) {
			best = r;
			*ties = 0;
		} else if (!train_diagnosis_before(&d->all[best].again, f)) {
			++*ties;
		}
	}
	return best;
}

/* "the gradient of layers.1.mlp.up.weight", or "output of the layer of layer 1" */
static void name_tensor(const struct decision *d, const struct model_finding *f, char *out,
			size_t size)
{
	char layer[32];
	if (f->gradient)
		snprintf(out, size, "the gradient of %s", f->what);
	else
		snprintf(out, size, "the %s (%s)", f->what, name_layer(d, f->layer, layer));
}

static bool decide_origin(struct decision *d)
{
	char who[RANK_TEXT], what[PLACE_TEXT], also[64] = "";
	int ties, rank = find_origin(d, &ties);
	if (rank < 0)
		return false;
	const struct model_finding *f = &d->all[rank].again;
	name_tensor(d, f, what, sizeof what);
	if (ties)
		snprintf(also, sizeof also, ", and %d other rank%s at the same place", ties,
			 ties > 1 ? "s" : "");
	snprintf(d->text, d->size,
		 "a second computation shows where they begin: %s has them first%s, in the %s pass "
		 "of micro-batch %d: %lld of %lld numbers of %s are NaN or infinite",
		 name_rank(d, rank, who), also, f->backward ? "backward" : "forward", f->micro,
		 (long long)f->bad, (long long)f->count, what);
	blame_rank(d, rank, f->gradient ? "gradient" : "activations", f->what, false);
	return true;
}

/* --- The comparison of both computations ------------------------------------------------ */

static bool same_bits(double a, double b)
{
	return !memcmp(&a, &b, sizeof a);
}

static bool results_agree(const struct decision *d)
{
	if (!same_bits(d->r->loss, d->r->loss_again) || !same_bits(d->r->norm, d->r->norm_again))
		return false;
	for (int r = 0; r < d->world; r++) {
		const struct rank_findings *f = &d->all[r];
		if (f->differs_at >= 0 || f->gradients_differ || f->loss_differs)
			return false;
	}
	return true;
}

/* The rank whose own tensors differ first; a part of the loss comes after them. -1: none. */
static int find_own_difference(const struct decision *d)
{
	int best = -1;
	for (int r = 0; r < d->world; r++) {
		const struct rank_findings *f = &d->all[r], *b = best < 0 ? NULL : &d->all[best];
		if (f->differs_at < 0)
			continue;
		if (!b || f->differs_layer < b->differs_layer ||
		    (f->differs_layer == b->differs_layer && f->differs_at < b->differs_at))
			best = r;
	}
	for (int r = 0; best < 0 && r < d->world; r++)
		if (d->all[r].loss_differs)
			best = r;
	return best;
}

/* A rank whose reduced gradients are bad, while another rank has the same gradients without. */
static int find_corrupted_gradient(const struct decision *d)
{
	for (int r = 0; r < d->world; r++)
		for (int s = 0; s < d->world && d->all[r].reduced.bad; s++)
			if (d->all[s].pieces == d->all[r].pieces && !d->all[s].reduced.bad)
				return r;
	return -1;
}

static int find_bad_gradient(const struct decision *d)
{
	int best = -1;
	for (int r = 0; r < d->world; r++)
		if (d->all[r].reduced.bad &&
		    (best < 0 || tensor_before(&d->all[r].reduced, &d->all[best].reduced)))
			best = r;
	return best;
}

static const char transient[] = "a second computation of the same numbers gives other results, so a "
				"device or a memory failed for a moment";

static void decide_own_difference(struct decision *d, int rank)
{
	char who[RANK_TEXT], layer[32], what[64] = "its part of the loss differs";
	const struct rank_findings *f = &d->all[rank];
	if (f->differs_at >= 0)
		snprintf(what, sizeof what, "its activations differ from %s on",
			 name_layer(d, f->differs_layer, layer));
	name_rank(d, rank, who);
	snprintf(d->text, d->size, "%s: on %s, %s; test that node", transient, who, what);
	blame_rank(d, rank, "activations", f->differs_at >= 0 ? layer : "", true);
}

static void decide_transient(struct decision *d)
{
	char who[RANK_TEXT];
	int rank = find_corrupted_gradient(d), own = find_own_difference(d);
	if (own >= 0) {
		decide_own_difference(d, own);
		return;
	}
	bool corrupted = rank >= 0;
	rank = corrupted ? rank : find_bad_gradient(d);
	if (rank < 0) {
		snprintf(d->text, d->size, "%s; which rank it was cannot be known", transient);
		return;
	}
	const struct bad_tensor *b = &d->all[rank].reduced;
	snprintf(d->text, d->size, "%s: %s had %lld of %lld numbers that are NaN or infinite in the "
				   "reduced gradient of %s%s",
		 transient, name_rank(d, rank, who), (long long)b->bad, (long long)b->count,
		 b->name,
		 corrupted ? ", and its replicas had none; test that node"
			   : "; which rank computed them cannot be known");
	blame_rank(d, rank, "gradient", b->name, corrupted);
}

static bool decide_overflow(struct decision *d)
{
	char who[RANK_TEXT];
	int rank = find_bad_gradient(d);
	for (int r = 0; r < d->world; r++)
		if (d->all[r].reduced.bad && !d->all[r].reduced_again)
			return false;
	if (rank < 0)
		return false;
	const struct bad_tensor *b = &d->all[rank].reduced;
	snprintf(d->text, d->size,
		 "a second computation shows that each rank's own numbers are finite, and the sum of "
		 "the gradients over ranks is not: %lld of %lld numbers of %s on %s",
		 (long long)b->bad, (long long)b->count, b->name, name_rank(d, rank, who));
	blame_rank(d, rank, "gradient", b->name, false);
	return true;
}

void train_diagnosis_decide(const struct rank_findings *all, int world,
			    const struct step_results *r, struct train_blame *blame, char *text,
			    size_t size)
{
	struct decision d = { all, world, r, blame, text, size };
	bool finite = isfinite(r->loss) && isfinite(r->norm);
	*text = '\0';
	if (decide_state(&d) || decide_origin(&d))
		return;
	if (!finite && decide_overflow(&d))
		return;
	if (results_agree(&d))
		snprintf(text, size,
			 "a second computation gives the same bits, so they come from the data or "
			 "the weights");
	else
		decide_transient(&d);
}
