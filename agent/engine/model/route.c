/* The router: selects each token's experts and weights, drops choices beyond the capacity, and
 * computes the two losses. */
#include "agent/engine/model/moe.h"

#include "agent/engine/parallel/graph.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 2 }; /* of a sequence on a context-parallel rank: an early one and a late one */

/* Returns how many pieces of each sequence this rank has. */
static int pieces_of(const struct model *m)
{
	return m->cp->size > 1 ? PIECES : 1;
}

int model_route_open(struct model *m, struct err *e)
{
	struct moe *moe = m->moe;
	size_t n = (size_t)(m->d.micro * pieces_of(m) * moe->experts),
	       ranks = m->cp->size > 1 ? (size_t)m->cp->size : 0;
	moe->choices = calloc(n, sizeof *moe->choices);
	moe->taken = calloc(n, sizeof *moe->taken);
	moe->choices_all = calloc(ranks * n + 1, sizeof *moe->choices_all);
	moe->kept_of = calloc((size_t)moe->experts, sizeof *moe->kept_of);
	moe->loads = calloc((size_t)(m->d.micro * moe->experts), sizeof *moe->loads);
	if (!moe->choices || !moe->taken || !moe->choices_all || !moe->kept_of || !moe->loads)
		return err_set(e, ERR_NOMEM,
			       "router: no memory for %zu counts of choices; lower batch.micro",
			       (2 + ranks) * n);
	if (!m->d.device) {
		moe->choices_dev = moe->choices;
		moe->taken_dev = moe->taken;
	}
	return 0;
}

void model_route_close(struct moe *moe)
{
	free(moe->choices);
	free(moe->taken);
	free(moe->choices_all);
	free(moe->kept_of);
	free(moe->loads);
}

/* Copies numbers from host memory to the backend's, if they are different. */
static void copy_to_backend(struct model *m, void *at, const void *numbers, size_t bytes)
{
	if (at != numbers)
		backend_put(m->backend, at, numbers, bytes);
}

/* Whether the losses need the loads. An evaluation and a job without the balancing loss do not. */
static bool wants_loads(const struct pass *p)
{
	return p->keep && p->m->job->model.aux_loss > 0;
}

_Static_assert((int)ACT_GROUP_LARGE == (int)BACKEND_GROUP_LARGE,
	       "the plan and the backend differ in what a large group is");

/* All ranks of a group find the same, also where experts do not divide by ep, or ffn by tp. */
bool model_route_counts_stay(const struct model *m)
{
	const struct act_expert_rows *r = &m->d.routed;
	const struct comm *group = m->moe->ep->comm;
	int experts = (int)r->mine;
	return m->d.device && (!group || (r->block && parallel_graph_fits(group))) &&
	       m->cp->size == 1 && !m->check &&
	       backend_counts_groups(m->backend, r->received, experts, m->d.c,
				     2 * m->d.act_divisor) &&
	       backend_counts_groups(m->backend, r->received, experts, m->d.act_divisor, m->d.c);
}

/* Counts how often each piece's tokens chose each expert. */
static void count_choices(struct model *m, const struct moe_saved *k)
{
	struct moe *moe = m->moe;
	m->ops->route_count(m->backend, moe->choices_dev, k->chosen, m->d.n, moe->experts, moe->top,
			    m->d.seq / pieces_of(m));
}

/* This is the only result that a layer copies to the host, unless the counts stay. */
static int fetch_choices(struct model *m, struct err *e)
{
	struct moe *moe = m->moe;
	if (moe->choices == moe->choices_dev)
		return 0;
	return backend_get(
		m->backend, moe->choices, moe->choices_dev,
		(size_t)(m->d.micro * pieces_of(m) * moe->experts) * sizeof *moe->choices, e);
}

/* Sets moe->taken to the number of choices in the earlier pieces of the same sequence. */
static int count_before(struct model *m, struct err *e)
{
	int size = m->cp->size;
	int64_t experts = m->moe->experts, n = m->d.micro * PIECES * experts,
		*before = m->moe->taken, *all = m->moe->choices_all;
	memset(before, 0, (size_t)(m->d.micro * pieces_of(m) * experts) * sizeof *before);
	if (size == 1)
		return 0;
	if (comm_all_gather(m->cp->values, m->moe->choices, all, (size_t)n, COMM_I64, e))
		return -1;
	for (int64_t i = 0; i < n; i++) {
		int mine = (int)(i / experts % PIECES),
		    place = mine ? 2 * size - 1 - m->cp->rank : m->cp->rank;
		int64_t sequence = i / experts / PIECES, expert = i % experts;
		for (int other = 0; other < place; other++) {
			int rank = other < size ? other : 2 * size - 1 - other,
			    piece = other >= size;
			before[i] += all[rank * n + (sequence * PIECES + piece) * experts + expert];
		}
	}
	return 0;
}

/* Returns how many of a piece's choices are within the capacity. */
static int64_t count_kept(int64_t choices, int64_t before, int64_t most)
{
	int64_t room = most > before ? most - before : 0;
	return min_int64(choices, room);
}

/* drop_excess() without the host, for whole sequences. */
static void drop_on_device(struct model *m, struct moe_saved *k)
{
	struct moe *moe = m->moe;
	if (m->d.routed.capacity == INT64_MAX) {
		backend_zero(m->backend, k->at, (size_t)(m->d.n * moe->top) * sizeof *k->at);
		return;
	}
	backend_zero(m->backend, moe->taken_dev,
		     (size_t)(m->d.micro * moe->experts) * sizeof *moe->taken_dev);
	m->ops->route_drop(m->backend, k->at, k->chosen, moe->taken_dev, m->d.n, moe->experts,
			   moe->top, m->d.seq, m->d.routed.capacity);
}

/* Drops the choices beyond an expert's capacity: sets their `at` to -1. Sets kept_of. */
static int drop_excess(struct model *m, struct moe_saved *k, struct err *e)
{
	struct moe *moe = m->moe;
	int pieces = pieces_of(m);
	int64_t experts = moe->experts, n = m->d.micro * pieces, most = m->d.routed.capacity;

	if (most == INT64_MAX) {
		backend_zero(m->backend, k->at, (size_t)(m->d.n * moe->top) * sizeof *k->at);
		memset(moe->taken, 0, (size_t)(n * experts) * sizeof *moe->taken);
	} else {
		if (count_before(m, e))
			return -1;
		copy_to_backend(m, moe->taken_dev, moe->taken,
				(size_t)(n * experts) * sizeof *moe->taken);
		m->ops->route_drop(m->backend, k->at, k->chosen, moe->taken_dev, m->d.n, experts,
				   moe->top, m->d.seq / pieces, most);
	}
	memset(moe->kept_of, 0, (size_t)experts * sizeof *moe->kept_of);
	for (int64_t i = 0; i < n * experts; i++)
		moe->kept_of[i % experts] += count_kept(moe->choices[i], moe->taken[i], most);
	return 0;
}

/* set_loads() where other ranks have other pieces of the sequences. */
static int add_loads(struct model *m, struct moe_saved *k, struct err *e)
{
	int pieces = pieces_of(m);
	int64_t experts = m->moe->experts, n = m->d.micro * experts;
	float *loads = m->moe->loads;
	for (int64_t i = 0; i < n; i++) {
		int64_t sum = 0;
		for (int j = 0; j < pieces; j++)
			sum += m->moe->choices[(i / experts * pieces + j) * experts + i % experts];
		loads[i] = (float)sum;
	}
	if (comm_all_reduce(m->cp->values, loads, loads, (size_t)n, COMM_F32, COMM_SUM, e))
		return -1;
	for (int64_t i = 0; i < n; i++)
		loads[i] /= (float)(m->shape->seq * m->moe->top);
	backend_put(m->backend, k->load, loads, (size_t)n * sizeof *loads);
	return 0;
}

/* Sets load [micro, E] to each expert's share of a whole sequence's choices; zero if nothing needs
 * it. */
static int set_loads(struct pass *p, struct moe_saved *k, struct err *e)
{
	struct model *m = p->m;
	int64_t n = m->d.micro * m->moe->experts;
	if (wants_loads(p) && m->cp->size > 1)
		return add_loads(m, k, e);
	if (wants_loads(p))
		m->ops->route_load(m->backend, k->load, m->moe->choices_dev, n,
				   m->shape->seq * m->moe->top);
	else
		backend_zero(m->backend, k->load, (size_t)n * sizeof *k->load);
	return 0;
}

/* Adds the router's losses to the total and to their own sums. */
static void add_losses(struct model *m, const struct moe_saved *k, double *loss)
{
	double aux = m->job->model.aux_loss * (double)m->moe->experts, z = m->job->model.z_loss;
	const struct {
		double *to, aux, z;
	} sums[] = { { loss + LOSS_ALL, aux, z },
		     { loss + LOSS_BALANCE, aux, 0 },
		     { loss + LOSS_Z, 0, z } };
	for (int i = 0; i < (int)(sizeof sums / sizeof *sums); i++)
		if (sums[i].aux > 0 || sums[i].z > 0)
			m->ops->route_loss(m->backend, sums[i].to, k->load, k->probs, k->lse,
					   m->d.n, m->moe->experts, m->d.seq, sums[i].aux,
					   sums[i].z);
}

int model_route_forward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			const void *y, double *loss, struct err *e)
{
	struct model *m = p->m;
	struct moe *moe = m->moe;

	m->ops->linear_fwd(m->backend, moe->raw, y,
			   model_unit_param(m, v->router.unit, v->router.w), NULL, m->d.n, m->d.c,
			   moe->experts);
	m->ops->storage_to_fp32(m->backend, moe->logits, moe->raw, m->d.n * moe->experts);
	m->ops->route_fwd(m->backend, k->chosen, k->weights, k->probs, k->lse, moe->logits, m->d.n,
			  moe->experts, moe->top, m->job->model.router == ROUTER_SOFTMAX_BEFORE);
	bool stay = model_route_counts_stay(m);
	k->most = stay ? m->d.routed.received : 0;
	if (!stay || wants_loads(p))
		count_choices(m, k);
	if (stay)
		drop_on_device(m, k);
	if ((!stay && (fetch_choices(m, e) || drop_excess(m, k, e))) || set_loads(p, k, e))
		return -1;
	m->ops->route_place(m->backend, stay ? k->counts : moe->counts, k->at, k->from, k->chosen,
			    m->d.n, moe->experts, moe->top, stay ? m->d.routed.block : 0);
	if (loss)
		add_losses(m, k, loss);
	return 0;
}

int model_route_backward(struct pass *p, const struct block_view *v, struct moe_saved *k, void *dy,
			 const void *y, void *dx, struct err *e)
{
	struct model *m = p->m;
	struct moe *moe = m->moe;
	int64_t experts = moe->experts, top = moe->top;
	float aux = (float)m->job->model.aux_loss * (float)experts;

	if (tp_all_reduce_sum(m->tp, moe->dweights, (size_t)(m->d.n * top), e))
		return -1;
	for (int64_t b = 0; b < m->d.micro; b++) {
		int64_t first = b * m->d.seq;
		m->ops->route_bwd(m->backend, moe->logits + first * experts,
				  moe->dweights + first * top, k->chosen + first * top,
				  k->weights + first * top, k->probs + first * experts,
				  k->lse + first, k->load + b * experts, aux,
				  (float)m->job->model.z_loss, m->logit_scale, m->d.seq, experts,
				  top, m->job->model.router == ROUTER_SOFTMAX_BEFORE);
	}
	m->ops->fp32_to_storage(m->backend, moe->raw, moe->logits, m->d.n * experts, NULL, 0);
	const struct weight_grad g = model_linear_grad(m, &v->router);
	m->ops->linear_bwd_weight(m->backend, g.w, NULL, moe->raw, y, m->d.n, m->d.c, experts,
				  g.add);
	if (m->tp->rank == 0) {
		m->ops->linear_bwd_input(m->backend, dx, moe->raw,
					 model_unit_param(m, v->router.unit, v->router.w), m->d.n,
					 m->d.c, experts);
		m->ops->add(m->backend, dy, dx, m->d.n * m->d.c);
	}
	return 0;
}
