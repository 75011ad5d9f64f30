/*
 * Mixtral's balancing loss. For the router logits of tests/golden/balance_cases.json, the test
 * compares muster's loss, with the coefficient as it is imported, with the loss that transformers
 * computes with its own coefficient. make_balance_cases.py wrote that file and describes its rows.
 */
#include "agent/engine/hf/config.h"
#include "kernels/ops.h"
#include "tests/unit/agent/golden_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double tolerance = 1e-6;

static json_t *golden;

static int open_golden(void **state)
{
	(void)state;
	golden = golden_json("tests/golden/balance_cases.json");
	return golden ? 0 : -1;
}

static int close_golden(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

static int64_t whole(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static double real(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* Reads the configuration of a Mixtral of these sizes. `more`: more members, after a comma. */
static int read_mixtral(int64_t layers, int64_t experts, int64_t top, const char *more,
			struct job *job, struct err *e)
{
	struct buf text = BUF_INIT;
	buf_printf(&text,
		   "{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"num_hidden_layers\": "
		   "%lld, \"num_attention_heads\": 8, "
		   "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"vocab_size\": "
		   "10, \"num_local_experts\": %lld, "
		   "\"num_experts_per_tok\": %lld%s}",
		   (long long)layers, (long long)experts, (long long)top, more);
	int rc = hf_config_read(buf_str(&text), text.len, "config.json", 0, job, e);
	buf_fini(&text);
	return rc;
}

static double imported(const json_t *row)
{
	char more[128];
	struct err e = ERR_INIT;
	struct job job;
	snprintf(more, sizeof more,
		 ", \"output_router_logits\": true, \"router_aux_loss_coef\": %.17g",
		 real(row, "coefficient"));
	if (read_mixtral(whole(row, "layers"), whole(row, "experts"), whole(row, "top"), more, &job,
			 &e))
		fail_msg("%s", e.text);
	return job.model.aux_loss;
}

/* Returns the share that one layer has in the loss, times n. n: tokens, in sequences of `seq`. */
static double layer_loss(struct backend *k, const float *logits, int64_t n, int64_t seq,
			 int64_t experts, int64_t top, double aux)
{
	const struct ops *ops = backend_ops(k);
	int64_t pieces = n / seq;
	int32_t *chosen = calloc((size_t)(n * top), sizeof *chosen);
	int64_t *choices = calloc((size_t)(pieces * experts), sizeof *choices);
	float *weights = calloc((size_t)(n * top), sizeof *weights),
	      *probs = calloc((size_t)(n * experts), sizeof *probs);
	float *lse = calloc((size_t)n, sizeof *lse),
	      *load = calloc((size_t)(pieces * experts), sizeof *load);
	double loss = 0;
	ops->route_fwd(k, chosen, weights, probs, lse, logits, n, experts, top, false);
	ops->route_count(k, choices, chosen, n, experts, top, seq);
	for (int64_t i = 0; i < pieces * experts; i++)
		load[i] = (float)choices[i] / (float)(seq * top);
	ops->route_loss(k, &loss, load, probs, lse, n, experts, seq, aux * (double)experts, 0);
	free(load);
	free(lse);
	free(probs);
	free(weights);
	free(choices);
	free(chosen);
	return loss;
}

static double loss_of(const json_t *row)
{
	int64_t seq = whole(row, "tokens"), n = whole(row, "sequences") * seq,
		experts = whole(row, "experts");
	const json_t *numbers = json_object_get(row, "logits");
	float *logits = calloc((size_t)(n * experts), sizeof *logits);
	struct backend *k;
	struct err e = ERR_INIT;
	double loss = 0;
	if (backend_open("reference", 1, &k, &e))
		fail_msg("%s", e.text);
	for (int64_t layer = 0; layer < whole(row, "layers"); layer++) {
		for (int64_t i = 0; i < n * experts; i++)
			logits[i] = (float)json_number_value(json_array_get(
					    numbers, (size_t)(layer * n * experts + i))) /
				    64;
		loss += layer_loss(k, logits, n, seq, experts, whole(row, "top"), imported(row));
	}
	backend_close(k);
	free(logits);
	return loss / (double)n;
}

/* agent/engine/hf/balance.h: muster's loss is transformers' loss plus the covariance. The
 * covariance is 0 if all layers and sequences are equal. */
static void the_loss_is_transformers_and_the_covariance(void **state)
{
	size_t i;
	json_t *row;
	int alike = 0;
	(void)state;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		double loss = loss_of(row), joint = real(row, "joint"),
		       covariance = real(row, "covariance");
		printf("  %-48s transformers %.6f, muster %.6f\n",
		       json_string_value(json_object_get(row, "name")), joint, loss);
		assert_true(fabs(loss - real(row, "separate")) <= tolerance * loss);
		assert_true(fabs(loss - joint - covariance) <= tolerance * loss);
		alike += fabs(loss - joint) <= tolerance * loss;
	}
	assert_true(i >= 7 && alike >= 4);
}

static void the_loss_is_trained_on_where_transformers_trains_on_it(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct { const char *more; double aux_loss; } files[] = {
		{ "", 0 },
		{ ", \"router_aux_loss_coef\": 0.02", 0 },
		{ ", \"router_aux_loss_coef\": 0.02, \"output_router_logits\": false", 0 },
		{ ", \"router_aux_loss_coef\": 0.02, \"output_router_logits\": null", 0 },
		{ ", \"output_router_logits\": true", 0.001 * 2 / 32 },
		{ ", \"router_aux_loss_coef\": 0.02, \"output_router_logits\": true", 0.00125 },
		{ ", \"router_aux_loss_coef\": 0, \"output_router_logits\": true", 0 },
		{ ", \"router_aux_loss_coef\": 0.02, \"output_router_logits\": true, \"router_jitter_noise\": 0.0", 0.00125 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		struct err e = ERR_INIT;
		struct job job;
		if (read_mixtral(32, 8, 2, files[i].more, &job, &e))
			fail_msg("%s", e.text);
		assert_true(job.model.aux_loss == files[i].aux_loss);
	}
}

static void values_that_cannot_be_are_refused(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct { const char *more, *why; } files[] = {
		{ ", \"router_jitter_noise\": 0.1", "router_jitter_noise is 0.1" },
		{ ", \"rms_norm_eps\": \"1e-6\"", "rms_norm_eps is \"1e-6\", not a number" },
		{ ", \"rope_parameters\": [1]", "rope_parameters is a list, not an object" },
		{ ", \"output_router_logits\": 1", "output_router_logits is neither true nor false" },
		{ ", \"router_aux_loss_coef\": \"much\"", "router_aux_loss_coef is not a number" },
		{ ", \"router_aux_loss_coef\": -1, \"output_router_logits\": true", "aux_loss" },
		{ ", \"router_aux_loss_coef\": 1e300, \"output_router_logits\": true", "aux_loss" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		struct err e = ERR_INIT;
		struct job job;
		assert_int_equal(read_mixtral(32, 8, 2, files[i].more, &job, &e), -1);
		if (strncmp(e.text, "config.json", 11) || !strstr(e.text, files[i].why))
			fail_msg("%s", e.text);
	}
}

/* The rows include coefficients and sizes that divide nothing evenly, and the largest sizes that a
 * job accepts. */
static void export_inverts_import_to_the_bit(void **state)
{
	(void)state;
	static const double coefs[] = { 0, 0.001, 0.01, 0.02, 0.05, 0.1, 1.0 / 3, 1e-9, 3.0 };
	static const int64_t sizes[][3] = {
		{ 1, 4, 2 }, { 3, 8, 2 }, { 7, 5, 3 }, { 32, 8, 2 }, { 56, 8, 1 }
	};
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (size_t i = 0; i < sizeof coefs / sizeof *coefs; i++) {
			char more[128];
			struct err e = ERR_INIT;
			struct job job, back;
			snprintf(
				more, sizeof more,
				", \"output_router_logits\": true, \"router_aux_loss_coef\": %.17g",
				coefs[i]);
			assert_int_equal(read_mixtral(sizes[s][0], sizes[s][1], sizes[s][2], more,
						      &job, &e),
					 0);
			json_t *out = hf_config_write(&job, "float32", &e);
			char *text = json_dumps(out, 0);
			assert_true(fabs(real(out, "router_aux_loss_coef") - coefs[i]) <=
				    1e-15 * coefs[i]);
			assert_true(json_is_true(json_object_get(out, "output_router_logits")) ==
				    (coefs[i] > 0));
			assert_true(real(out, "router_jitter_noise") == 0 &&
				    json_is_real(json_object_get(out, "router_jitter_noise")));
			assert_int_equal(
				hf_config_read(text, strlen(text), "back.json", 0, &back, &e), 0);
			assert_true(back.model.aux_loss == job.model.aux_loss);
			free(text);
			json_decref(out);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loss_is_transformers_and_the_covariance),
		cmocka_unit_test(the_loss_is_trained_on_where_transformers_trains_on_it),
		cmocka_unit_test(values_that_cannot_be_are_refused),
		cmocka_unit_test(export_inverts_import_to_the_bit),
	};
	return cmocka_run_group_tests_name("Mixtral's balancing loss", tests, open_golden,
					   close_golden);
}
