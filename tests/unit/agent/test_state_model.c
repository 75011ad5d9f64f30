/* Tests the description of the model in a checkpoint. Every model is read back from it, and an
 * invalid description is refused. */
#include "agent/engine/train/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char llama[] = "[model]\nfamily = llama\nlayers = 3\nhidden = 64\nheads = 8\nkv_heads "
			    "= 4\nhead_dim = 6\nvocab = 37\ntie_head = yes\nrope_theta = 5e5\n";

static json_t *model_of(const char *words)
{
	struct job job;
	struct err e = ERR_INIT;
	struct model_shape shape;
	if (job_parse(words, "test.ini", &job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&job, &shape);
	json_t *model = train_state_model(&shape);
	assert_non_null(model);
	return model;
}

static void every_model_comes_back(void **state)
{
	static const char *const models[] = {
		"[model]\nfamily = gpt2\nlayers = 2\nhidden = 48\nheads = 3\nnorm_eps = "
		"3e-6\ntie_head = no\n",
		llama,
		"[model]\nfamily = llama\nrope_scaling = linear\nrope_factor = 3.1\n",
		"[model]\nfamily = llama\nrope_scaling = llama3\nrope_factor = 8\nrope_low = "
		"2\nrope_high = 7\nrope_original = 64\n",
		"[model]\nfamily = mixtral\nexperts = 6\nexperts_per_token = 3\nrouter = before\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct job job;
		struct err e = ERR_INIT;
		struct model_shape shape;
		json_t *model = model_of(models[i]);
		if (train_state_model_job(model, &job, &e))
			fail_msg("%s%s", models[i], e.text);
		shape_of_job(&job, &shape);
		json_t *back = train_state_model(&shape);
		assert_true(json_equal(model, back));
		json_decref(back);
		json_decref(model);
	}
}

static void what_is_no_model_is_refused(void **state)
{
	static const struct {
		const char *patch, *why;
	} rows[] = {
		{ "{\"family\": \"rwkv\"}", "rwkv" },
		{ "{\"family\": \"llama\\nlayers = 9\"}", "family that is not a word" },
		{ "{\"layers\": 0}", "layers: \"0\" is out of range" },
		{ "{\"layers\": 200000000}", "layers: \"200000000\" is out of range" },
		{ "{\"hidden\": \"x\"}", "hidden: \"x\"" },
		{ "{\"vocab\": [4]}", "vocab that is not a word or number" },
		{ "{\"norm_eps\": -1.0}", "norm_eps: \"-1\"" },
		{ "{\"kv_heads\": 3}", "kv_heads = 3" },
		{ "{\"head_dim\": 5}", "5 wide" },
		{ "{\"tied\": \"no\"}", "a size is missing" },
		{ "{\"rope_scaling\": \"yarn\"}", "yarn" },
		{ "{\"rope_scaling\": \"linear\"}", "a size is missing" },
		{ "{\"family\": \"mixtral\"}", "a size is missing" },
		{ "{\"experts\": 8}", "a size is missing" },
		{ "{\"window\": 5}", "has window" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job;
		struct err e = ERR_INIT;
		json_t *model = model_of(llama), *patch = json_loads(rows[i].patch, 0, NULL);
		assert_non_null(patch);
		json_object_update(model, patch);
		if (!train_state_model_job(model, &job, &e) || !strstr(e.text, rows[i].why))
			fail_msg("%s: %s", rows[i].patch, e.text);
		json_decref(patch);
		json_decref(model);
	}
}

static void no_field_may_be_missing(void **state)
{
	(void)state;
	json_t *whole = model_of(llama);
	const char *name;
	json_t *v;
	json_object_foreach(whole, name, v)
	{
		struct job job;
		struct err e = ERR_INIT;
		json_t *model = json_copy(whole);
		json_object_del(model, name);
		if (!train_state_model_job(model, &job, &e))
			fail_msg("without %s it is a model", name);
		json_decref(model);
	}
	json_decref(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_comes_back),
		cmocka_unit_test(what_is_no_model_is_refused),
		cmocka_unit_test(no_field_may_be_missing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
