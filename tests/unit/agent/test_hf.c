/*
 * Tests the numbers, names and configurations of Hugging Face folders. tests/cli/hf.bats tests
 * whole folders, and test_model_golden.c tests models that transformers made.
 */
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/names.h"
#include "agent/engine/hf/numbers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- numbers --- */

static void every_half_comes_back_to_the_bit(void **state)
{
	(void)state;
	static const char *const dtypes[] = { "BF16", "F16" };
	for (int t = 0; t < 2; t++)
		for (uint32_t b = 0; b < 65536; b++) {
			uint16_t h = (uint16_t)b, back;
			float x;
			hf_numbers_widen(hf_numbers_dtype(dtypes[t]), &h, 1, &x);
			assert_true(hf_numbers_narrow(hf_numbers_dtype(dtypes[t]), &x, 1, &back));
			if (h != back)
				fail_msg("%s %04x became %g and then %04x", dtypes[t], h, (double)x,
					 back);
		}
}

/* A number between two neighbours is rounded to the nearer one, and from the middle to the even
 * one. The expected value is computed in double. */
static void halves_are_rounded_to_the_nearest(void **state)
{
	(void)state;
	static const struct {
		const char *dtype;
		uint16_t infinity;
	} types[] = { { "BF16", 0x7f80 }, { "F16", 0x7c00 } };
	for (int t = 0; t < 2; t++) {
		const struct hf_type *type = hf_numbers_dtype(types[t].dtype);
		for (uint16_t h = 0; h + 1 < types[t].infinity; h++) {
			uint16_t pair[2] = { h, (uint16_t)(h + 1) }, got;
			float x[2];
			hf_numbers_widen(type, pair, 2, x);
			float middle = (float)(((double)x[0] + (double)x[1]) / 2);
			hf_numbers_narrow(type, &middle, 1, &got);
			assert_int_equal(got, h & 1 ? h + 1 : h);
			float above = nextafterf(middle, INFINITY),
			      below = nextafterf(middle, -INFINITY);
			hf_numbers_narrow(type, &above, 1, &got);
			assert_int_equal(got, h + 1);
			below = -below;
			hf_numbers_narrow(type, &below, 1, &got);
			assert_int_equal(got, 0x8000 | h);
		}
	}
}

static void what_a_type_cannot_hold_is_said(void **state)
{
	(void)state;
	float fine[] = { 65519, -65519, INFINITY, NAN }, beyond[] = { 1, 65520 }, huge = 3.4e38f;
	uint16_t out[4];
	assert_true(hf_numbers_narrow(hf_numbers_type("fp16"), fine, 4, out));
	assert_false(hf_numbers_narrow(hf_numbers_type("fp16"), beyond, 2, out));
	assert_true(hf_numbers_narrow(hf_numbers_type("bf16"), beyond, 2, out));
	assert_false(hf_numbers_narrow(hf_numbers_type("bf16"), &huge, 1, out));
	assert_true(hf_numbers_narrow(hf_numbers_type("fp16"), fine, 4, fine));
	assert_null(hf_numbers_dtype("F64"));
}

/* --- names --- */

static const struct hf_tensor *tensor(const struct hf_names *n, const char *name)
{
	for (int64_t i = 0; i < n->n; i++)
		if (!strcmp(n->tensors[i].name, name))
			return &n->tensors[i];
	fail_msg("no tensor %s", name);
	return NULL;
}

static struct hf_names names_of(const char *words)
{
	struct job job;
	struct model_shape m;
	struct hf_names names;
	struct err e = ERR_INIT;
	char text[256];
	snprintf(text, sizeof text,
		 "[model]\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 29\nffn = 20\nseq = 12\n%s",
		 words);
	if (job_parse(text, "test.ini", &job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&job, &m);
	if (hf_names_build(&m, &names, &e))
		fail_msg("%s", e.text);
	return names;
}

static void gpt2_packs_q_k_v_and_transposes_its_matrices(void **state)
{
	(void)state;
	struct hf_names n = names_of("family = gpt2\n");
	const struct hf_tensor *t = tensor(&n, "transformer.h.1.attn.c_attn.weight");
	assert_int_equal(n.n, 2 * 12 + 4);
	assert_true(t->transposed && t->dims == 2 && t->n == 3);
	assert_true(t->shape[0] == 48 && t->shape[1] == 16);
	assert_string_equal(t->parts[0].name, "layers.1.attn.q.weight");
	assert_string_equal(t->parts[2].name, "layers.1.attn.v.weight");
	t = tensor(&n, "transformer.h.0.attn.c_attn.bias");
	assert_true(!t->transposed && t->dims == 1 && t->n == 3 && t->shape[0] == 48);
	assert_true(tensor(&n, "transformer.h.0.mlp.c_fc.weight")->transposed);
	assert_false(tensor(&n, "transformer.wte.weight")->transposed);
	assert_string_equal(hf_names_bare(&n, "transformer.wpe.weight"), "wpe.weight");
	assert_null(hf_names_bare(&n, "lm_head.weight"));
	assert_true(hf_names_may_skip(&n, "transformer.h.1.attn.masked_bias") &&
		    hf_names_may_skip(&n, "h.0.attn.bias"));
	assert_false(hf_names_may_skip(&n, "transformer.h.1.attn.c_proj.bias") ||
		     hf_names_may_skip(&n, "transformer.h.x.attn.bias"));
	hf_names_free(&n);
}

static void llama_and_mixtral_share_their_names(void **state)
{
	(void)state;
	struct hf_names n = names_of("family = llama\nkv_heads = 2\n");
	assert_int_equal(n.n, 2 * 9 + 3);
	assert_int_equal(n.n_parts, n.n);
	assert_int_equal(tensor(&n, "model.layers.1.self_attn.k_proj.weight")->shape[0], 8);
	assert_string_equal(tensor(&n, "model.layers.0.mlp.gate_proj.weight")->parts[0].name,
			    "layers.0.mlp.gate.weight");
	assert_false(tensor(&n, "model.layers.0.mlp.up_proj.weight")->transposed);
	hf_names_free(&n);
	n = names_of("family = mixtral\nexperts = 12\n");
	assert_int_equal(n.n, 2 * (6 + 1 + 36) + 3);
	assert_string_equal(
		tensor(&n, "model.layers.1.block_sparse_moe.experts.11.w3.weight")->parts[0].name,
		"layers.1.moe.experts.11.up.weight");
	assert_string_equal(
		tensor(&n, "model.layers.1.block_sparse_moe.experts.11.w2.weight")->parts[0].name,
		"layers.1.moe.experts.11.down.weight");
	assert_string_equal(
		tensor(&n, "model.layers.0.block_sparse_moe.gate.weight")->parts[0].name,
		"layers.0.moe.router.weight");
	hf_names_free(&n);
}

static void qwen_adds_biases_or_norms_to_the_names_of_llama(void **state)
{
	(void)state;
	struct hf_names n = names_of("family = qwen2\nkv_heads = 2\n");
	assert_int_equal(n.n, 2 * 12 + 3);
	assert_int_equal(tensor(&n, "model.layers.1.self_attn.k_proj.bias")->shape[0], 8);
	assert_string_equal(tensor(&n, "model.layers.1.self_attn.v_proj.bias")->parts[0].name,
			    "layers.1.attn.v.bias");
	hf_names_free(&n);
	n = names_of("family = qwen3\nkv_heads = 2\nhead_dim = 6\n");
	assert_int_equal(n.n, 2 * 11 + 3);
	assert_int_equal(tensor(&n, "model.layers.0.self_attn.q_proj.weight")->shape[0], 24);
	assert_int_equal(tensor(&n, "model.layers.0.self_attn.o_proj.weight")->shape[1], 24);
	assert_int_equal(tensor(&n, "model.layers.1.self_attn.q_norm.weight")->shape[0], 6);
	assert_string_equal(tensor(&n, "model.layers.1.self_attn.k_norm.weight")->parts[0].name,
			    "layers.1.attn.k_norm.weight");
	hf_names_free(&n);
}

/* --- configurations --------------------------------------------------------------- */

#define ROTARY \
	"\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 8, " \
	"\"intermediate_size\": 160, " \
	"\"max_position_embeddings\": 2048, \"vocab_size\": 1000"
#define GPT2 \
	"\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 3, \"n_head\": 8, " \
	"\"n_positions\": 128, \"vocab_size\": 1000"

/* `what` describes the file. `lines` must be in the [model] section that it gives. */
/* clang-format off */
static const struct { const char *what, *file, *lines[6]; } understood[] = {
	{ "GPT-2's defaults", GPT2, { "ffn = 256", "norm_eps = 1e-05", "dropout = 0.1", "attn_dropout = 0.1", "tie_head = yes", "seq = 128" } },
	{ "a null is a default", GPT2 ", \"n_inner\": null, \"layer_norm_epsilon\": 0.001", { "ffn = 256", "norm_eps = 0.001" } },
	{ "LLaMA's defaults", "\"model_type\": \"llama\", " ROTARY, { "kv_heads = 8", "head_dim = 8", "norm_eps = 1e-06", "rope_theta = 10000", "tie_head = no" } },
	{ "LLaMA's own words", "\"model_type\": \"llama\", \"num_key_value_heads\": 2, \"head_dim\": 16, \"rope_theta\": 500000, \"tie_word_embeddings\": true, " ROTARY,
	  { "kv_heads = 2", "head_dim = 16", "rope_theta = 500000", "tie_head = yes" } },
	{ "rope_scaling by its old key", "\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}, " ROTARY,
	  { "rope_scaling = linear", "rope_factor = 2.5" } },
	{ "newer rope_parameters", "\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 123.0, \"factor\": 8, "
	  "\"low_freq_factor\": 2, \"high_freq_factor\": 3, \"original_max_position_embeddings\": 512}, " ROTARY,
	  { "rope_theta = 123", "rope_scaling = llama3", "rope_factor = 8", "rope_low = 2", "rope_high = 3", "rope_original = 512" } },
	{ "Qwen2's defaults", "\"model_type\": \"qwen2\", \"use_sliding_window\": false, \"sliding_window\": 4096, \"num_key_value_heads\": 4, " ROTARY,
	  { "family = qwen2", "kv_heads = 4", "head_dim = 8", "norm_eps = 1e-06", "rope_theta = 10000", "tie_head = no" } },
	{ "Qwen3's defaults", "\"model_type\": \"qwen3\", \"num_key_value_heads\": 4, " ROTARY,
	  { "family = qwen3", "kv_heads = 4", "head_dim = 128", "norm_eps = 1e-06", "rope_theta = 10000", "tie_head = no" } },
	{ "Mixtral's defaults", "\"model_type\": \"mixtral\", " ROTARY, { "kv_heads = 8", "experts = 8", "experts_per_token = 2", "aux_loss = 0", "rope_theta = 1000000", "norm_eps = 1e-05" } },
};
/* clang-format on */

static int read_text(const char *members, int64_t seq, struct job *job, struct err *e)
{
	struct buf text = BUF_INIT;
	buf_printf(&text, "{%s}", members);
	int rc = hf_config_read(buf_str(&text), text.len, "config.json", seq, job, e);
	buf_fini(&text);
	return rc;
}

static bool has_line(const char *text, const char *line)
{
	char whole[96];
	snprintf(whole, sizeof whole, "\n%s\n", line);
	return strstr(text, whole) != NULL;
}

/* The file that is written from the result must give the same result. */
static void configurations_are_understood_and_written(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof understood / sizeof *understood; i++) {
		struct job job;
		struct err e = ERR_INIT;
		struct buf once = BUF_INIT, twice = BUF_INIT;
		if (read_text(understood[i].file, 0, &job, &e))
			fail_msg("%s: %s", understood[i].what, e.text);
		hf_config_section(&job, &once);
		for (int j = 0; j < 6 && understood[i].lines[j]; j++)
			if (!has_line(buf_str(&once), understood[i].lines[j]))
				fail_msg("%s: no %s in\n%s", understood[i].what,
					 understood[i].lines[j], buf_str(&once));
		json_t *config = hf_config_write(&job, "bfloat16", &e);
		assert_non_null(config);
		assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")),
				    "bfloat16");
		char *text = json_dumps(config, 0);
		assert_int_equal(hf_config_read(text, strlen(text), "back.json", 0, &job, &e), 0);
		hf_config_section(&job, &twice);
		assert_string_equal(buf_str(&once), buf_str(&twice));
		free(text);
		json_decref(config);
		buf_fini(&once);
		buf_fini(&twice);
	}
}

static void a_context_of_one_s_own_is_for_rotary_models(void **state)
{
	(void)state;
	struct job job;
	struct err e = ERR_INIT;
	assert_int_equal(read_text("\"model_type\": \"llama\", " ROTARY, 64, &job, &e), 0);
	assert_int_equal(job.model.seq, 64);
	assert_int_equal(read_text(GPT2, 64, &job, &e), -1);
	assert_non_null(strstr(e.text, "n_positions is 128"));
}

static void what_transformers_has_no_model_for_is_not_written(void **state)
{
	(void)state;
	static const struct {
		const char *words, *why;
	} jobs[] = {
		{ "[model]\nfamily = gpt2\nhead_dim = 16\nhidden = 128\n", "head_dim = 16" },
		{ "[model]\nfamily = gpt2\nkv_heads = 2\n", "kv_heads = 2 of 4 heads" },
		{ "[model]\nfamily = mixtral\nrouter = before\n", "model.router = before" },
	};
	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
		struct job job;
		struct err e = ERR_INIT;
		assert_int_equal(job_parse(jobs[i].words, "test.ini", &job, &e), 0);
		assert_null(hf_config_write(&job, "float32", &e));
		assert_int_equal(e.code, ERR_UNSUPPORTED);
		if (!strstr(e.text, jobs[i].why))
			fail_msg("%s", e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_half_comes_back_to_the_bit),
		cmocka_unit_test(halves_are_rounded_to_the_nearest),
		cmocka_unit_test(what_a_type_cannot_hold_is_said),
		cmocka_unit_test(gpt2_packs_q_k_v_and_transposes_its_matrices),
		cmocka_unit_test(llama_and_mixtral_share_their_names),
		cmocka_unit_test(qwen_adds_biases_or_norms_to_the_names_of_llama),
		cmocka_unit_test(configurations_are_understood_and_written),
		cmocka_unit_test(a_context_of_one_s_own_is_for_rotary_models),
		cmocka_unit_test(what_transformers_has_no_model_for_is_not_written),
	};
	return cmocka_run_group_tests_name("Hugging Face folders", tests, NULL, NULL);
}
