/* The router: which experts a token goes to, with which weights, what is dropped, and the two losses. */
#include "agent/model/moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 2 }; /* of a sequence on a context-parallel rank: the early and the late one */

/* This rank's pieces of each sequence: one alone has the whole of it as one. */
static int pieces_of(const struct model *m)
{
	return m->cp->size > 1 ? PIECES : 1;
}

int route_open(struct model *m, struct err *e)
{
	struct moe *moe = m->moe;
	size_t n = (size_t)(m->d.micro * pieces_of(m) * moe->experts), ranks = m->cp->size > 1 ? (size_t)m->cp->size : 0;
	moe->choices = calloc(n, sizeof *moe->choices);
	moe->taken = calloc(n, sizeof *moe->taken);
	moe->everywhere = calloc(ranks * n + 1, sizeof *moe->everywhere);
	if (!moe->choices || !moe->taken || !moe->everywhere)
		return err_set(e, ERR_NOMEM, "router: no memory for %zu counts of choices; lower batch.micro", (2 + ranks) * n);
	return 0;
}

void route_close(struct moe *moe)
{
	free(moe->choices);
	free(moe->taken);
	free(moe->everywhere);
}

static void count_choices(const struct model *m, const struct moe_kept *k)
{
	int pieces = pieces_of(m);
	int64_t experts = m->moe->experts, top = m->moe->top, length = m->d.seq / pieces, *counts = m->moe->choices;
	memset(counts, 0, (size_t)(m->d.micro * pieces * experts) * sizeof *counts);
	for (int64_t t = 0; t < m->d.n; t++)
		for (int64_t j = 0; j < top; j++)
			counts[t / length * experts + k->chosen[t * top + j]]++;
}

/* Sets moe->taken to the choices in the pieces of the same sequence that stand before each piece. */
static int count_before(struct model *m, struct err *e)
{
	int size = m->cp->size;
	int64_t experts = m->moe->experts, n = m->d.micro * PIECES * experts, *before = m->moe->taken, *all = m->moe->everywhere;
	memset(before, 0, (size_t)(m->d.micro * pieces_of(m) * experts) * sizeof *before);
	if (size == 1)
		return 0;
	if (comm_all_gather(m->cp->comm, m->moe->choices, all, (size_t)n, COMM_I64, e))
		return -1;
	for (int64_t i = 0; i < n; i++) {
		int mine = (int)(i / experts % PIECES), place = mine ? 2 * size - 1 - m->cp->rank : m->cp->rank;
		int64_t sequence = i / experts / PIECES, expert = i % experts;
		for (int other = 0; other < place; other++) {
			int rank = other < size ? other : 2 * size - 1 - other, piece = other >= size;
			before[i] += all[rank * n + (sequence * PIECES + piece) * experts + expert];
		}
	}
	return 0;
}

/* Choices beyond an expert's capacity are dropped: at = -1. Without a limit none is. */
static int drop_excess(struct pass *p, struct moe_kept *k, struct err *e)
{
	struct model *m = p->m;
	int pieces = pieces_of(m);
	int64_t experts = m->moe->experts, top = m->moe->top, length = m->d.seq / pieces;
	double factor = m->job->model.capacity;
	int64_t most = (int64_t)ceil(factor * (double)(m->shape.seq * top) / (double)experts);

	memset(k->at, 0, (size_t)(m->d.n * top) * sizeof *k->at);
	if (factor <= 0)
		return 0;
	if (count_before(m, e))
		return -1;
	for (int64_t t = 0; t < m->d.n; t++)
		for (int64_t j = 0; j < top; j++) {
			int64_t *n = &m->moe->taken[t / length * experts + k->chosen[t * top + j]];
			k->at[t * top + j] = (*n)++ < most ? 0 : -1;
		}
	return 0;
}

/* Rows by expert, within one by token: counts, at and from. */
static void sort_choices(struct model *m, struct moe_kept *k)
{
	int64_t experts = m->moe->experts, n = m->d.n * m->moe->top, *counts = m->moe->counts, next[experts];
	memset(counts, 0, (size_t)experts * sizeof *counts);
	for (int64_t i = 0; i < n; i++)
		counts[k->chosen[i]] += k->at[i] >= 0;
	next[0] = 0;
	for (int64_t x = 1; x < experts; x++)
		next[x] = next[x - 1] + counts[x - 1];
	for (int64_t i = 0; i < n; i++) {
		if (k->at[i] < 0)
			continue;
		k->at[i] = next[k->chosen[i]]++;
		k->from[k->at[i]] = i / m->moe->top;
	}
}

/* load [micro, E]: the share of a whole sequence's choices on each expert. An evaluation, and a job without the balancing
 * loss, need none, nor the sum over cp. */
static int balance(struct pass *p, struct moe_kept *k, struct err *e)
{
	struct model *m = p->m;
	int pieces = pieces_of(m);
	int64_t experts = m->moe->experts;
	if (!p->keep || m->job->model.aux_loss <= 0) {
		memset(k->load, 0, (size_t)(m->d.micro * experts) * sizeof *k->load);
		return 0;
	}
	for (int64_t b = 0; b < m->d.micro; b++)
		for (int64_t x = 0; x < experts; x++) {
			int64_t sum = 0;
			for (int i = 0; i < pieces; i++)
				sum += m->moe->choices[(b * pieces + i) * experts + x];
			k->load[b * experts + x] = (float)sum;
		}
	if (m->cp->comm && comm_all_reduce(m->cp->comm, k->load, k->load, (size_t)(m->d.micro * experts), COMM_F32, COMM_SUM, e))
		return -1;
	for (int64_t i = 0; i < m->d.micro * experts; i++)
		k->load[i] /= (float)(m->shape.seq * m->moe->top);
	return 0;
}

/* The sum over this rank's tokens of their part of both losses. */
static double losses(const struct pass *p, const struct moe_kept *k)
{
	const struct model *m = p->m;
	int64_t experts = m->moe->experts;
	double aux = 0, z = 0;
	for (int64_t t = 0; t < m->d.n; t++) {
		const float *load = k->load + t / m->d.seq * experts, *probs = k->probs + t * experts;
		for (int64_t x = 0; x < experts; x++)
			aux += (double)load[x] * (double)probs[x];
		z += (double)k->lse[t] * (double)k->lse[t];
	}
	return m->job->model.aux_loss * (double)experts * aux + m->job->model.z_loss * z;
}

int route_forward(struct pass *p, const struct block_view *v, struct moe_kept *k, const void *y, double *loss, struct err *e)
{
	struct model *m = p->m;
	struct moe *moe = m->moe;

	m->ops->linear_fwd(m->kern, moe->raw, y, unit_param(m, v->router.unit, v->router.w), NULL, m->d.n, m->d.c, moe->experts);
	m->ops->widen(m->kern, moe->logits, moe->raw, m->d.n * moe->experts);
	m->ops->route_fwd(m->kern, k->chosen, k->weights, k->probs, k->lse, moe->logits, m->d.n, moe->experts, moe->top,
			  m->job->model.router == ROUTER_SOFTMAX_BEFORE);
	count_choices(m, k);
	if (drop_excess(p, k, e) || balance(p, k, e))
		return -1;
	sort_choices(m, k);
	if (loss)
		*loss += losses(p, k);
	return 0;
}

int route_backward(struct pass *p, const struct block_view *v, struct moe_kept *k, void *dy, const void *y, void *dx, struct err *e)
{
	struct model *m = p->m;
	struct moe *moe = m->moe;
	int64_t experts = moe->experts, top = moe->top;
	float scale = p->batch->grad_scale, aux = (float)m->job->model.aux_loss * (float)experts * scale;

	if (tp_sum(m->tp, moe->dweights, (size_t)(m->d.n * top), e))
		return -1;
	for (int64_t b = 0; b < m->d.micro; b++) {
		int64_t first = b * m->d.seq;
		float weight[experts];
		for (int64_t x = 0; x < experts; x++)
			weight[x] = aux * k->load[b * experts + x];
		m->ops->route_bwd(m->kern, moe->logits + first * experts, moe->dweights + first * top, k->chosen + first * top,
				  k->weights + first * top, k->probs + first * experts, k->lse + first, weight,
				  (float)m->job->model.z_loss * scale, m->d.seq, experts, top, m->job->model.router == ROUTER_SOFTMAX_BEFORE);
	}
	m->ops->narrow(m->kern, moe->raw, moe->logits, m->d.n * experts, NULL, 0);
	m->ops->linear_bwd_weight(m->kern, unit_grad(m, v->router.unit, v->router.w), NULL, moe->raw, y, m->d.n, m->d.c, experts);
	if (m->tp->rank == 0) {
		m->ops->linear_bwd_input(m->kern, dx, moe->raw, unit_param(m, v->router.unit, v->router.w), m->d.n, m->d.c, experts);
		m->ops->add(m->kern, dy, dx, m->d.n * m->d.c);
	}
	return 0;
}
