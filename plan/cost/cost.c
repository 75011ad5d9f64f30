#include "plan/cost/cost.h"

#include "plan/speeds.h"
#include "plan/model/zero.h"

#include <math.h>
#include <stdlib.h>

#define BUCKET_BYTES (4.0 * 1024 * 1024)

enum { F32 = 4 };

/* --- The replicas' transfers ---------------------------------------------------------- */

/* Elements of a pipeline rank's parameters, of experts or of the rest. */
static double elements_of(const struct plan *p, int pp, enum zero_class class)
{
	struct stage chunks[LAYOUT_CHUNKS_MOST];
	struct share share = layout_share(&p->layout, (struct coords){ .pp = pp }, false, p->stages, chunks);
	double sum = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		if (zero_class(kind) == class)
			sum += (double)catalogue_unit_elements(&p->shape, &share, kind) * catalogue_unit_count(&p->shape, &share, kind);
	return sum;
}

/* A pipeline rank's passes over one micro-batch. */
struct rank_time {
	struct cost_pass pass;
	double scale; /* of its device: seconds over the fastest one's */
};

/* Of `class`, what the step shows of gradients' sums and parameters' gathers. */
static double exposed(const struct job *job, const struct plan *p, const struct span spans[GROUP_KINDS], int pp, enum zero_class class,
		      const struct rank_time *t)
{
	const struct span *span = &spans[class == ZERO_EXPERTS ? GROUP_EDP : GROUP_DP];
	int zero = (int)job->parallel.zero;
	double elements = elements_of(p, pp, class), width = job->precision.dtype == DTYPE_FP32 ? 4 : 2;
	double forward = t->scale * t->pass.fwd, backward = t->scale * (t->pass.bwd + t->pass.tp_bwd + t->pass.again);
	double grads = span_all_reduce(span, F32 * elements) / (zero ? 2 : 1), params = span_all_reduce(span, width * elements) / 2;
	double last = span_all_reduce(span, fmin(F32 * elements, BUCKET_BYTES)) / (zero ? 2 : 1);
	if (elements <= 0 || span->ranks < 2)
		return 0;
	double sums = zero < 2 ? fmax(last, grads - backward) : last + p->micros * fmax(0, grads - backward);
	double gathers = zero == 0 ? 0 : zero < 3 ? params : p->micros * (fmax(0, params - forward) + fmax(0, params - backward));
	return sums + gathers;
}

static double tied_sum(const struct plan *p, const struct span *span, int pp)
{
	int last, chunk;
	layout_holder(&p->layout, layout_n_stages(&p->layout) - 1, &last, &chunk);
	if (!p->shape.tied || last == 0 || (pp != 0 && pp != last))
		return 0;
	return span_all_reduce(span, F32 * (double)(p->shape.vocab * p->shape.hidden) / p->layout.tp);
}

static double update(const struct job *job, const struct plan *p, const struct cost_rates *r, int pp)
{
	double words = job->optimizer.kind == OPTIMIZER_ADAMW ? 7 : 5, owned = 0;
	struct zero_cut cuts[ZERO_CLASSES];
	zero_cuts(&p->layout, (struct coords){ .pp = pp }, (int)job->parallel.zero, 0, cuts);
	for (int class = 0; class < ZERO_CLASSES; class++)
		owned += elements_of(p, pp, class) / cuts[class].shards;
	return cost_moved(r, words * F32 * owned);
}

/* --- The step ------------------------------------------------------------------------- */

static int alloc_costs(struct plan *p, struct err *e)
{
	size_t n = (size_t)layout_n_stages(&p->layout);
	p->seconds = calloc(3 * n, sizeof *p->seconds);
	if (!p->seconds)
		return err_set(e, ERR_NOMEM, "no memory to predict %zu stages; close other programs", n);
	p->costs = (struct sched_costs){ p->seconds, p->seconds + n, p->seconds + 2 * n, 0 };
	return 0;
}

static void add_pass(struct cost_pass *sum, const struct cost_pass *t)
{
	sum->fwd += t->fwd;
	sum->bwd += t->bwd;
	sum->again += t->again;
	sum->tp_fwd += t->tp_fwd;
	sum->tp_bwd += t->tp_bwd;
	sum->cp_fwd += t->cp_fwd;
	sum->cp_bwd += t->cp_bwd;
	sum->ep_fwd += t->ep_fwd;
	sum->ep_bwd += t->ep_bwd;
}

static double forward_of(const struct cost_pass *t)
{
	return t->fwd + t->tp_fwd + t->cp_fwd + t->ep_fwd;
}

static double backward_of(const struct cost_pass *t)
{
	return t->bwd + t->again + t->tp_bwd + t->cp_bwd + t->ep_bwd;
}

/* Seconds on pipeline rank pp of the slowest replica, over those on the fastest device. */
static double scale_of(const struct job *job, const struct plan *p, int pp)
{
	double fastest = 1;
	for (int i = 0; i < p->world && speeds_devices(job); i++)
		fastest = i ? fmax(fastest, speeds_rank(job, i)) : speeds_rank(job, i);
	return fastest / speeds_holder(job, &p->layout, p->pace, pp);
}

/* The passes of all stages, and of each pipeline rank's together; transfers belong to the half that waits for them. */
static void set_costs(const struct job *job, struct plan *p, const struct cost_rates *r, const struct span spans[GROUP_KINDS],
		      struct rank_time *times)
{
	double n = (double)job->batch.micro * (double)p->shape.seq / p->layout.cp / (job->parallel.sp ? p->layout.tp : 1);
	double width = job->precision.dtype == DTYPE_FP32 ? 4 : 2;
	int stages = layout_n_stages(&p->layout);
	double *forward = p->seconds, *input = forward + stages, *weight = input + stages;
	for (int pp = 0; pp < p->layout.pp; pp++)
		times[pp].scale = scale_of(job, p, pp);
	for (int s = 0; s < stages; s++) {
		int pp, chunk;
		layout_holder(&p->layout, s, &pp, &chunk);
		struct cost_pass t = cost_pass_of(job, p, r, spans, &p->stages[s]);
		add_pass(&times[pp].pass, &t);
		forward[s] = times[pp].scale * forward_of(&t);
		weight[s] = times[pp].scale * t.weight;
		input[s] = times[pp].scale * (backward_of(&t) - t.weight);
	}
	p->costs.hop = span_hop(&spans[GROUP_PP], width * n * (double)p->shape.hidden);
}

/* The parts of the slowest pipeline rank; what it waits is the bubble. */
static void set_parts(struct plan *p, const struct rank_time *slow, double whole)
{
	const struct cost_pass *s = &slow->pass;
	struct plan_time *t = &p->time;
	double times = p->shares[p->pace].micros * slow->scale;
	t->compute = times * (s->fwd + s->bwd);
	t->recompute = times * s->again;
	t->tp = times * (s->tp_fwd + s->tp_bwd);
	t->cp = times * (s->cp_fwd + s->cp_bwd);
	t->ep = times * (s->ep_fwd + s->ep_bwd);
	t->bubble = p->layout.pp > 1 ? whole - times * (forward_of(s) + backward_of(s)) : 0; /* one stage's would be rounding */
}

/* times has room for every pipeline rank. */
static int simulate(const struct job *job, struct plan *p, const struct cost_rates *r, const struct span spans[GROUP_KINDS],
		    struct rank_time *times, struct err *e)
{
	struct plan_time *t = &p->time;
	const struct rank_time *slow = times;
	set_costs(job, p, r, spans, times);
	double whole = schedule_simulate(&p->schedule, &p->costs, NULL, NULL);
	if (whole < 0)
		return err_set(e, ERR_NOMEM, "no memory to simulate a schedule of %d stages; close other programs", layout_n_stages(&p->layout));
	t->dp = t->optimizer = 0;
	for (int pp = 0; pp < p->layout.pp; pp++) {
		double mine = times[pp].scale * (forward_of(&times[pp].pass) + backward_of(&times[pp].pass));
		if (mine > slow->scale * (forward_of(&slow->pass) + backward_of(&slow->pass)))
			slow = &times[pp];
		double dp = tied_sum(p, &spans[GROUP_TIE], pp);
		for (int class = 0; class < ZERO_CLASSES; class++)
			dp += exposed(job, p, spans, pp, class, &times[pp]);
		t->dp = fmax(t->dp, dp);
		t->optimizer = fmax(t->optimizer, times[pp].scale * update(job, p, r, pp));
	}
	set_parts(p, slow, whole);
	t->total = whole + t->dp + t->optimizer;
	return 0;
}

int plan_cost(const struct job *job, const struct cluster *cluster, struct plan *p, struct err *e)
{
	struct cost_rates r = cost_rates_of(job, cluster, p);
	struct rank_time *times = calloc((size_t)p->layout.pp, sizeof *times);
	struct span spans[GROUP_KINDS];
	int rc = times ? spans_of(cluster, &p->layout, p->slots, spans, e) || alloc_costs(p, e) : err_set(e, ERR_NOMEM, "no memory to predict %d stages; close other programs", p->layout.pp);
	if (!rc)
		rc = simulate(job, p, &r, spans, times, e);
	free(times);
	return rc;
}
