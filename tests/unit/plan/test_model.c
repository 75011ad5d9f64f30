/* Shapes, the parameter catalogue, and which rank holds which box. */
#include "plan/spec/layout.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct model_shape shape_of(const char *text)
{
	struct job job;
	struct model_shape m;
	struct err e = ERR_INIT;
	if (job_parse(text, "test.ini", &job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&job, &m);
	return m;
}

#define GPT2_124M "[model]\nlayers = 12\nhidden = 768\nheads = 12\nvocab = 50257\nseq = 1024\n"
#define LLAMA_7B \
	"[model]\nfamily = llama\nlayers = 32\nhidden = 4096\nheads = 32\nvocab = 32000\nseq = " \
	"2048\n"
#define LLAMA2_70B \
	"[model]\nfamily = llama\nlayers = 80\nhidden = 8192\nheads = 64\nkv_heads = 8\nffn = " \
	"28672\nvocab = 32000\nseq = 4096\n"

#define QWEN25_05B \
	"[model]\nfamily = qwen2\nlayers = 24\nhidden = 896\nheads = 14\nkv_heads = 2\nffn = " \
	"4864\nvocab = 151936\nseq = 4096\ntie_head = yes\n"
#define QWEN3_06B \
	"[model]\nfamily = qwen3\nlayers = 28\nhidden = 1024\nheads = 16\nkv_heads = 8\nhead_dim " \
	"= " \
	"128\nffn = 3072\nvocab = 151936\nseq = 4096\ntie_head = yes\n"

static void known_models_have_their_known_sizes(void **state)
{
	(void)state;
	struct model_shape m = shape_of(GPT2_124M);
	assert_int_equal(shape_params(&m), 124439808);
	m = shape_of(LLAMA_7B);
	assert_int_equal(m.ffn, 11008);
	assert_int_equal(shape_params(&m), 6738415616);
	m = shape_of(LLAMA2_70B);
	assert_int_equal(shape_params(&m), 68976648192);
	m = shape_of(QWEN25_05B);
	assert_int_equal(shape_params(&m), 494032768);
	m = shape_of(QWEN3_06B);
	assert_int_equal(shape_params(&m), 596049920);
}

static void families_are_made_of_their_parts(void **state)
{
	(void)state;
	struct model_shape m = shape_of(GPT2_124M);
	assert_true(!m.rms && !m.rope && !m.gated && m.bias && m.tied);
	assert_int_equal(m.ffn, 3072);
	assert_int_equal(m.head_dim, 64);
	m = shape_of(LLAMA_7B);
	assert_true(m.rms && m.rope && m.gated && !m.qkv_bias && !m.bias && !m.tied);
	m = shape_of("[model]\nfamily = qwen2\n");
	assert_true(m.rms && m.qkv_bias && !m.bias && !m.qk_norm && !m.tied);
	m = shape_of("[model]\nfamily = qwen3\n");
	assert_true(m.rms && !m.qkv_bias && !m.bias && m.qk_norm && !m.tied);
	m = shape_of("[model]\nfamily = llama\ntie_head = yes\nhead_dim = 48\n");
	assert_true(m.tied);
	assert_int_equal(m.head_dim, 48);
}

/* Narayanan et al.: 72·B·s·l·h²·(1 + s/6h + V/12lh). Half of the attention's term, s/6h, is
 * masked. */
static void flops_are_those_of_the_literature(void **state)
{
	(void)state;
	struct model_shape m = shape_of(
		"[model]\nlayers = 96\nhidden = 12288\nheads = 96\nvocab = 51200\nseq = 2048\n");
	double l = 96, h = 12288, s = 2048, v = 51200;
	double expect = 72 * l * h * h * (1 + s / (12 * h) + v / (12 * l * h));
	assert_true(fabs(shape_flops_token(&m) / expect - 1) < 1e-12);
}

/* The share of one stage on one of tp ranks. */
static struct share share_of(int tp, int tp_rank, const struct stage *stage)
{
	return (struct share){
		.tp = tp, .tp_rank = tp_rank, .ep = 1, .chunks = stage, .n_chunks = 1
	};
}

static void build(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage,
		  struct catalogue *c)
{
	struct share share = share_of(tp, tp_rank, stage);
	assert_int_equal(catalogue_build(m, &share, c, NULL), 0);
}

/* --- The catalogue --- */

static const char *const shapes[] = {
	"[model]\nfamily = mixtral\nlayers = 2\nhidden = 24\nheads = 4\nkv_heads = 2\nvocab = "
	"130\nffn = 33\nseq = 8\nexperts = 5\n",
	"[model]\nlayers = 5\nhidden = 60\nheads = 6\nkv_heads = 6\nvocab = 257\nffn = 100\nseq = "
	"9\n",
	"[model]\nlayers = 4\nhidden = 64\nheads = 8\nkv_heads = 8\nvocab = 50257\nseq = "
	"16\ntie_head = no\n",
	"[model]\nfamily = llama\nlayers = 7\nhidden = 48\nheads = 15\nkv_heads = 5\nhead_dim = "
	"6\nvocab = 1003\nffn = 37\nseq = 8\n",
	"[model]\nfamily = llama\nlayers = 3\nhidden = 40\nheads = 8\nkv_heads = 4\nhead_dim = "
	"10\nvocab = 511\ntie_head = yes\n",
	"[model]\nfamily = qwen2\nlayers = 3\nhidden = 48\nheads = 8\nkv_heads = 2\nvocab = 311\n",
	"[model]\nfamily = qwen3\nlayers = 3\nhidden = 40\nheads = 8\nkv_heads = 4\nhead_dim = "
	"6\nvocab = 311\n",
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* By name: how often a first copy holds each element of each parameter. */
struct cover {
	char name[64];
	int64_t rows, columns;
	unsigned char *held; /* [rows, columns] */
};

enum { COVER_MAX = 400 };

static void cover_add(struct cover *list, int *n, const struct param *p)
{
	int i = 0;
	while (i < *n && strcmp(list[i].name, p->name))
		i++;
	if (i == *n) {
		assert_true(*n < COVER_MAX);
		list[i] = (struct cover){ .rows = p->shape[0], .columns = p->shape[1] };
		strcpy(list[i].name, p->name);
		list[i].held = calloc((size_t)(p->shape[0] * p->shape[1]), 1);
		assert_non_null(list[i].held);
		++*n;
	}
	assert_int_equal(list[i].rows, p->shape[0]);
	assert_int_equal(list[i].columns, p->shape[1]);
	if (p->copy)
		return;
	for (int64_t r = p->lo[0]; r < p->hi[0]; r++)
		for (int64_t c = p->lo[1]; c < p->hi[1]; c++)
			list[i].held[r * p->shape[1] + c]++;
}

static int64_t cover_count(struct cover *list, int n)
{
	int64_t total = 0;
	for (int i = 0; i < n; i++) {
		for (int64_t k = 0; k < list[i].rows * list[i].columns; k++)
			if (list[i].held[k] != 1)
				fail_msg("%s: element %lld is held %d times", list[i].name,
					 (long long)k, list[i].held[k]);
		total += list[i].rows * list[i].columns;
		free(list[i].held);
	}
	return total;
}

/* Adds the elements that one share holds, and checks that the sums computed without building the
 * catalogue agree. */
static int64_t add_share(const struct model_shape *m, const struct share *s, bool experts,
			 struct cover *list, int *n)
{
	struct catalogue c;
	int64_t counted = 0, sums = 0;
	assert_int_equal(catalogue_build(m, s, &c, NULL), 0);
	for (int i = 0; i < c.n; i++) {
		if (c.params[i].tied_copy || (c.params[i].expert < 0 && !experts))
			continue;
		cover_add(list, n, &c.params[i]);
		counted += c.params[i].copy ? 0 : c.params[i].count;
	}
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		if (experts || kind == UNIT_EXPERTS)
			sums += catalogue_unit_counted(m, s, kind, 0,
						       catalogue_unit_elements(m, s, kind)) *
				catalogue_unit_count(m, s, kind);
	assert_int_equal(counted, sums);
	int64_t elements = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		elements += catalogue_unit_elements(m, s, kind) * catalogue_unit_count(m, s, kind);
	assert_int_equal(elements, c.elements);
	catalogue_free(&c);
	return counted;
}

static bool tp_cuts(const struct model_shape *m, int tp)
{
	return tp <= m->kv_heads || (tp % m->kv_heads == 0 && m->heads % tp == 0);
}

static void check_cover(const struct model_shape *m, int tp, int pp, int ep)
{
	struct stage stages[16];
	struct cover list[COVER_MAX];
	int n = 0;
	int64_t counted = 0;
	assert_int_equal(layout_stages(m, pp, "", false, NULL, stages, NULL), 0);
	for (int s = 0; s < pp; s++)
		for (int t = 0; t < tp; t++)
			for (int x = 0; x < ep; x++) {
				struct share share = {
					.tp = tp,
					.tp_rank = t,
					.ep = ep,
					.ep_rank = x,
					.chunks = &stages[s],
					.n_chunks = 1,
				};
				counted += add_share(m, &share, x == 0, list, &n);
			}
	assert_int_equal(cover_count(list, n), shape_params(m));
	assert_int_equal(counted, shape_params(m));
}

static void every_parameter_is_held_exactly_once(void **state)
{
	(void)state;
	for (int k = 0; k < N_SHAPES; k++) {
		struct model_shape m = shape_of(shapes[k]);
		for (int tp = 1; tp <= m.heads; tp++)
			for (int pp = 1; tp_cuts(&m, tp) && pp <= m.layers; pp++)
				for (int ep = 1; ep <= (m.experts ? m.experts : 1); ep++)
					check_cover(&m, tp, pp, ep);
	}
}

static bool joins(const struct param *p)
{
	enum param_role r = p->role;
	return r == PARAM_K_W || r == PARAM_V_W || r == PARAM_K_B || r == PARAM_V_B;
}

static void check_buffer(const struct model_shape *m, const struct catalogue *c)
{
	int64_t at = 0;
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		assert_true(p->offset >= at && p->offset - at < 16);
		if (joins(p) || p->role == PARAM_EXPERT_UP_W || (p->role == PARAM_UP_W && m->gated))
			assert_int_equal(p->offset, at);
		else
			assert_int_equal(p->offset % 16, 0);
		assert_int_equal(p->count, (p->hi[0] - p->lo[0]) * (p->hi[1] - p->lo[1]));
		assert_true(p->count > 0);
		assert_int_equal(p->dims == 2, p->decay);
		at = p->offset + p->count;
	}
	assert_true(c->elements >= at && c->elements - at < 16);
	assert_int_equal(c->elements % 16, 0);
}

static void the_buffer_is_dense_and_aligned(void **state)
{
	(void)state;
	for (int k = 0; k < N_SHAPES; k++) {
		struct model_shape m = shape_of(shapes[k]);
		for (int tp = 1; tp <= m.kv_heads; tp++)
			for (int t = 0; t < tp; t++)
				for (int ends = 0; ends < 4; ends++) {
					struct stage s = { 1, 3, ends & 1, ends & 2 };
					struct catalogue c;
					build(&m, tp, t, &s, &c);
					check_buffer(&m, &c);
					catalogue_free(&c);
				}
	}
}

static void heads_stay_whole_and_with_their_keys(void **state)
{
	(void)state;
	struct model_shape m = shape_of(shapes[3]); /* 15 heads on 5 key/value heads of width 6 */
	struct stage s = { 0, 1, true, true };
	for (int tp = 1; tp <= 5; tp++)
		for (int t = 0; t < tp; t++) {
			struct catalogue c;
			build(&m, tp, t, &s, &c);
			const struct param *q = catalogue_find(&c, PARAM_Q_W, 0, -1),
					   *k = catalogue_find(&c, PARAM_K_W, 0, -1);
			const struct param *v = catalogue_find(&c, PARAM_V_W, 0, -1),
					   *o = catalogue_find(&c, PARAM_O_W, 0, -1);
			assert_int_equal(k->lo[0] % 6, 0);
			assert_int_equal(q->lo[0], 3 * k->lo[0]);
			assert_int_equal(q->hi[0], 3 * k->hi[0]);
			assert_int_equal(v->lo[0], k->lo[0]);
			assert_int_equal(v->hi[0], k->hi[0]);
			assert_int_equal(o->lo[1], q->lo[0]);
			assert_int_equal(o->hi[1], q->hi[0]);
			const struct param *up = catalogue_find(&c, PARAM_UP_W, 0, -1),
					   *down = catalogue_find(&c, PARAM_DOWN_W, 0, -1);
			assert_int_equal(up->lo[0], down->lo[1]);
			assert_int_equal(up->hi[0], down->hi[1]);
			catalogue_free(&c);
		}
}

/* A search counts the elements of a unit before it knows parallel.sp (plan/search/eval.h). */
static void sequence_parallelism_splits_no_parameters(void **state)
{
	(void)state;
	for (int i = 0; i < N_SHAPES; i++) {
		struct model_shape m = shape_of(shapes[i]);
		struct stage s = { 0, 1, false, true };
		for (int tp = 1; tp <= 4; tp++)
			for (int t = 0; t < tp; t++) {
				struct share with = share_of(tp, t, &s), without = with;
				with.sp = true;
				for (int unit = 0; unit < UNIT_KINDS; unit++) {
					assert_int_equal(catalogue_unit_elements(&m, &with, unit),
							 catalogue_unit_elements(&m, &without,
										 unit));
					assert_int_equal(optimizer_hidden_elements(&m, &with, unit),
							 optimizer_hidden_elements(&m, &without,
										   unit));
				}
			}
	}
}

static void a_tied_head_is_copied_to_the_last_stage_only(void **state)
{
	(void)state;
	struct model_shape m = shape_of(shapes[1]);
	struct catalogue c;
	struct stage whole = { 0, 5, true, true }, last = { 3, 5, false, true },
		     middle = { 1, 3, false, false };
	build(&m, 2, 1, &whole, &c);
	assert_false(catalogue_find(&c, PARAM_EMBED, -1, -1)->tied_copy);
	assert_null(catalogue_find(&c, PARAM_HEAD, -1, -1));
	catalogue_free(&c);
	build(&m, 2, 1, &last, &c);
	const struct param *copy = catalogue_find(&c, PARAM_EMBED, -1, -1);
	assert_true(copy->tied_copy);
	assert_string_equal(copy->name, "embed.tokens.weight");
	assert_ptr_equal(copy, &c.params[c.n - 1]);
	assert_null(catalogue_find(&c, PARAM_POSITIONS, -1, -1));
	catalogue_free(&c);
	build(&m, 2, 1, &middle, &c);
	assert_null(catalogue_find(&c, PARAM_EMBED, -1, -1));
	assert_null(catalogue_find(&c, PARAM_NORM_W, -1, -1));
	catalogue_free(&c);
}

static void names_and_starts_are_the_documented_ones(void **state)
{
	/* clang-format off */
	static const struct { const char *name; int64_t rows, columns; enum param_init init; } gpt2[] = {
		{ "embed.tokens.weight", 257, 60, INIT_NORMAL }, { "embed.positions.weight", 9, 60, INIT_NORMAL },
		{ "layers.0.norm1.weight", 60, 1, INIT_ONE }, { "layers.0.norm1.bias", 60, 1, INIT_ZERO },
		{ "layers.0.attn.q.weight", 60, 60, INIT_NORMAL }, { "layers.0.attn.k.weight", 60, 60, INIT_NORMAL },
		{ "layers.0.attn.v.weight", 60, 60, INIT_NORMAL }, { "layers.0.attn.q.bias", 60, 1, INIT_ZERO },
		{ "layers.0.attn.k.bias", 60, 1, INIT_ZERO }, { "layers.0.attn.v.bias", 60, 1, INIT_ZERO },
		{ "layers.0.attn.o.weight", 60, 60, INIT_NORMAL_SCALED }, { "layers.0.attn.o.bias", 60, 1, INIT_ZERO },
		{ "layers.0.norm2.weight", 60, 1, INIT_ONE }, { "layers.0.norm2.bias", 60, 1, INIT_ZERO },
		{ "layers.0.mlp.up.weight", 100, 60, INIT_NORMAL }, { "layers.0.mlp.up.bias", 100, 1, INIT_ZERO },
		{ "layers.0.mlp.down.weight", 60, 100, INIT_NORMAL_SCALED }, { "layers.0.mlp.down.bias", 60, 1, INIT_ZERO },
		{ "norm.weight", 60, 1, INIT_ONE }, { "norm.bias", 60, 1, INIT_ZERO },
	};
	/* clang-format on */
	(void)state;
	struct model_shape m = shape_of(shapes[1]);
	struct stage s = { 0, 1, true, true };
	struct catalogue c;
	build(&m, 1, 0, &s, &c);
	assert_int_equal(c.n, sizeof gpt2 / sizeof *gpt2);
	for (int i = 0; i < c.n; i++) {
		assert_string_equal(c.params[i].name, gpt2[i].name);
		assert_int_equal(c.params[i].shape[0], gpt2[i].rows);
		assert_int_equal(c.params[i].shape[1], gpt2[i].columns);
		assert_int_equal(c.params[i].init, gpt2[i].init);
		assert_int_equal(c.params[i].copies, 1);
	}
	catalogue_free(&c);
	m = shape_of(shapes[3]);
	build(&m, 1, 0, &s, &c);
	assert_string_equal(c.params[c.n - 1].name, "head.weight");
	assert_string_equal(catalogue_find(&c, PARAM_GATE_W, 0, -1)->name,
			    "layers.0.mlp.gate.weight");
	assert_null(catalogue_find(&c, PARAM_Q_B, 0, -1));
	assert_null(catalogue_find(&c, PARAM_NORM_B, -1, -1));
	catalogue_free(&c);
}

static void more_ranks_than_heads_are_refused(void **state)
{
	(void)state;
	struct model_shape m = shape_of(shapes[4]);
	struct stage s = { 0, 1, true, true };
	struct catalogue c;
	struct err e = ERR_INIT;
	struct share share = share_of(5, 0, &s);
	assert_int_equal(catalogue_build(&m, &share, &c, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_models_have_their_known_sizes),
		cmocka_unit_test(families_are_made_of_their_parts),
		cmocka_unit_test(flops_are_those_of_the_literature),
		cmocka_unit_test(every_parameter_is_held_exactly_once),
		cmocka_unit_test(the_buffer_is_dense_and_aligned),
		cmocka_unit_test(heads_stay_whole_and_with_their_keys),
		cmocka_unit_test(sequence_parallelism_splits_no_parameters),
		cmocka_unit_test(a_tied_head_is_copied_to_the_last_stage_only),
		cmocka_unit_test(names_and_starts_are_the_documented_ones),
		cmocka_unit_test(more_ranks_than_heads_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
