/* What groups move in a step, by hand. */
#include "plan/place/traffic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Four layers of 64, 2 heads of 32 with one for keys and values, 16 tokens, micro-batches of 2, three of them. */
static struct traffic traffic(const char *more)
{
	const char *words[24] = {
		"model.family=llama", "model.layers=4", "model.hidden=64", "model.heads=2", "model.kv_heads=1", "model.vocab=100", "model.seq=16",
		"model.ffn=128", "batch.micro=2", "batch.global=48", "precision.dtype=bf16",
	};
	char copy[300];
	struct job job;
	struct model_shape m;
	struct stage stages[16];
	struct traffic t;
	struct err e = ERR_INIT;
	int n = 11;
	snprintf(copy, sizeof copy, "%s", more);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	if (job_load(NULL, words, n, &job, &e))
		fail_msg("%s", e.text);
	model_shape(&job, &m);
	struct layout l = layout_of(&job, (int)job.parallel.dp);
	assert_int_equal(layout_stages(&m, layout_n_stages(&l), "", NULL, stages, &e), 0);
	traffic_of(&job, &m, &l, stages, 3, &t);
	return t;
}

static void must_move(const struct traffic *t, enum group_kind kind, int op, double bytes, double times)
{
	const struct traffic_op *o = &t->ops[kind][op];
	if (o->bytes != bytes || o->times != times)
		fail_msg("%s: %g times %g bytes, not %g times %g", group_word(kind), o->times, o->bytes, times, bytes);
}

static void tensor_groups_sum_the_residual_stream(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.tp=2 parallel.dp=1");
	must_move(&t, GROUP_TP, 0, 2 * 2 * 16 * 64, 4 * 3 * 4);
	t = traffic("parallel.tp=2 parallel.dp=1 parallel.sp=yes recompute.mode=full recompute.every=2");
	must_move(&t, GROUP_TP, 0, 2 * 2 * 16 * 64, 4 * 3 * (4 + 1 + 1));
	t = traffic("parallel.tp=2 parallel.dp=1 parallel.cp=2 parallel.pp=2 precision.dtype=fp32");
	must_move(&t, GROUP_TP, 0, 4 * 2 * 8 * 64, 2 * 3 * 4); /* half of the tokens, half of the layers */
}

static void context_rings_pass_keys_and_values_on(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.cp=4 parallel.dp=1");
	must_move(&t, GROUP_CP, 0, 2 * 32 * 2 * 4 * 2, 4 * 3 * 3);
	must_move(&t, GROUP_CP, 1, 2 * 2 * 32 * 2 * 4 * 2, 4 * 3 * 3);
}

static void stages_pass_activations_and_gradients(void **state)
{
	(void)state;
	struct traffic t = traffic("parallel.pp=2 parallel.dp=1 parallel.schedule=interleaved");
	must_move(&t, GROUP_PP, 0, 2 * 2 * 16 * 64, 2 * 3 * 2);
	assert_true(traffic_bytes(&t, GROUP_TIE) == 0);
	t = traffic("parallel.pp=2 parallel.dp=1 model.tie_head=yes");
	must_move(&t, GROUP_TIE, 0, 4 * 100 * 64, 1);
}

static void replicas_sum_gradients_and_gather_parameters(void **state)
{
	(void)state;
	struct traffic plain = traffic("parallel.dp=4");
	double elements = plain.ops[GROUP_DP][0].bytes / 4;
	/* Two tables, four layers (q, o; k, v; gate, up, down), norms. */
	double sum = 2 * 100 * 64 + 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) + 9 * 64;
	assert_true(elements >= sum && elements < sum * 1.01); /* and the gaps between groups */
	must_move(&plain, GROUP_DP, 0, 4 * elements, 1);
	assert_true(plain.ops[GROUP_DP][1].times == 0);
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
	struct traffic t = traffic("model.family=mixtral model.experts=4 parallel.dp=4 parallel.ep=2");
	must_move(&t, GROUP_EP, 0, 2 * 16 * 2 * 64 * 2, 4 * 3 * 4); /* two experts a token */
	double elements = t.ops[GROUP_EDP][0].bytes / 4, two = 4.0 * 2 * 3 * 128 * 64;
	assert_true(elements >= two && elements < two * 1.01);
	t = traffic("parallel.dp=4");
	assert_true(traffic_bytes(&t, GROUP_EP) == 0 && traffic_bytes(&t, GROUP_EDP) == 0);
}

static void seconds_are_those_of_the_links(void **state)
{
	struct traffic t = { 0 };
	const struct span ring = { .ranks = 4, .nodes = 1, .per_node = 4, .inside = { 1e9, 1e-6 } };
	(void)state;
	t.ops[GROUP_TP][0] = (struct traffic_op){ 4e6, 10 };
	t.ops[GROUP_TP][1] = (struct traffic_op){ 8e6, 1 };
	assert_true(fabs(traffic_seconds(&t, GROUP_TP, &ring) - (10 * 6 * (1e-3 + 1e-6) + 6 * (2e-3 + 1e-6))) < 1e-12);
	assert_true(traffic_bytes(&t, GROUP_TP) == 48e6);
	t.ops[GROUP_PP][0] = (struct traffic_op){ 1e6, 2 };
	const struct span chain = { .ranks = 2, .nodes = 2, .per_node = 1, .across = { 1e9, 5e-6 } };
	assert_true(fabs(traffic_seconds(&t, GROUP_PP, &chain) - 2 * (1e-3 + 5e-6)) < 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_groups_sum_the_residual_stream),
		cmocka_unit_test(context_rings_pass_keys_and_values_on),
		cmocka_unit_test(stages_pass_activations_and_gradients),
		cmocka_unit_test(replicas_sum_gradients_and_gather_parameters),
		cmocka_unit_test(experts_have_rows_and_replicas_of_their_own),
		cmocka_unit_test(seconds_are_those_of_the_links),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
