#include "plan/search/fit.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fit_on_cpu(const struct node_kind *k)
{
	return !strcmp(k->device, "cpu");
}

double fit_limit(const struct node_kind *k, int agents)
{
	/* CPU agents share what their node has, however many of its slots are used. */
	if (fit_on_cpu(k) && k->memory > 0)
		return k->memory / (agents > 0 ? agents : 1);
	return k->device_memory;
}

static const struct { const char *name; size_t offset; } parts[] = {
	{ "parameters", offsetof(struct plan_rank, params) },
	{ "gradients", offsetof(struct plan_rank, grads) },
	{ "optimizer state", offsetof(struct plan_rank, optimizer) },
	{ "activations", offsetof(struct plan_rank, activations) },
	{ "buffers", offsetof(struct plan_rank, buffers) },
	{ "a checkpoint's snapshot", offsetof(struct plan_rank, snapshot) },
};

static double part_of(const struct plan_rank *r, int part)
{
	return *(const double *)((const char *)r + parts[part].offset);
}

static int refuse_memory(const struct job *job, const struct cluster *c, const struct plan *p,
			 const struct plan_rank *r, double limit, struct err *e)
{
	char need[HUMAN], has[HUMAN], part[HUMAN];
	int largest = 0;
	for (int i = 1; i < (int)(sizeof parts / sizeof *parts); i++)
		if (part_of(r, i) > part_of(r, largest))
			largest = i;
	struct buf hint = BUF_INIT;
	fit_hint(job, c, &p->layout, &hint);
	struct buf at = BUF_INIT;
	plan_print_at(&p->layout, &r->at, &at);
	err_set(e, ERR_NOFIT, "rank %d (%s) needs %s, most of it %s (%s), and a device of %s has %s; %s",
		layout_rank(&p->layout, r->at), buf_str(&at), human_bytes(r->total, need),
		parts[largest].name, human_bytes(part_of(r, largest), part), c->name, human_bytes(limit, has), buf_str(&hint));
	buf_fini(&at);
	buf_fini(&hint);
	return -1;
}

int fit_memory(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	const struct plan_rank *worst = NULL; /* that lacks most */
	double over = 0;
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		double limit = fit_limit(cluster_kind(c, r->node), r->crew);
		if (limit > 0 && (!p->memory || limit < p->memory))
			p->memory = limit;
		if (limit > 0 && r->total > limit && (!worst || r->total - limit > worst->total - over)) {
			worst = r;
			over = limit;
		}
	}
	return worst ? refuse_memory(job, c, p, worst, over, e) : 0;
}

/* --- The search: degrees near the asked ones, nearest first ---------------- */

/* Whether the model and the batch can be cut so. */
static bool divides(const struct job *job, const struct model_shape *m, const struct layout *l)
{
	bool heads = l->tp <= m->kv_heads || (l->tp % m->kv_heads == 0 && m->heads % l->tp == 0);
	bool sp = !job->parallel.sp || (l->tp > 1 && job->batch.micro * (m->seq / l->cp) % l->tp == 0);
	bool schedule = job->parallel.schedule != SCHEDULE_INTERLEAVED || l->pp > 1;
	return heads && sp && schedule && l->tp <= m->ffn && l->tp <= m->vocab && layout_n_stages(l) <= m->layers && l->dp % l->ep == 0 &&
	       job->batch.global % (job->batch.micro * l->dp) == 0;
}

static bool stage_fits(const struct job *job, const struct model_shape *m, const struct layout *l,
		       const struct stage *stages, int pp, double limit, bool saves)
{
	int micros = (int)(job->batch.global / (job->batch.micro * l->dp));
	const int ends[] = { 0, l->tp - 1 }; /* the largest shard is the first or the last */
	for (int i = 0; i < 2; i++) {
		struct plan_rank r = { .at = { .tp = ends[i], .pp = pp } };
		plan_memory_rank(job, m, l, micros, stages, saves, &r);
		if (r.total > limit)
			return false;
	}
	return true;
}

static bool fits(const struct job *job, const struct cluster *c, const struct model_shape *m, const struct layout *l)
{
	double limit = 0;
	bool on_cpu = false;
	int world = layout_world(l);
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		on_cpu |= fit_on_cpu(k);
		double has = fit_limit(k, world < k->devices ? world : k->devices);
		if (has > 0 && (!limit || has < limit))
			limit = has;
	}
	if (!limit)
		return true;
	struct stage *stages = calloc((size_t)layout_n_stages(l), sizeof *stages);
	bool yes = stages && !layout_stages(m, layout_n_stages(l), "", NULL, stages, NULL);
	for (int pp = 0; yes && pp < l->pp; pp++)
		yes = stage_fits(job, m, l, stages, pp, limit, on_cpu);
	free(stages);
	return yes;
}

/* How far apart two plans are: doublings, where data parallelism is the easiest to change. */
static double distance(const struct layout *a, const struct layout *b)
{
	return fabs(log2((double)a->tp / b->tp)) + fabs(log2((double)a->pp / b->pp)) + 0.5 * fabs(log2((double)a->dp / b->dp));
}

/* Powers of two and the asked degree itself, in rising order. */
static int next_degree(int d, int asked)
{
	int power = 1;
	while (power <= d)
		power *= 2;
	return asked > d && asked < power ? asked : power;
}

static void consider(const struct job *job, const struct cluster *c, const struct model_shape *m,
		     const struct layout *asked, const struct layout *l, struct layout *best)
{
	if (best->tp && distance(asked, l) >= distance(asked, best))
		return;
	if (divides(job, m, l) && plan_room(c, l) && fits(job, c, m, l))
		*best = *l;
}

/* What takes less memory at the same degrees, the cheapest first. */
static const struct thrift {
	const char *words;
	enum job_recompute mode;
	int64_t zero;
} thrifts[] = {
	{ "recompute.mode = selective", RECOMPUTE_SELECTIVE, 0 },
	{ "parallel.zero = 1", RECOMPUTE_NONE, 1 },
	{ "recompute.mode = full", RECOMPUTE_FULL, 0 },
	{ "parallel.zero = 2", RECOMPUTE_NONE, 2 },
	{ "parallel.zero = 3", RECOMPUTE_NONE, 3 },
	{ "parallel.zero = 3 with recompute.mode = full", RECOMPUTE_FULL, 3 },
};

/* NULL: nothing of it, or the degrees are not the cluster's. */
static const char *thrift_of(const struct job *job, const struct cluster *c, const struct model_shape *m, const struct layout *asked)
{
	if (!plan_room(c, asked) || !divides(job, m, asked))
		return NULL;
	for (size_t i = 0; i < sizeof thrifts / sizeof *thrifts; i++) {
		struct job other = *job;
		if (thrifts[i].mode > other.recompute.mode)
			other.recompute.mode = thrifts[i].mode;
		if (thrifts[i].zero > other.parallel.zero)
			other.parallel.zero = thrifts[i].zero;
		bool less = other.recompute.mode != job->recompute.mode || other.parallel.zero != job->parallel.zero;
		if (less && fits(&other, c, m, asked))
			return thrifts[i].words;
	}
	return NULL;
}

void fit_hint(const struct job *job, const struct cluster *c, const struct layout *asked, struct buf *out)
{
	struct layout best = { 0 };
	struct model_shape m;
	model_shape(job, &m);
	int devices = plan_devices(c);
	for (int tp = 1; tp <= devices; tp = next_degree(tp, asked->tp)) {
		if (!plan_groups(c, tp) && tp != asked->tp)
			continue; /* would cross nodes */
		for (int pp = 1; (int64_t)tp * pp <= devices; pp = next_degree(pp, asked->pp)) {
			struct layout l = *asked;
			l.tp = tp;
			l.pp = pp;
			int full = l.dp = plan_fill_dp(job, c, &l);
			consider(job, c, &m, asked, &l, &best);
			for (l.dp = 1; l.dp < full; l.dp = next_degree(l.dp, asked->dp))
				consider(job, c, &m, asked, &l, &best);
		}
	}
	const char *thrift = thrift_of(job, c, &m, asked);
	if (best.tp)
		buf_printf(out, "tp = %d, dp = %d, pp = %d would fit%s%s", best.tp, best.dp, best.pp, thrift ? ", and so would " : "", thrift ? thrift : "");
	else if (thrift)
		buf_printf(out, "%s would fit", thrift);
	else
		buf_puts(out, "no degrees fit: use more or larger devices, or a smaller model, batch.micro or model.seq");
}
