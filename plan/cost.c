/*
 * What a step takes, predicted.
 *
 * The model, in the order of the code:
 *   - A matrix product takes its FLOPs at MATRIX_SHARE of the device's rate; everything between products takes its
 *     bytes at MEMORY_SHARE of the device's bandwidth; each operation takes OP_COST besides. Attention
 *     counts half of its square (causal), and once more in the backward pass, which recomputes it.
 *   - A backward pass does each product twice.
 *   - A sum over tp ranks is a ring: 2 (t - 1) messages of 1/t of the tensor. Four a layer and micro-batch, of
 *     [tokens, hidden] each; one for the embedding, one for the head.
 *   - The pipeline's time is the schedule table's own, simulated with these times (plan/schedule.h).
 *   - The gradients' ring over dp ranks hides behind the last micro-batch's backward; what is longer shows, and at
 *     least its last bucket does.
 *   - AdamW reads and writes seven words a parameter.
 * Links: inside a node when all ranks of the group are there, else the network. CPU agents share their node's cores.
 * Figures that the cluster does not know are taken as one slow core's.
 */
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MATRIX_SHARE 0.70
#define MEMORY_SHARE 0.80
#define OP_COST 5e-6
#define BUCKET_BYTES (4.0 * 1024 * 1024)
#define UNKNOWN_FLOPS 20e9
#define UNKNOWN_BANDWIDTH 5e9
#define UNKNOWN_LINK 1e9
#define UNKNOWN_LATENCY 20e-6

enum { WORD = 4 };

struct rates {
	double flops, bandwidth;   /* of one agent */
	double link, link_latency; /* inside a node */
	double net, net_latency;
};

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

/* The slowest node that is used sets the pace. */
static void slowest(double *rate, double x)
{
	if (*rate <= 0 || x < *rate)
		*rate = x;
}

static struct rates rates_of(const struct cluster *c, const struct plan *p)
{
	struct rates r = { 0 };
	for (int i = 0; i < p->world;) {
		int node = p->ranks[i].node, agents = 0;
		for (; i < p->world && p->ranks[i].node == node; i++)
			agents++;
		const struct node_kind *k = &c->kinds[c->nodes[node].kind];
		double share = 1;
		if (!strcmp(k->device, "cpu")) {
			share = k->cores > 0 && p->threads * agents < k->cores ? (double)p->threads / k->cores : 1.0 / agents;
			share *= k->devices;
		}
		slowest(&r.flops, known(k->device_flops, UNKNOWN_FLOPS) * share);
		slowest(&r.bandwidth, known(k->device_bandwidth, UNKNOWN_BANDWIDTH) * share);
		slowest(&r.link, known(k->link_bandwidth, UNKNOWN_LINK));
		slowest(&r.net, known(k->net_bandwidth, UNKNOWN_LINK));
		r.link_latency = fmax(r.link_latency, known(k->link_latency, UNKNOWN_LATENCY));
		r.net_latency = fmax(r.net_latency, known(k->net_latency, UNKNOWN_LATENCY));
	}
	return r;
}

static double product(const struct rates *r, double n, double in, double out)
{
	return 2 * n * in * out / (MATRIX_SHARE * r->flops) + OP_COST;
}

static double moved(const struct rates *r, double words)
{
	return WORD * words / (MEMORY_SHARE * r->bandwidth) + OP_COST;
}

static double ring(const struct rates *r, bool inside, int ranks, double bytes)
{
	double rate = inside ? r->link : r->net, latency = inside ? r->link_latency : r->net_latency;
	return ranks < 2 ? 0 : 2 * (ranks - 1) * (bytes / ranks / rate + latency);
}

static double hop(const struct rates *r, bool inside, double bytes)
{
	return inside ? bytes / r->link + r->link_latency : bytes / r->net + r->net_latency;
}

/* Seconds of one micro-batch on one stage. */
struct stage_time {
	double fwd, bwd;       /* compute alone */
	double weight;         /* of bwd, the weights' gradients */
	double tp_fwd, tp_bwd; /* sums over tp */
};

/* The mean shard; uneven cuts differ by less than the model errs. */
static struct stage_time stage_time(const struct job *job, const struct plan *p, const struct rates *r,
				    const struct stage *stage, bool tp_inside)
{
	const struct model_shape *m = &p->shape;
	int tp = p->layout.tp;
	double n = (double)job->batch.micro * (double)m->seq, c = (double)m->hidden;
	double q = (double)(m->heads * m->head_dim) / tp, kv = (double)(m->kv_heads * m->head_dim) / tp;
	double f = (double)m->ffn / tp, up = m->gated ? 2 * f : f, v = (double)m->vocab / tp;
	double layers = stage->layer_hi - stage->layer_lo;
	double sum = ring(r, tp_inside, tp, WORD * n * c);

	double products = product(r, n, c, q + 2 * kv) + product(r, n, q, c) + product(r, n, c, up) + product(r, n, f, c);
	double attention = 2 * n * q * (double)m->seq / (MATRIX_SHARE * r->flops) + OP_COST; /* two products, half masked */
	double between = 2 * moved(r, 4 * n * c) + moved(r, n * (up + f)) + (m->rope ? moved(r, 2 * n * (q + kv)) : 0);
	struct stage_time t = {
		.fwd = layers * (products + attention + between),
		.bwd = layers * (2 * products + 2.5 * attention + 2 * between),
		.weight = layers * products,
		.tp_fwd = layers * 2 * sum,
		.tp_bwd = layers * 2 * sum,
	};
	if (stage->first) {
		t.fwd += moved(r, 2 * n * c);
		t.bwd += moved(r, 3 * n * c);
		t.tp_fwd += sum;
	}
	if (stage->last) { /* the head's backward comes with the loss */
		t.fwd += 3 * product(r, n, c, v) + moved(r, 5 * n * v) + moved(r, 4 * n * c);
		t.bwd += moved(r, 6 * n * c);
		t.tp_fwd += ring(r, tp_inside, tp, WORD * n) + ring(r, tp_inside, tp, WORD * 2 * n);
		t.tp_bwd += sum;
	}
	return t;
}

/* Whether all ranks that differ in one coordinate only are on one node, for every such group. */
static bool group_inside(const struct plan *p, struct coords vary)
{
	for (int i = 0; i < p->world; i++) {
		struct coords base = p->ranks[i].at;
		if (vary.tp)
			base.tp = 0;
		if (vary.dp)
			base.dp = 0;
		if (vary.pp)
			base.pp = 0;
		if (p->ranks[layout_rank(&p->layout, base)].node != p->ranks[i].node)
			return false;
	}
	return true;
}

static double stage_elements(const struct plan *p, int stage)
{
	struct stage chunks[LAYOUT_CHUNKS_MOST];
	struct share share = layout_share(&p->layout, (struct coords){ .pp = stage }, false, p->stages, chunks);
	return catalogue_elements(&p->shape, &share);
}

/* What the reduction of a stage's gradients adds to the step. */
static double exposed(const struct plan *p, const struct rates *r, int stage, double backward)
{
	const struct layout *l = &p->layout;
	bool inside = group_inside(p, (struct coords){ .dp = 1 });
	double bytes = WORD * stage_elements(p, stage);
	double all = ring(r, inside, l->dp, bytes), last = ring(r, inside, l->dp, fmin(bytes, BUCKET_BYTES));
	double tied = 0;
	if (p->shape.tied && l->pp > 1 && (stage == 0 || stage == l->pp - 1))
		tied = ring(r, group_inside(p, (struct coords){ .pp = 1 }), 2,
			    WORD * (double)(p->shape.vocab * p->shape.hidden) / l->tp);
	return fmax(last, all - backward) + tied;
}

static int alloc_costs(struct plan *p, struct err *e)
{
	size_t n = (size_t)layout_n_stages(&p->layout);
	p->seconds = calloc(3 * n, sizeof *p->seconds);
	if (!p->seconds)
		return err_set(e, ERR_NOMEM, "no memory to predict %zu stages; close other programs", n);
	p->costs = (struct sched_costs){ p->seconds, p->seconds + n, p->seconds + 2 * n, 0 };
	return 0;
}

/* Of one pipeline rank's chunks together. */
static struct stage_time rank_time(const struct layout *l, const struct stage_time *times, int rank)
{
	struct stage_time sum = { 0 };
	for (int c = 0; c < l->chunks; c++) {
		const struct stage_time *t = &times[layout_stage(l, rank, c)];
		sum.fwd += t->fwd;
		sum.bwd += t->bwd;
		sum.tp_fwd += t->tp_fwd;
		sum.tp_bwd += t->tp_bwd;
	}
	return sum;
}

static double whole_time(const struct stage_time *t)
{
	return t->fwd + t->bwd + t->tp_fwd + t->tp_bwd;
}

/* The passes of all stages; sums over tp belong to the half that waits for them. */
static void set_costs(const struct job *job, struct plan *p, const struct rates *r, struct stage_time *times)
{
	bool tp_inside = group_inside(p, (struct coords){ .tp = 1 });
	bool pp_inside = group_inside(p, (struct coords){ .pp = 1 });
	double n = (double)job->batch.micro * (double)p->shape.seq;
	int stages = layout_n_stages(&p->layout);
	double *forward = p->seconds, *input = forward + stages, *weight = input + stages;
	for (int s = 0; s < stages; s++) {
		times[s] = stage_time(job, p, r, &p->stages[s], tp_inside);
		forward[s] = times[s].fwd + times[s].tp_fwd;
		weight[s] = times[s].weight;
		input[s] = times[s].bwd + times[s].tp_bwd - times[s].weight;
	}
	p->costs.hop = hop(r, pp_inside, WORD * n * (double)p->shape.hidden);
}

/* times has room for every stage. */
static int simulate(const struct job *job, struct plan *p, const struct rates *r, struct stage_time *times, struct err *e)
{
	struct plan_time *t = &p->time;
	struct stage_time slow = { 0 };
	set_costs(job, p, r, times);
	double whole = schedule_simulate(&p->schedule, &p->costs, NULL, NULL);
	if (whole < 0)
		return err_set(e, ERR_NOMEM, "no memory to simulate a schedule of %d stages; close other programs", layout_n_stages(&p->layout));
	t->dp = t->optimizer = 0;
	for (int i = 0; i < p->layout.pp; i++) {
		struct stage_time mine = rank_time(&p->layout, times, i);
		if (whole_time(&mine) > whole_time(&slow))
			slow = mine;
		t->dp = fmax(t->dp, exposed(p, r, i, mine.bwd + mine.tp_bwd));
		t->optimizer = fmax(t->optimizer, moved(r, 7 * stage_elements(p, i)));
	}
	t->compute = p->micros * (slow.fwd + slow.bwd);
	t->tp = p->micros * (slow.tp_fwd + slow.tp_bwd);
	t->bubble = p->layout.pp > 1 ? whole - t->compute - t->tp : 0; /* one stage's would be rounding */
	t->total = whole + t->dp + t->optimizer;
	return 0;
}

int plan_cost(const struct job *job, const struct cluster *cluster, struct plan *p, struct err *e)
{
	struct rates r = rates_of(cluster, p);
	struct stage_time *times = calloc((size_t)layout_n_stages(&p->layout), sizeof *times);
	int rc = times ? alloc_costs(p, e) : err_set(e, ERR_NOMEM, "no memory to predict %d stages; close other programs", layout_n_stages(&p->layout));
	if (!rc)
		rc = simulate(job, p, &r, times, e);
	free(times);
	return rc;
}
