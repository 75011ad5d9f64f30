/* Tests what ranks' findings about wrong numbers lead to: where they began, who is named, and
 * whether hardware is at fault. */
#include "agent/engine/train/diagnosis.h"
#include "agent/engine/train/replicas.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { WORLD = 4, LAYERS = 6 };

struct scene {
	struct rank_findings all[WORLD];
	enum witness witnesses[WORLD];
	struct step_results r;
	struct train_blame blame;
	char text[600];
};

/* Four ranks, each of which is a replica of the pipeline, whose computations agree and are
 * finite. */
static struct scene *healthy(void)
{
	static struct scene s;
	s = (struct scene){ .r = { 2.5, 1, 2.5, 1, LAYERS } };
	for (int r = 0; r < WORLD; r++) {
		snprintf(s.all[r].node, sizeof s.all[r].node, "n%d", r);
		s.all[r].dp = r;
		s.all[r].pieces = 7;
	}
	return &s;
}

static void decide(struct scene *s)
{
	train_diagnosis_decide(s->all, s->witnesses, WORLD, &s->r, &s->blame, s->text,
			       sizeof s->text);
}

static struct scene *infinite(void)
{
	struct scene *s = healthy();
	s->r.loss = s->r.norm = NAN;
	return s;
}

static void says(const struct scene *s, const char *words)
{
	if (!strstr(s->text, words))
		fail_msg("\"%s\" is not in: %s", words, s->text);
}

static void names(const struct scene *s, int rank, bool suspect)
{
	assert_int_equal(s->blame.n, 1);
	assert_int_equal(s->blame.ranks[0], rank);
	assert_int_equal(s->blame.suspect, suspect);
}

/* --- Order ------------------------------------------------------------------------------- */

static void places_are_in_the_order_of_the_computation(void **state)
{
	(void)state;
	static const struct model_place order[] = {
		{ 0, false, -1, 0 }, { 0, false, 0, 0 },  { 0, false, 0, 3 }, { 0, false, 5, 1 },
		{ 0, false, 6, 0 },  { 0, true, 6, 0 },   { 0, true, 5, 2 },  { 0, true, 0, 0 },
		{ 0, true, -1, 0 },  { 1, false, -1, 0 }, { 1, true, 6, 0 },  { 2, false, 0, 0 },
	};
	enum { N = sizeof order / sizeof *order };
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++)
			assert_int_equal(train_diagnosis_before(&order[i], &order[j]), i < j);
}

static void find_bad(struct scene *s, int rank, struct model_place at, const char *what)
{
	struct model_finding *f = &s->all[rank].again;
	*f = (struct model_finding){ .bad = 1, .count = 8, .at = at };
	snprintf(f->what, sizeof f->what, "%s", what);
}

static void the_first_tensor_of_all_ranks_is_the_origin(void **state)
{
	(void)state;
	struct scene *s = infinite();
	find_bad(s, 0, (struct model_place){ 0, false, 4, 0 }, "input");
	find_bad(s, 1, (struct model_place){ 1, false, -1, 0 }, "result");
	find_bad(s, 2, (struct model_place){ 0, false, 3, 5 }, "output");
	find_bad(s, 3, (struct model_place){ 0, true, 6, 0 }, "gradient of the output");
	decide(s);
	names(s, 2, false);
	assert_string_equal(s->blame.kind, "activations");
	says(s, "rank 2 on n2 has them first, in the forward pass of micro-batch 0");
	says(s, "output of layer 3");
}

static void a_gradient_is_named_by_its_parameter(void **state)
{
	(void)state;
	struct scene *s = infinite();
	find_bad(s, 1, (struct model_place){ 2, true, 3, 1 }, "layers.3.mlp.up.weight");
	s->all[1].again.gradient = true;
	decide(s);
	names(s, 1, false);
	assert_string_equal(s->blame.kind, "gradient");
	assert_string_equal(s->blame.tensor, "layers.3.mlp.up.weight");
	says(s, "in the backward pass of micro-batch 2");
}

static void ranks_at_the_same_place_are_counted(void **state)
{
	(void)state;
	struct scene *s = infinite();
	for (int r = 1; r < WORLD; r++)
		find_bad(s, r, (struct model_place){ 0, false, 2, 1 }, "product");
	decide(s);
	names(s, 1, false);
	says(s, "rank 1 on n1 has them first, and 2 other ranks at the same place");
}

/* --- The state before the step ----------------------------------------------------------- */

static void spoil_state(struct scene *s, int rank, int layer, const char *name)
{
	s->all[rank].before = (struct bad_tensor){ .bad = 1, .count = 64, .layer = layer };
	snprintf(s->all[rank].before.name, BLAME_NAME, "%s", name);
}

static void a_bad_weight_precedes_all_else_and_a_good_replica_makes_the_node_suspect(void **state)
{
	(void)state;
	struct scene *s = infinite();
	spoil_state(s, 2, 1, "layers.1.mlp.up.weight");
	spoil_state(s, 3, 4, "layers.4.mlp.up.weight");
	find_bad(s, 0, (struct model_place){ 0, false, -1, 0 }, "result");
	assert_int_equal(train_diagnosis_suspected(s->all, WORLD), 2);
	for (int r = 0; r < WORLD; r++)
		s->witnesses[r] = r == 2 ? WITNESS_BAD : WITNESS_GOOD;
	decide(s);
	names(s, 2, true);
	assert_string_equal(s->blame.kind, "weights");
	assert_string_equal(s->blame.tensor, "layers.1.mlp.up.weight");
	says(s, "good on 3 of the 4 ranks");
}

static void a_weight_that_is_bad_everywhere_is_no_fault_of_a_node(void **state)
{
	(void)state;
	struct scene *s = infinite();
	for (int r = 0; r < WORLD; r++) {
		spoil_state(s, r, 0, "layers.0.mlp.up.weight");
		s->witnesses[r] = WITNESS_BAD;
	}
	decide(s);
	names(s, 0, false);
	says(s, "all ranks that hold it have them");
}

static void a_bad_weight_without_replicas_makes_nobody_suspect(void **state)
{
	(void)state;
	struct scene *s = infinite();
	spoil_state(s, 3, 0, "layers.0.mlp.up.weight");
	s->all[3].before.state = true;
	s->witnesses[3] = WITNESS_BAD;
	decide(s);
	names(s, 3, false);
	assert_string_equal(s->blame.kind, "optimizer-state");
	says(s, "no other rank holds it");
}

/* --- Two computations -------------------------------------------------------------------- */

static void equal_computations_blame_the_data_or_the_weights(void **state)
{
	(void)state;
	struct scene *s = healthy();
	decide(s);
	assert_int_equal(s->blame.n, 0);
	says(s, "gives the same bits, so they come from the data or the weights");
}

static void other_bits_are_a_fault_of_hardware_and_the_first_rank_that_differs_has_it(void **state)
{
	(void)state;
	struct scene *s = infinite();
	s->r.loss_again = s->r.norm_again = 1;
	s->all[1].differs = s->all[3].differs = s->all[3].loss_differs = true;
	s->all[1].differs_at = (struct model_place){ .layer = 4, .order = 2 };
	s->all[3].differs_at = (struct model_place){ .layer = 2, .order = 9 };
	decide(s);
	names(s, 3, true);
	says(s, "failed for a moment, on rank 3 on n3");
	says(s, "layer 2");
}

/* With job.deterministic = any-order, backward passes have other bits each time. */
static void gradients_with_sums_in_any_order_may_differ(void **state)
{
	(void)state;
	struct scene *s = healthy();
	s->r.any_order = true;
	s->r.norm_again = s->r.norm * (1 + 1e-7);
	s->all[1].gradients_differ = s->all[2].gradients_differ = true;
	decide(s);
	assert_int_equal(s->blame.n, 0);
	says(s, "gives the same bits in the forward pass");
	says(s, "or hardware failed in the backward pass");
	s->r.any_order = false;
	decide(s);
	says(s, "failed for a moment");
}

static void a_fault_is_found_despite_sums_in_any_order(void **state)
{
	(void)state;
	struct scene *s = healthy();
	s->r.any_order = true;
	s->all[3].differs = s->all[3].loss_differs = true;
	s->all[3].differs_at = (struct model_place){ .layer = 2 };
	decide(s);
	names(s, 3, true);
	says(s, "failed for a moment, on rank 3 on n3");
	s = healthy();
	s->r.any_order = true;
	s->r.norm = NAN; /* and finite in the second computation */
	s->all[2].reduced = (struct bad_tensor){ .bad = 1, .count = 9, .name = "norm.weight" };
	decide(s);
	names(s, 2, true);
	says(s, "reduced gradient of norm.weight, and its replicas had none");
}

static void ranks_that_differ_at_the_same_place_are_all_named_but_not_suspects(void **state)
{
	(void)state;
	struct scene *s = infinite();
	s->all[1].differs = s->all[2].differs = true;
	s->all[1].differs_at = s->all[2].differs_at = (struct model_place){ .layer = 2 };
	decide(s);
	assert_int_equal(s->blame.n, 2);
	assert_false(s->blame.suspect);
	says(s, "one of the ranks 1 on n1, 2 on n2");
}

/* Ranks 2 and 3 are two stages of a pipeline. Stage 0 holds gradients of more micro-batches. */
static void a_gradient_on_an_early_stage_blames_the_whole_pipeline(void **state)
{
	(void)state;
	struct scene *s = infinite();
	s->all[3].dp = 2;
	s->all[2].differs = true;
	s->all[2].differs_at = (struct model_place){ .backward = true, .layer = 0 };
	decide(s);
	assert_int_equal(s->blame.n, 2);
	assert_false(s->blame.suspect);
	says(s, "one of the ranks 2 on n2, 3 on n3");
}

static void a_part_of_the_loss_that_differs_names_its_replica(void **state)
{
	(void)state;
	struct scene *s = infinite();
	s->all[2].loss_differs = true;
	decide(s);
	names(s, 2, true);
	says(s, "a part of the loss differs");
}

static void a_reduced_gradient_that_is_bad_on_one_replica_blames_that_rank(void **state)
{
	(void)state;
	struct scene *s = healthy();
	s->r.norm = NAN;
	s->all[2].reduced = (struct bad_tensor){ .bad = 1, .count = 9, .name = "norm.weight" };
	s->all[2].gradients_differ = true;
	decide(s);
	names(s, 2, true);
	says(s, "reduced gradient of norm.weight, and its replicas had none");
	s->all[2].pieces = 8; /* no other rank has the same gradients */
	decide(s);
	names(s, 2, false);
	says(s, "which rank computed them cannot be known");
}

static void a_sum_that_overflows_is_no_fault_of_a_rank(void **state)
{
	(void)state;
	struct scene *s = healthy();
	s->r.norm = s->r.norm_again = INFINITY;
	for (int r = 0; r < WORLD; r++) {
		s->all[r].reduced =
			(struct bad_tensor){ .bad = 1, .count = 9, .name = "norm.weight" };
		s->all[r].reduced_again = true;
	}
	decide(s);
	names(s, 0, false);
	says(s, "the sum of the gradients over ranks is not");
}

/* --- Replicas ---------------------------------------------------------------------------- */

struct holding_case {
	const char *name;
	uint64_t keys[WORLD], digests[WORLD];
	int n, reference;
	bool differs[WORLD];
};

static void the_minority_of_replicas_is_at_fault(void **state)
{
	(void)state;
	static const struct holding_case cases[] = {
		{ "all agree", { 1, 1, 1, 1 }, { 5, 5, 5, 5 }, 0, 0, { false } },
		{ "one of four", { 1, 1, 1, 1 }, { 5, 5, 6, 5 }, 1, 0, { false, false, true } },
		{ "the first of four", { 1, 1, 1, 1 }, { 6, 5, 5, 5 }, 1, 1, { true } },
		{ "two of two",
		  { 1, 2, 3, 2 },
		  { 5, 5, 5, 6 },
		  2,
		  -1,
		  { false, true, false, true } },
		{ "two and two",
		  { 1, 1, 1, 1 },
		  { 5, 6, 5, 6 },
		  4,
		  -1,
		  { true, true, true, true } },
		{ "two of three differ",
		  { 1, 1, 1, 2 },
		  { 4, 5, 6, 5 },
		  3,
		  -1,
		  { true, true, true } },
		{ "no two hold the same", { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, 0, 0, { false } },
		{ "nothing is held", { 0, 0, 0, 0 }, { 5, 6, 7, 8 }, 0, 0, { false } },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int class = 0; class < HELD_CLASSES; class ++) {
			const struct holding_case *c = &cases[i];
			struct held_sum all[WORLD][HELD_CLASSES] = { { { 0, 0 } } };
			struct replicas_verdict v;
			bool differs[WORLD];
			for (int r = 0; r < WORLD; r++)
				all[r][class] = (struct held_sum){ c->keys[r], c->digests[r] };
			int n = train_replicas_judge(&all[0][0], WORLD, differs, &v);
			if (n != c->n || memcmp(differs, c->differs, sizeof differs) ||
			    (n && (v.reference != c->reference || (int)v.class != class)))
				fail_msg("%s, class %d: %d ranks differ", c->name, class, n);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_in_the_order_of_the_computation),
		cmocka_unit_test(the_first_tensor_of_all_ranks_is_the_origin),
		cmocka_unit_test(a_gradient_is_named_by_its_parameter),
		cmocka_unit_test(ranks_at_the_same_place_are_counted),
		cmocka_unit_test(
			a_bad_weight_precedes_all_else_and_a_good_replica_makes_the_node_suspect),
		cmocka_unit_test(a_weight_that_is_bad_everywhere_is_no_fault_of_a_node),
		cmocka_unit_test(a_bad_weight_without_replicas_makes_nobody_suspect),
		cmocka_unit_test(equal_computations_blame_the_data_or_the_weights),
		cmocka_unit_test(
			other_bits_are_a_fault_of_hardware_and_the_first_rank_that_differs_has_it),
		cmocka_unit_test(gradients_with_sums_in_any_order_may_differ),
		cmocka_unit_test(a_fault_is_found_despite_sums_in_any_order),
		cmocka_unit_test(
			ranks_that_differ_at_the_same_place_are_all_named_but_not_suspects),
		cmocka_unit_test(a_gradient_on_an_early_stage_blames_the_whole_pipeline),
		cmocka_unit_test(a_part_of_the_loss_that_differs_names_its_replica),
		cmocka_unit_test(a_reduced_gradient_that_is_bad_on_one_replica_blames_that_rank),
		cmocka_unit_test(a_sum_that_overflows_is_no_fault_of_a_rank),
		cmocka_unit_test(the_minority_of_replicas_is_at_fault),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
