#include "plan/place/traffic.h"

#include "plan/spec/model/activations.h"
#include "plan/spec/model/zero.h"

#include <math.h>

/* The replicas' all-reduces and gathers run beside the passes. Most of their time is hidden unless
 * the links are far too slow (plan/cost/step.h). */
#define REPLICAS_HIDDEN 0.75

enum { F32 = 4 };

static void set_op(struct traffic *t, enum group_kind kind, int i, double bytes, double times)
{
	t->ops[kind][i] = (struct traffic_op){ bytes, times };
}

/* Elements of a pipeline rank's parameters: of the experts, or of all others. */
static double elements_of(const struct model_shape *m, const struct layout *l, bool sp,
			  const struct stage *stages, int pp, enum zero_class class)
{
	struct stage chunks[LAYOUT_CHUNKS_MAX];
	struct share share = layout_share(l, (struct coords){ .pp = pp }, sp, stages, chunks);
	double sum = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		if (zero_class(kind) == class)
			sum += (double)catalogue_unit_elements(m, &share, kind) *
			       catalogue_unit_count(m, &share, kind);
	return sum;
}

/* The work of a pipeline rank: its layers, how many of them recompute, and how many of the
 * embedding and the head it holds. */
struct work {
	int layers, redone, ends;
};

/* The work of the rank that has the most. */
static struct work most_work(const struct job *job, const struct layout *l,
			     const struct stage *stages)
{
	struct work most = { 0, 0, 0 };
	int every = (int)job->recompute.every;
	for (int pp = 0; pp < l->pp; pp++) {
		struct work w = { 0, 0, 0 };
		for (int c = 0; c < l->chunks; c++) {
			const struct stage *s = &stages[layout_stage(l, pp, c)];
			w.layers += s->layer_hi - s->layer_lo;
			w.redone += (s->layer_hi + every - 1) / every -
				    (s->layer_lo + every - 1) / every;
			w.ends += s->first + s->last;
		}
		if (w.layers > most.layers || (w.layers == most.layers && w.ends > most.ends))
			most = w;
	}
	if (job->recompute.mode == RECOMPUTE_NONE)
		most.redone = 0;
	return most;
}

struct traffic_sizes place_traffic_sizes_of(const struct job *job, const struct model_shape *m,
					    const struct layout *l)
{
	double width = job->precision.dtype == DTYPE_FP32 ? 4 : 2;
	struct act_expert_rows routed = activations_expert_rows(job, m, l);
	double tokens = (double)job->batch.micro * (double)m->seq / l->cp,
	       stream = width * tokens * (double)m->hidden;
	double heads = fmax(1, (double)m->kv_heads / l->tp);
	return (struct traffic_sizes){
		.stream = stream,
		.keys = 2 * heads * (double)m->head_dim * tokens * width,
		.rows = width * (double)m->hidden * (double)routed.sent,
		.message = stream / (job->parallel.sp ? l->tp : 1),
	};
}

static void passes(const struct job *job, const struct model_shape *m, const struct layout *l,
		   const struct stage *stages, int micros, struct traffic *t)
{
	struct traffic_sizes size = place_traffic_sizes_of(job, m, l);
	struct work w = most_work(job, l, stages);
	bool sp = job->parallel.sp;
	/* layers that are recomputed whole */
	double whole = job->recompute.mode == RECOMPUTE_FULL ? w.redone : 0;
	set_op(t, GROUP_TP, 0, size.stream,
	       micros * (w.layers * (sp ? 5 : 4) + whole * (sp ? 1.5 : 1) + w.ends));
	set_op(t, GROUP_CP, 0, size.keys, (double)micros * (l->cp - 1) * (w.layers + w.redone));
	set_op(t, GROUP_CP, 1, 2 * size.keys, (double)micros * (l->cp - 1) * w.layers);
	set_op(t, GROUP_EP, 0, size.rows, m->experts ? micros * (4 * w.layers + 2 * whole) : 0);
	set_op(t, GROUP_PP, 0, size.message, 2.0 * micros * l->chunks);
}

static void replicas(const struct job *job, const struct model_shape *m, const struct layout *l,
		     const struct stage *stages, int micros, enum zero_class class,
		     struct traffic *t)
{
	enum group_kind kind = class == ZERO_EXPERTS ? GROUP_EDP : GROUP_DP;
	double width = job->precision.dtype == DTYPE_FP32 ? 4 : 2, elements = 0;
	int zero = (int)job->parallel.zero;
	for (int pp = 0; pp < l->pp; pp++)
		elements = fmax(elements, elements_of(m, l, job->parallel.sp, stages, pp, class));
	set_op(t, kind, 0, F32 * elements, zero ? zero > 1 ? 0.5 * micros : 0.5 : 1);
	/* ZeRO 3 gathers before the forward and the backward pass; each is half an all-reduce. */
	set_op(t, kind, 1, width * elements, !zero ? 0 : zero < 3 ? 0.5 : micros);
}

void place_traffic_of(const struct job *job, const struct model_shape *m, const struct layout *l,
		      const struct stage *stages, int micros, struct traffic *out)
{
	*out = (struct traffic){ 0 };
	passes(job, m, l, stages, micros, out);
	out->hidden[GROUP_DP] = out->hidden[GROUP_EDP] = REPLICAS_HIDDEN;
	replicas(job, m, l, stages, micros, ZERO_DENSE, out);
	if (m->experts)
		replicas(job, m, l, stages, micros, ZERO_EXPERTS, out);
	if (m->tied && l->pp > 1 && !l->vee)
		set_op(out, GROUP_TIE, 0, F32 * (double)(m->vocab * m->hidden) / l->tp, 1);
}

/* A model with 32 layers, hidden 8192, bf16, 4096 tokens in a micro-batch and 8 micro-batches: the
 * proportions matter, not the numbers. */
void place_traffic_usual(const struct layout *l, struct traffic *out)
{
	const double stream = 2.0 * 4096 * 8192, weights = 4.0 * 32 * 12 * 8192 * 8192;
	const int passes = 2 * 8;
	*out = (struct traffic){ 0 };
	set_op(out, GROUP_TP, 0, stream, 2 * 32 * passes);
	set_op(out, GROUP_CP, 0, stream / 4, 32 * passes);
	set_op(out, GROUP_DP, 0, weights / 8, 1);
	if (l->ep > 1) {
		set_op(out, GROUP_EP, 0, stream, 2 * 32 * passes);
		set_op(out, GROUP_EDP, 0, weights / 8, 1);
	}
	set_op(out, GROUP_PP, 0, stream, passes);
	out->hidden[GROUP_DP] = out->hidden[GROUP_EDP] = 0.5;
}

void place_traffic_even(double bytes, struct traffic *out)
{
	*out = (struct traffic){ 0 };
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		set_op(out, kind, 0, bytes, 1);
}

double place_traffic_seconds(const struct traffic *t, enum group_kind kind,
			     const struct group_links *s)
{
	static double (*const of[GROUP_KINDS])(const struct group_links *, double) = {
		[GROUP_TP] = place_seconds_all_reduce,  [GROUP_CP] = place_seconds_hop,
		[GROUP_EP] = place_seconds_all_to_all,  [GROUP_DP] = place_seconds_all_reduce,
		[GROUP_EDP] = place_seconds_all_reduce, [GROUP_PP] = place_seconds_hop,
		[GROUP_TIE] = place_seconds_all_reduce,
	};
	double sum = 0;
	for (int i = 0; i < TRAFFIC_OPS; i++)
		if (t->ops[kind][i].times > 0)
			sum += t->ops[kind][i].times * of[kind](s, t->ops[kind][i].bytes);
	return sum;
}

double place_traffic_bytes(const struct traffic *t, enum group_kind kind)
{
	double sum = 0;
	for (int i = 0; i < TRAFFIC_OPS; i++)
		sum += t->ops[kind][i].times * t->ops[kind][i].bytes;
	return sum;
}
