/* The bytes that groups move in a step: computed by hand, and as the cost model charges them. */
#include "plan/cost/devices.h"
#include "plan/cost/step.h"
#include "plan/place/traffic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MICROS = 3 };

struct case_of {
	struct job job;
	struct model_shape shape;
	struct layout layout;
	struct stage stages[16];
	struct traffic traffic;
};

/* Four layers of 64, 2 heads of 32 with one key-value head, 16 tokens, three micro-batches of 2. */
static struct case_of open_case(const char *more)
{
	const char *words[24] = {
		"model.family=llama", "model.layers=4",  "model.hidden=64",      "model.heads=2",
		"model.kv_heads=1",   "model.vocab=100", "model.seq=16",         "model.ffn=128",
		"batch.micro=2",      "batch.global=48", "precision.dtype=bf16",
	};
	char copy[300];
	struct case_of x;
	struct err e = ERR_INIT;
	int n = 11;
	snprintf(copy, sizeof copy, "%s", more);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	if (job_load(NULL, words, n, &x.job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&x.job, &x.shape);
	x.layout = layout_of(&x.job, (int)x.job.parallel.dp);
	assert_int_equal(layout_stages(&x.shape, layout_n_stages(&x.layout), "", false, NULL,
				       x.stages, &e),
			 0);
	place_traffic_of(&x.job, &x.shape, &x.layout, x.stages, MICROS, &x.traffic);
	return x;
}

static struct traffic traffic(const char *more)
{
	return open_case(more).traffic;
}

static void must_move(const struct traffic *t, enum group_kind kind, int op, double bytes,
		      double times)
{
	const struct traffic_op *o = &t->ops[kind][op];
	if (o->bytes != bytes || o->times != times)
		fail_msg("%s: %g times %g bytes, not %g times %g", place_group_word(kind), o->times,
			 o->bytes, times, bytes);
}

static void tensor_groups_sum_the_residual_stream(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.tp=2 parallel.dp=1");
	/* including the embedding's and the head's */
	must_move(&t, GROUP_TP, 0, 2 * 2 * 16 * 64, 3 * (4 * 4 + 2));
	t = traffic("parallel.tp=2 parallel.dp=1 parallel.sp=yes recompute.mode=full "
		    "recompute.every=2");
	/* two layers again, without their last reduce-scatter */
	must_move(&t, GROUP_TP, 0, 2 * 2 * 16 * 64, 3 * (4 * (4 + 1) + 2 * 1.5 + 2));
	t = traffic("parallel.tp=2 parallel.dp=1 parallel.cp=2 parallel.pp=2 precision.dtype=fp32");
	/* half of the tokens, half of the layers */
	must_move(&t, GROUP_TP, 0, 4 * 2 * 8 * 64, 3 * (2 * 4 + 1));
}

static void context_rings_pass_keys_and_values_on(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.cp=4 parallel.dp=1");
	must_move(&t, GROUP_CP, 0, 2 * 32 * 2 * 4 * 2, 4 * 3 * 3);
	must_move(&t, GROUP_CP, 1, 2 * 2 * 32 * 2 * 4 * 2, 4 * 3 * 3);
	/* one head; both tp ranks hold a copy */
	t = traffic("parallel.cp=4 parallel.tp=2 parallel.dp=1");
	must_move(&t, GROUP_CP, 0, 2 * 32 * 2 * 4 * 2, 4 * 3 * 3);
}

static void stages_pass_activations_and_gradients(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.pp=2 parallel.dp=1 parallel.schedule=interleaved");
	must_move(&t, GROUP_PP, 0, 2 * 2 * 16 * 64, 2 * 3 * 2);
	assert_true(place_traffic_bytes(&t, GROUP_TIE) == 0);
	t = traffic("parallel.pp=2 parallel.dp=1 model.tie_head=yes");
	must_move(&t, GROUP_TIE, 0, 4 * 100 * 64, 1);
}

static void replicas_sum_gradients_and_gather_parameters(void **state)
{
	(void)state;
	struct traffic whole = traffic("parallel.dp=4");
	double elements = whole.ops[GROUP_DP][0].bytes / 4;
	/* Two tables, four layers (q, o; k, v; gate, up, down), norms. */
	double sum = 2 * 100 * 64 + 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) + 9 * 64;
	assert_true(elements >= sum && elements < sum * 1.01); /* plus the gaps between groups */
	must_move(&whole, GROUP_DP, 0, 4 * elements, 1);
	assert_true(whole.ops[GROUP_DP][1].times == 0);
	struct traffic t = traffic("parallel.dp=4 parallel.zero=1");
	must_move(&t, GROUP_DP, 0, 4 * elements, 0.5);
	must_move(&t, GROUP_DP, 1, 2 * elements, 0.5);
	t = traffic("parallel.dp=4 parallel.zero=3");
	must_move(&t, GROUP_DP, 0, 4 * elements, 0.5 * 3);
	must_move(&t, GROUP_DP, 1, 2 * elements, 3);
	assert_true(t.hidden[GROUP_DP] > 0 && t.hidden[GROUP_TP] == 0);
}

static void experts_have_rows_and_replicas_of_their_own(void **state)
{
	(void)state;
	struct traffic t =
		traffic("model.family=mixtral model.experts=4 parallel.dp=4 parallel.ep=2");
	must_move(&t, GROUP_EP, 0, 2 * 16 * 2 * 64 * 2, 4 * 3 * 4); /* two experts per token */
	double elements = t.ops[GROUP_EDP][0].bytes / 4, two = 4.0 * 2 * 3 * 128 * 64;
	assert_true(elements >= two && elements < two * 1.01);
	t = traffic("parallel.dp=4");
	assert_true(place_traffic_bytes(&t, GROUP_EP) == 0 &&
		    place_traffic_bytes(&t, GROUP_EDP) == 0);
}

/* --- Compared with the cost model --- */

/* Links with this many bytes per second and no latency; all groups are on one node. */
static void even_links(const struct layout *l, double bandwidth,
		       struct group_links group_links[GROUP_KINDS])
{
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		int n = place_group_size(l, kind);
		group_links[kind] = (struct group_links){
			.ranks = n, .nodes = 1, .per_node = n, .inside = { bandwidth, 0 }
		};
	}
}

/* The seconds that a step's passes spend in transfers, on the rank that has most. replicas: the
 * seconds of its replicas' exchange. Nothing is hidden. */
static double charged(const struct case_of *x, double bandwidth, double *replicas)
{
	struct cluster c;
	struct cost_machine machine;
	struct cost_units units;
	struct group_links group_links[GROUP_KINDS];
	struct cost_sum sum = { 0 };
	double most = 0;
	assert_int_equal(topo_cluster_open("dgx-h100:1", 0, &c, NULL), 0);
	cost_machine_of(&c.kinds[0], true, 1, &machine);
	machine.hides = 0;
	even_links(&x->layout, bandwidth, group_links);
	cost_units_of(&x->shape, &x->layout, 0, &units);
	struct cost_case cost = { .job = &x->job,
				  .shape = &x->shape,
				  .layout = &x->layout,
				  .stages = x->stages,
				  .units = &units,
				  .group_links = group_links,
				  .machine = &machine,
				  .engine = &cost_engine_muster,
				  .micros = MICROS };
	for (int pp = 0; pp < x->layout.pp; pp++) {
		struct cost_rank r = { .device = { &machine, 1, 1, NULL } };
		for (int chunk = 0; chunk < x->layout.chunks; chunk++) {
			const struct stage *s = &x->stages[layout_stage(&x->layout, pp, chunk)];
			struct cost_pass t = cost_pass_of(&cost, s);
			cost_add(&r.pass, &t, 1);
			r.layers += s->layer_hi - s->layer_lo;
			r.first |= s->first;
			r.last |= s->last;
		}
		const struct cost_pass *t = &r.pass;
		most = fmax(most, MICROS * (t->tp_fwd + t->tp_bwd + t->cp_fwd + t->cp_bwd +
					    t->ep_fwd + t->ep_bwd + t->again));
		cost_sum_add(&cost, &r, &sum);
	}
	*replicas = sum.dp;
	topo_cluster_free(&c);
	return most;
}

static void the_cost_model_charges_as_much(void **state)
{
	static const char *const cases[] = {
		"parallel.tp=2",
		"parallel.tp=2 parallel.sp=yes",
		"parallel.tp=2 parallel.pp=2",
		"parallel.tp=2 parallel.pp=2 parallel.schedule=interleaved",
		"parallel.tp=2 recompute.mode=full",
		"parallel.tp=2 parallel.sp=yes recompute.mode=full recompute.every=2",
		"parallel.cp=4",
		"parallel.tp=2 parallel.cp=2",
		"parallel.cp=2 recompute.mode=selective",
		"parallel.cp=2 recompute.mode=full precision.dtype=fp32",
		"parallel.tp=2 parallel.cp=2 model.kv_heads=2",
		"model.layers=5 parallel.tp=2 recompute.mode=full recompute.every=2",
		"model.family=mixtral model.experts=4 parallel.dp=4 parallel.ep=2",
		"model.family=mixtral model.experts=4 parallel.dp=4 parallel.ep=4 "
		"recompute.mode=full",
		"model.family=mixtral model.experts=4 parallel.dp=4 parallel.ep=2 parallel.tp=2 "
		"parallel.zero=1",
		"parallel.dp=4",
		"parallel.dp=4 parallel.zero=1",
		"parallel.dp=4 parallel.zero=2",
		"parallel.dp=4 parallel.zero=3 precision.dtype=fp32",
		"parallel.dp=2 parallel.cp=2 parallel.pp=2",
		"parallel.pp=2 parallel.dp=2 model.tie_head=yes",
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char words[200];
		struct group_links group_links[GROUP_KINDS];
		double exchange, none;
		snprintf(words, sizeof words, "parallel.overlap=no %s%s",
			 strstr(cases[i], "dp=") ? "" : "parallel.dp=1 ", cases[i]);
		struct case_of x = open_case(words);
		even_links(&x.layout, 1e6, group_links);
		double passes = charged(&x, 1e6, &exchange) - charged(&x, 1e30, &none), mine = 0;
		for (int kind = GROUP_TP; kind <= GROUP_EP; kind++)
			mine += place_traffic_seconds(&x.traffic, kind, &group_links[kind]);
		double replicas =
			place_traffic_seconds(&x.traffic, GROUP_DP, &group_links[GROUP_DP]) +
			place_traffic_seconds(&x.traffic, GROUP_EDP, &group_links[GROUP_EDP]) +
			place_traffic_seconds(&x.traffic, GROUP_TIE, &group_links[GROUP_TIE]);
		/* This omits the loss's sums, which are one number per token. */
		if (fabs(mine - passes) > 0.02 * passes + 1e-9)
			fail_msg("%s: passes %g s, charged %g s", cases[i], mine, passes);
		if (fabs(replicas - exchange) > 1e-6 * exchange + 1e-9)
			fail_msg("%s: replicas %g s, charged %g s", cases[i], replicas, exchange);
	}
}

static void seconds_are_those_of_the_links(void **state)
{
	struct traffic t = { 0 };
	const struct group_links ring = {
		.ranks = 4, .nodes = 1, .per_node = 4, .inside = { 1e9, 1e-6 }
	};
	(void)state;
	t.ops[GROUP_TP][0] = (struct traffic_op){ 4e6, 10 };
	t.ops[GROUP_TP][1] = (struct traffic_op){ 8e6, 1 };
	assert_true(fabs(place_traffic_seconds(&t, GROUP_TP, &ring) -
			 (10 * 6 * (1e-3 + 1e-6) + 6 * (2e-3 + 1e-6))) < 1e-12);
	assert_true(place_traffic_bytes(&t, GROUP_TP) == 48e6);
	t.ops[GROUP_PP][0] = (struct traffic_op){ 1e6, 2 };
	const struct group_links chain = {
		.ranks = 2, .nodes = 2, .per_node = 1, .across = { 1e9, 5e-6 }
	};
	assert_true(fabs(place_traffic_seconds(&t, GROUP_PP, &chain) - 2 * (1e-3 + 5e-6)) < 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_groups_sum_the_residual_stream),
		cmocka_unit_test(context_rings_pass_keys_and_values_on),
		cmocka_unit_test(stages_pass_activations_and_gradients),
		cmocka_unit_test(replicas_sum_gradients_and_gather_parameters),
		cmocka_unit_test(experts_have_rows_and_replicas_of_their_own),
		cmocka_unit_test(the_cost_model_charges_as_much),
		cmocka_unit_test(seconds_are_those_of_the_links),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
