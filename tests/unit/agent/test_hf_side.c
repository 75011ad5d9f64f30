/* Tests the files that accompany the weights of a Hugging Face folder, and folders that cannot be
 * read: what muster takes from them, and which errors it reports. */
#include "agent/engine/hf/card.h"
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Returns a carry of one file or two files. */
static struct attached of(const char *generation, const char *config)
{
	struct attached c = { 0 };
	const char *const texts[] = { generation, config }, *const names[] = {
		"generation_config.json", "config.json"
	};
	for (int i = 0; i < 2; i++)
		if (texts[i]) {
			struct attached_file *f = &c.files[c.n++];
			strcpy(f->name, names[i]);
			f->data = strdup(texts[i]);
			f->size = strlen(texts[i]);
		}
	return c;
}

static void the_ends_of_a_text_are_those_of_generation_before_those_of_the_model(void **state)
{
	/* clang-format off */
	static const struct { const char *generation, *config; int n; int32_t ends[4]; } cases[] = {
		{ "{\"eos_token_id\": 7}", "{\"eos_token_id\": 3}", 1, { 7 } },
		{ "{\"eos_token_id\": [7, 0, 99]}", "{\"eos_token_id\": 3}", 3, { 7, 0, 99 } },
		{ "{}", "{\"eos_token_id\": 3}", 1, { 3 } },
		{ NULL, "{\"eos_token_id\": 3}", 1, { 3 } },
		{ "{\"eos_token_id\": null}", "{\"eos_token_id\": [4, 5]}", 2, { 4, 5 } },
		{ NULL, "{\"eos_token_id\": 100}", 0, { 0 } },           /* not in the vocabulary */
		{ NULL, "{\"eos_token_id\": -1}", 0, { 0 } },
		{ NULL, "{\"eos_token_id\": [100, 5, \"x\", 1.5]}", 1, { 5 } },
		{ NULL, "{\"eos_token_id\": 18446744073709551617}", 0, { 0 } },
		{ "[]", "nothing", 0, { 0 } },
		{ NULL, NULL, 0, { 0 } },
		{ NULL, "{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}", HF_SIDE_ENDS, { 0, 1, 2, 3 } },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct attached c = of(cases[i].generation, cases[i].config);
		int32_t ends[HF_SIDE_ENDS];
		int n = hf_side_ends(&c, 100, ends);
		if (n != cases[i].n ||
		    memcmp(ends, cases[i].ends, (size_t)(n < 4 ? n : 4) * sizeof *ends))
			fail_msg("case %zu: %d ends, the first %d", i, n, (int)ends[0]);
		ckpt_attached_fini(&c);
	}
}

/* The keys that muster wrote remain. Of the original, only the keys of the table are kept. */
static void of_the_original_configuration_few_keys_are_kept(void **state)
{
	struct err e = ERR_INIT;
	struct attached c = of(NULL,
			       "{\"bos_token_id\": 1, \"eos_token_id\": [2, 3], \"pad_token_id\": "
			       "null, \"unk_token_id\": \"x\", \"use_cache\": true, "
			       "\"vocab_size\": 9, \"auto_map\": {\"AutoModel\": \"code.Model\"}, "
			       "\"architectures\": [\"Other\"], \"hidden_size\": 4}");
	json_t *config = json_pack("{s:i, s:[s]}", "vocab_size", 8, "architectures",
				   "LlamaForCausalLM");
	(void)state;
	assert_int_equal(hf_side_add_keys(&c, config, &e), 0);
	char *text = json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(text, "{\"architectures\":[\"LlamaForCausalLM\"],\"bos_token_id\":1,"
				  "\"eos_token_id\":[2,3],\"pad_token_id\":null,\"use_cache\":true,"
				  "\"vocab_size\":8}");
	free(text);
	json_decref(config);
	ckpt_attached_fini(&c);
}

static void code_and_weights_are_never_exported_as_they_came(void **state)
{
	static const char *const never[] = {
		"config.json",   "model.safetensors",  "README.md", "modeling_x.py",
		"MANIFEST.json", "tokenizer.json.bak", ""
	};
	(void)state;
	for (size_t i = 0; i < sizeof never / sizeof *never; i++)
		if (hf_side_exported(never[i]))
			fail_msg("%s", never[i]);
	assert_true(hf_side_exported("tokenizer.json") && hf_side_exported("chat_template.jinja") &&
		    hf_side_exported("LICENSE"));
}

static void configurations_of_other_models_are_named(void **state)
{
	/* clang-format off */
	static const struct { const char *text, *says; } cases[] = {
		{ "{\"architectures\": [\"GPT2ForSequenceClassification\"]}", "c.json: architectures has GPT2ForSequenceClassification: it is a sequence classifier" },
		{ "{\"architectures\": [\"LlamaForTokenClassification\"]}", "a token classifier" },
		{ "{\"architectures\": [\"LlamaForQuestionAnswering\"]}", "question answering" },
		{ "{\"quantization_config\": {\"quant_method\": \"awq\"}}", "c.json: quantization_config: its weights are quantized (awq)" },
		{ "{\"quantization_config\": {\"quant_method\": \"\\u001b[2J\"}}", "(it does not say how)" },
		{ "{\"quantization_config\": 4}", "its weights are quantized" },
		{ "{\"quantization_config\": null, \"architectures\": [\"LlamaForCausalLM\"]}", NULL },
		{ "{\"architectures\": [\"LlamaModel\"]}", NULL },
		{ "{\"architectures\": \"ForSequenceClassification\"}", NULL },
		{ "[]", NULL },
		{ "no JSON", NULL },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		int rc = hf_unsupported_check_config(cases[i].text, strlen(cases[i].text), "c.json",
						     &e);
		if (cases[i].says
			    ? !rc || e.code != ERR_UNSUPPORTED || !strstr(e.text, cases[i].says)
			    : rc)
			fail_msg("%s: %d %s", cases[i].text, rc, e.text);
	}
	assert_non_null(strstr(hf_unsupported_tensor("score.weight"), "sequence classifier"));
	assert_non_null(
		strstr(hf_unsupported_tensor("_orig_mod.model.norm.weight"), "torch.compile"));
	assert_null(hf_unsupported_tensor("model.norm.weight"));
	assert_null(hf_unsupported_tensor("scores"));
}

/* The card's header is YAML of plain words. A name that is read back equals the name written. */
static void a_card_says_what_the_checkpoint_knows(void **state)
{
	struct err e = ERR_INIT;
	struct job job;
	struct manifest m = { .state = { .step = 400,
					 .total_steps = 1000,
					 .samples = 3200,
					 .optimizer = "adamw" },
			      .from = "an-org/a.model" };
	struct buf text = BUF_INIT;
	(void)state;
	assert_int_equal(job_parse("[model]\nfamily = llama\nseq = 128\n", "test.ini", &job, &e),
			 0);
	assert_int_equal(ckpt_number_set(&m.state, "loss", 2.71828, &e), 0);
	hf_card_write(&m, &job, 8500, hf_numbers_type("bf16"), &text);
	const char *at = buf_str(&text);
	assert_memory_equal(
		at,
		"---\nlibrary_name: transformers\npipeline_tag: text-generation\nbase_model: "
		"an-org/a.model\ntags:\n- llama\n- muster\n---\n",
		108);
	assert_non_null(strstr(at, "| steps | 400 of 1000 |\n"));
	assert_non_null(strstr(at, "in 3200 samples of 128 |\n"));
	assert_non_null(strstr(at, "| training loss of the last step | 2.7183 |\n"));
	assert_non_null(strstr(at, "| dtype | bfloat16 |\n"));
	assert_non_null(strstr(at, "beginning with the weights of an-org/a.model."));
	buf_clear(&text);
	m.state = (struct ckpt_state){ 0 };
	m.from[0] = '\0';
	hf_card_write(&m, &job, 8500, hf_numbers_type("fp32"), &text);
	assert_null(strstr(buf_str(&text), "base_model"));
	assert_null(strstr(buf_str(&text), "loss"));
	assert_non_null(strstr(buf_str(&text), "not trained in between"));
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_ends_of_a_text_are_those_of_generation_before_those_of_the_model),
		cmocka_unit_test(of_the_original_configuration_few_keys_are_kept),
		cmocka_unit_test(code_and_weights_are_never_exported_as_they_came),
		cmocka_unit_test(configurations_of_other_models_are_named),
		cmocka_unit_test(a_card_says_what_the_checkpoint_knows),
	};
	return cmocka_run_group_tests_name("beside the weights", tests, NULL, NULL);
}
