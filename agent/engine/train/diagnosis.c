#include "agent/engine/train/diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct decision {
	const struct rank_findings *all;
	const enum witness *witnesses;
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
	snprintf(b->tensor, sizeof b->tensor, "%.*s", BLAME_NAME - 1, tensor);
}

static void add_rank(struct decision *d, int rank)
{
	if (d->blame->n < BLAME_RANKS)
		d->blame->ranks[d->blame->n++] = rank;
}

/* --- The state before the step ---------------------------------------------------------- */

static bool tensor_before(const struct bad_tensor *a, const struct bad_tensor *b)
{
	return a->layer != b->layer ? a->layer < b->layer : a->ordinal < b->ordinal;
}

int train_diagnosis_suspected(const struct rank_findings *all, int world)
{
	int best = -1;
	for (int r = 0; r < world; r++)
		if (all[r].before.bad &&
		    (best < 0 || tensor_before(&all[r].before, &all[best].before)))
			best = r;
	return best;
}

static int count_witnesses(const struct decision *d, enum witness what)
{
	int n = 0;
	for (int r = 0; r < d->world; r++)
		n += d->witnesses[r] == what;
	return n;
}

/* Ranks that hold the same tensor get equal numbers from an update. If those of one are good, the
 * bad ones were spoiled after it. */
static bool decide_state(struct decision *d)
{
	char who[RANK_TEXT], others[PLACE_TEXT];
	int rank = train_diagnosis_suspected(d->all, d->world);
	if (rank < 0)
		return false;
	const struct bad_tensor *b = &d->all[rank].before;
	int bad = count_witnesses(d, WITNESS_BAD), good = count_witnesses(d, WITNESS_GOOD);
	if (!good)
		snprintf(others, sizeof others, "; %s",
			 bad > 1 ? "all ranks that hold it have them" : "no other rank holds it");
	else
		snprintf(others, sizeof others,
			 "; they are good on %d of the %d ranks that hold them: test the memory "
			 "and the "
			 "device of that node",
			 good, good + bad);
	snprintf(
		d->text, d->size,
		"%s had bad numbers before this step: %lld of the %lld %s %s that it holds are NaN "
		"or infinite%s",
		name_rank(d, rank, who), (long long)b->bad, (long long)b->count,
		b->state ? "optimizer states of" : "weights of", b->name, others);
	blame_rank(d, rank, b->state ? "optimizer-state" : "weights", b->name, good > 0);
	for (int r = 0; good && r < d->world; r++)
		if (r != rank && d->witnesses[r] == WITNESS_BAD)
			add_rank(d, r);
	return true;
}

/* --- The second computation ------------------------------------------------------------- */

bool train_diagnosis_before(const struct model_place *a, const struct model_place *b)
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
		if (best < 0 || train_diagnosis_before(&f->at, &d->all[best].again.at)) {
			best = r;
			*ties = 0;
		} else if (!train_diagnosis_before(&d->all[best].again.at, &f->at)) {
			++*ties;
		}
	}
	return best;
}

/* "gradient of layers.1.mlp.up.weight", or "output of layer 1" */
static void name_tensor(const struct decision *d, const struct model_finding *f, char *out,
			size_t size)
{
	char layer[32];
	if (f->gradient)
		snprintf(out, size, "gradient of %s", f->what);
	else
		snprintf(out, size, "%s of %s", f->what, name_layer(d, f->at.layer, layer));
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
		 "of micro-batch %d: %lld of the %lld numbers of the %s are NaN or infinite",
		 name_rank(d, rank, who), also, f->at.backward ? "backward" : "forward",
		 f->at.micro, (long long)f->bad, (long long)f->count, what);
	blame_rank(d, rank, f->gradient ? "gradient" : "activations", f->gradient ? f->what : what,
		   false);
	return true;
}

/* --- The comparison of both computations ------------------------------------------------ */

static bool same_bits(double a, double b)
{
	return !memcmp(&a, &b, sizeof a);
}

static bool results_agree(const struct decision *d)
{
	const struct step_results *s = d->r;
	if (!same_bits(s->loss, s->loss_again) ||
	    (s->any_order ? !isfinite(s->norm) != !isfinite(s->norm_again)
			  : !same_bits(s->norm, s->norm_again)))
		return false;
	for (int r = 0; r < d->world; r++) {
		const struct rank_findings *f = &d->all[r];
		if (f->differs || (f->gradients_differ && !s->any_order) || f->loss_differs)
			return false;
	}
	return true;
}

/* The rank whose own tensors differ first. -1: none. */
static int find_own_difference(const struct decision *d)
{
	int best = -1;
	for (int r = 0; r < d->world; r++)
		if (d->all[r].differs &&
		    (best < 0 ||
		     train_diagnosis_before(&d->all[r].differs_at, &d->all[best].differs_at)))
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

static const char transient[] =
	"a second computation of the same numbers gives other results, so a "
	"device or a memory failed for a moment";

/* Adds the other ranks whose tensors differ first at the same place. They share the computation. */
static void add_ties(struct decision *d, int rank)
{
	const struct model_place *at = &d->all[rank].differs_at;
	for (int r = rank + 1; r < d->world; r++)
		if (d->all[r].differs && !train_diagnosis_before(at, &d->all[r].differs_at))
			add_rank(d, r);
}

/* "rank 2 on n1", or "one of the ranks 2 on n1, 3 on n1" */
static void name_blamed(const struct decision *d, char *out, size_t size)
{
	const struct train_blame *b = d->blame;
	size_t at = (size_t)snprintf(out, size, b->n > 1 ? "one of the ranks " : "rank ");
	for (int i = 0; i < b->n && at < size; i++) {
		const char *node = d->all[b->ranks[i]].node;
		at += (size_t)snprintf(out + at, size - at, "%s%d%s%.20s", i ? ", " : "",
				       b->ranks[i], *node ? " on " : "", node);
	}
}

/* A node is a suspect only if no other one may have caused it. */
static void report_transient(struct decision *d, const char *what, const char *layer)
{
	char who[BLAME_RANKS * 40];
	name_blamed(d, who, sizeof who);
	d->blame->kind = "activations";
	d->blame->suspect = d->blame->n == 1;
	snprintf(d->blame->tensor, sizeof d->blame->tensor, "%s", layer);
	snprintf(d->text, d->size, "%s, on %s: %s%s%s", transient, who, what, *layer ? " " : "",
		 layer);
}

static bool replica_differs(const struct decision *d, int dp)
{
	for (int r = 0; r < d->world; r++)
		if ((d->all[r].loss_differs || d->all[r].differs) && d->all[r].dp == dp)
			return true;
	return false;
}

/* What is left differs, but an earlier part of it is lost: any rank of that replica of the pipeline
 * may have been the first. */
static void decide_replica(struct decision *d, const char *what)
{
	d->blame->n = 0;
	for (int r = 0; r < d->world; r++)
		if (replica_differs(d, d->all[r].dp))
			add_rank(d, r);
	report_transient(d, what, "");
}

/* The forward pass keeps what it computes until the backward pass of the micro-batch, on each
 * stage. A later stage may have lost what a gradient on an earlier one came from. */
static bool decide_own_difference(struct decision *d)
{
	char layer[32];
	int rank = find_own_difference(d);
	bool loss = false;
	for (int r = 0; r < d->world; r++)
		loss |= d->all[r].loss_differs;
	if (rank >= 0 && !d->all[rank].differs_at.backward) {
		d->blame->ranks[0] = rank;
		d->blame->n = 1;
		add_ties(d, rank);
		report_transient(d, "the first activations that differ are those of",
				 name_layer(d, d->all[rank].differs_at.layer, layer));
	} else if (rank >= 0) {
		decide_replica(d, "gradients of activations differ");
	} else if (loss) {
		decide_replica(d, "a part of the loss differs");
	}
	return rank >= 0 || loss;
}

static void decide_transient(struct decision *d)
{
	char who[RANK_TEXT];
	int rank = find_corrupted_gradient(d);
	bool corrupted = rank >= 0;
	if (decide_own_difference(d))
		return;
	rank = corrupted ? rank : find_bad_gradient(d);
	if (rank < 0) {
		snprintf(d->text, d->size, "%s; which rank it was cannot be known", transient);
		return;
	}
	const struct bad_tensor *b = &d->all[rank].reduced;
	snprintf(d->text, d->size,
		 "%s: %s had %lld of %lld numbers that are NaN or infinite in the "
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
		 "a second computation shows that each rank's own numbers are finite, and the sum "
		 "of "
		 "the gradients over ranks is not: %lld of %lld numbers of %s on %s",
		 (long long)b->bad, (long long)b->count, b->name, name_rank(d, rank, who));
	blame_rank(d, rank, "gradient", b->name, false);
	return true;
}

void train_diagnosis_decide(const struct rank_findings *all, const enum witness *witnesses,
			    int world, const struct step_results *r, struct train_blame *blame,
			    char *text, size_t size)
{
	struct decision d = { all, witnesses, world, r, blame, text, size };
	bool finite = isfinite(r->loss) && isfinite(r->norm);
	*text = '\0';
	if (decide_state(&d) || decide_origin(&d))
		return;
	if (!finite && decide_overflow(&d))
		return;
	if (results_agree(&d))
		snprintf(
			text, size,
			"a second computation gives the same bits%s, so they come from the data or "
			"the weights%s",
			r->any_order ? " in the forward pass" : "",
			r->any_order ? ", or hardware failed in the backward pass, whose bits "
				       "differ each time with job.deterministic = any-order"
				     : "");
	else
		decide_transient(&d);
}
