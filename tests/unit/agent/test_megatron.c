/* Tests where muster's tensors are in those of Megatron-core (agent/engine/hf/megatron.h).
 * tests/cli/foreign.bats imports checkpoints that Megatron wrote. */
#include "agent/engine/hf/megatron.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct model_shape shape_of(const char *family)
{
	struct job job;
	struct model_shape m;
	struct err e = ERR_INIT;
	char text[256];
	snprintf(text, sizeof text,
		 "[model]\nfamily = %s\nlayers = 2\nhidden = 16\nheads = 4\n%svocab = 29\nffn = "
		 "20\nseq = 12\n",
		 family, strcmp(family, "gpt2") ? "kv_heads = 2\n" : "");
	if (job_parse(text, "test.ini", &job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&job, &m);
	return m;
}

static struct dcp_tensor *find_none(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void every_tensor_of_every_family_has_a_row(void **state)
{
	(void)state;
	for (int f = 0; f < FAMILIES; f++) {
		struct model_shape m = shape_of(shape_families[f].word);
		struct hf_names names;
		struct err e = ERR_INIT;
		struct hf_megatron_place place;
		assert_int_equal(hf_names_build(&m, &names, &e), 0);
		for (int64_t i = 0; i < names.n; i++)
			for (int j = 0; j < names.tensors[i].n; j++) {
				const struct hf_part *part = &names.tensors[i].parts[j];
				assert_int_equal(hf_megatron_locate(&m, &names.tensors[i], part,
								    find_none, NULL, "folder",
								    &place, &e),
						 -1);
				if (e.code != ERR_CORRUPT ||
				    strncmp(e.text, "folder: has no tensor ", 22))
					fail_msg("%s of %s: %s", part->name, shape_families[f].word,
						 e.text);
			}
		hf_names_free(&names);
	}
}

/* One tensor, under one name. */
struct only {
	const char *name;
	struct dcp_tensor tensor;
};

static struct dcp_tensor *find_only(void *arg, const char *name)
{
	struct only *only = arg;
	return strcmp(name, only->name) ? NULL : &only->tensor;
}

/* A part of a tensor of muster, where it is expected in Megatron's, or why it is not there. */
struct location {
	const char *family, *ours, *theirs;
	int dims;
	int64_t shape[4];
	const char *why; /* NULL: it is there */
	int lead;
	int64_t at[2], first, rows, groups, step, padding;
};

static int locate(const struct location *l, struct hf_megatron_place *place, struct err *e)
{
	struct model_shape m = shape_of(l->family);
	struct only only = { .name = l->theirs, .tensor = { .dims = l->dims } };
	struct hf_names names;
	int rc = 1;
	memcpy(only.tensor.shape, l->shape, sizeof l->shape);
	snprintf(only.tensor.name, sizeof only.tensor.name, "%s", l->theirs);
	assert_int_equal(hf_names_build(&m, &names, e), 0);
	for (int64_t i = 0; i < names.n; i++)
		for (int j = 0; j < names.tensors[i].n; j++)
			if (!strcmp(names.tensors[i].parts[j].name, l->ours))
				rc = hf_megatron_locate(&m, &names.tensors[i],
							&names.tensors[i].parts[j], find_only,
							&only, "folder", place, e);
	hf_names_free(&names);
	assert_true(rc <= 0);
	return rc;
}

static void rows_are_found_in_stacks_and_groups(void **state)
{
	/* clang-format off */
	static const struct location locations[] = {
		/* 4 heads of 4 numbers, 2 kv heads: groups of [8 q, 4 k, 4 v] */
		{ "llama", "layers.1.attn.q.weight", "decoder.layers.self_attention.linear_qkv.weight", 3, { 2, 32, 16 }, NULL, 1, { 1 }, 0, 8, 2, 16, 0 },
		{ "llama", "layers.1.attn.k.weight", "decoder.layers.self_attention.linear_qkv.weight", 3, { 2, 32, 16 }, NULL, 1, { 1 }, 8, 4, 2, 16, 0 },
		{ "llama", "layers.0.attn.v.weight", "decoder.layers.self_attention.linear_qkv.weight", 3, { 2, 32, 16 }, NULL, 1, { 0 }, 12, 4, 2, 16, 0 },
		{ "qwen2", "layers.1.attn.v.bias", "decoder.layers.self_attention.linear_qkv.bias", 2, { 2, 32 }, NULL, 1, { 1 }, 12, 4, 2, 16, 0 },
		{ "llama", "layers.1.attn.q.weight", "decoder.layers.1.self_attention.linear_qkv.weight", 2, { 32, 16 }, NULL, 0, { 0 }, 0, 8, 2, 16, 0 },
		{ "llama", "layers.1.mlp.gate.weight", "decoder.layers.mlp.linear_fc1.weight", 3, { 2, 40, 16 }, NULL, 1, { 1 }, 0, 20, 1, 0, 0 },
		{ "llama", "layers.1.mlp.up.weight", "decoder.layers.mlp.linear_fc1.weight", 3, { 2, 40, 16 }, NULL, 1, { 1 }, 20, 20, 1, 0, 0 },
		{ "llama", "layers.1.mlp.up.weight", "decoder.layers.1.mlp.linear_fc1.weight_v", 2, { 20, 16 }, NULL, 0, { 0 }, 0, 20, 1, 0, 0 },
		{ "gpt2", "layers.1.mlp.up.weight", "decoder.layers.mlp.linear_fc1.weight", 3, { 2, 20, 16 }, NULL, 1, { 1 }, 0, 20, 1, 0, 0 },
		{ "llama", "layers.1.norm2.weight", "decoder.layers.pre_mlp_layernorm.weight", 2, { 2, 16 }, NULL, 1, { 1 }, 0, 16, 1, 0, 0 },
		{ "llama", "embed.tokens.weight", "embedding.word_embeddings.weight", 2, { 32, 16 }, NULL, 0, { 0 }, 0, 29, 1, 0, 3 },
		{ "mixtral", "layers.1.moe.experts.2.up.weight", "decoder.layers.mlp.experts.experts.linear_fc1.weight", 4, { 2, 8, 40, 16 }, NULL,
		  2, { 1, 2 }, 20, 20, 1, 0, 0 },
		{ "mixtral", "layers.1.moe.experts.2.up.weight", "decoder.layers.1.mlp.experts.experts.linear_fc1.weight", 3, { 8, 40, 16 }, NULL,
		  1, { 2 }, 20, 20, 1, 0, 0 },
		{ "mixtral", "layers.1.moe.experts.2.down.weight", "decoder.layers.mlp.experts.experts.2.linear_fc2.weight", 3, { 2, 16, 20 }, NULL,
		  1, { 1 }, 0, 16, 1, 0, 0 },
		/* shapes that are not the model's */
		{ "llama", "embed.tokens.weight", "embedding.word_embeddings.weight", 2, { 28, 16 }, "its shape is not [29, 16]", 0, { 0 }, 0, 0, 0, 0, 0 },
		{ "llama", "norm.weight", "decoder.final_layernorm.weight", 1, { 17 }, "its shape is not [16]", 0, { 0 }, 0, 0, 0, 0, 0 },
		{ "llama", "layers.1.attn.q.weight", "decoder.layers.self_attention.linear_qkv.weight", 3, { 3, 32, 16 }, "its shape is not [2, 32, 16]",
		  0, { 0 }, 0, 0, 0, 0, 0 },
		{ "llama", "layers.1.attn.q.weight", "decoder.layers.self_attention.linear_qkv.weight", 2, { 32, 16 }, "its shape is not [2, 32, 16]",
		  0, { 0 }, 0, 0, 0, 0, 0 },
		{ "mixtral", "layers.1.moe.experts.2.up.weight", "decoder.layers.mlp.experts.experts.linear_fc1.weight", 4, { 2, 9, 40, 16 },
		  "its shape is not [2, 8, 40, 16]", 0, { 0 }, 0, 0, 0, 0, 0 },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof locations / sizeof *locations; i++) {
		const struct location *l = &locations[i];
		struct hf_megatron_place p = { 0 };
		struct err e = ERR_INIT;
		int rc = locate(l, &p, &e);
		if ((l->why != NULL) != (rc != 0) || (l->why && !strstr(e.text, l->why)))
			fail_msg("case %zu: %s", i, e.text);
		if (l->why)
			continue;
		if (p.lead != l->lead || p.at[0] != l->at[0] || p.at[1] != l->at[1] ||
		    p.first != l->first || p.rows != l->rows || p.groups != l->groups ||
		    p.step != l->step || p.padding != l->padding)
			fail_msg("case %zu: lead %d, rows %d from %d", i, p.lead, (int)p.rows,
				 (int)p.first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_tensor_of_every_family_has_a_row),
		cmocka_unit_test(rows_are_found_in_stacks_and_groups),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
