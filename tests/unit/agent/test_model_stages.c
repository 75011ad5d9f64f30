/*
 * Stages of any cut, also ones that hold only the embedding, only the head, or nothing, chained
 * by hand in one process: loss and gradients have the bits of the whole model.
 */
#include "agent/model/stage.h"
#include "tests/unit/agent/tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STAGES_MOST = 5, SLOT = 1, SLOTS = 2 };

static const struct tiny models[] = {
	{ "gpt2", FAMILY_GPT2, 3, 16, 4, 4, 4, 37, 29, 9, TIE_NO, 2, 2, 0.2 },
	{ "llama", FAMILY_LLAMA, 3, 16, 4, 2, 4, 22, 29, 9, TIE_NO, 2, 2, 0.2 },
};

/* Layers of each stage. */
static const struct cut {
	int n, layers[STAGES_MOST];
} cuts[] = {
	{ 1, { 3 } }, { 2, { 1, 2 } }, { 2, { 0, 3 } }, { 2, { 3, 0 } }, { 3, { 0, 3, 0 } }, { 5, { 0, 2, 0, 1, 0 } },
};

struct part {
	struct catalogue c;
	float *params, *grads;
	struct model *model;
};

struct chain {
	struct part parts[STAGES_MOST];
	int n;
	struct kern *kern;
	struct tp tp;
	double loss;
};

static void part_open(struct chain *ch, const struct model_shape *s, const struct tiny *t, struct stage stage, struct part *p)
{
	struct err e = ERR_INIT;
	assert_int_equal(catalogue_build(s, 1, 0, &stage, &p->c, &e), 0);
	p->params = kern_alloc(ch->kern, (size_t)p->c.elements * sizeof(float) + 64);
	p->grads = kern_alloc(ch->kern, (size_t)p->c.elements * sizeof(float) + 64);
	assert_true(p->params && p->grads);
	model_init(&p->c, s->init_std, s->layers, 7, p->params);
	tiny_shake(&p->c, p->params);
	struct model_options opt = { .shape = s, .catalogue = &p->c, .stage = stage, .tp = &ch->tp, .kern = ch->kern,
				     .params = p->params, .grads = p->grads, .micro = t->micro, .slots = SLOTS, .grad_scale = 0.125f };
	assert_int_equal(model_open(&opt, &p->model, &e), 0);
}

static void chain_open(const struct tiny *t, const struct cut *cut, struct chain *ch)
{
	struct job job;
	struct model_shape s;
	struct err e = ERR_INIT;
	int layer = 0;

	tiny_job(t, &job);
	model_shape(&job, &s);
	*ch = (struct chain){ .n = cut->n };
	tp_init(&ch->tp, NULL);
	assert_int_equal(kern_open("plain", 1, &ch->kern, &e), 0);
	for (int i = 0; i < cut->n; layer += cut->layers[i++])
		part_open(ch, &s, t, (struct stage){ layer, layer + cut->layers[i], i == 0, i == cut->n - 1 }, &ch->parts[i]);
}

static void chain_run(struct chain *ch, const struct tiny *t)
{
	int32_t inputs[t->micro * t->seq], targets[t->micro * t->seq];
	struct err e = ERR_INIT;
	size_t bytes = (size_t)model_boundary(ch->parts[0].model) * sizeof(float);

	tiny_batch(t, 0, t->micro, inputs, targets);
	for (int i = 0; i < ch->n; i++) {
		struct model *m = ch->parts[i].model;
		if (i > 0)
			memcpy(model_input(m, SLOT), model_output(ch->parts[i - 1].model, SLOT), bytes);
		assert_int_equal(model_forward(m, SLOT, inputs, targets, true, &ch->loss, &e), 0);
	}
	for (int i = ch->n - 1; i >= 0; i--) {
		struct model *m = ch->parts[i].model;
		if (i < ch->n - 1)
			memcpy(model_grad(m, SLOT), model_grad(ch->parts[i + 1].model, SLOT), bytes);
		assert_int_equal(model_backward(m, SLOT, inputs, NULL, &e), 0);
	}
}

static void chain_close(struct chain *ch)
{
	for (int i = 0; i < ch->n; i++) {
		model_close(ch->parts[i].model);
		catalogue_free(&ch->parts[i].c);
	}
	kern_close(ch->kern);
}

static const struct param *find_in(const struct part *p, const char *name)
{
	for (int i = 0; i < p->c.n; i++)
		if (!strcmp(p->c.params[i].name, name))
			return &p->c.params[i];
	return NULL;
}

/* How many parameters of the whole model were met with equal gradients. */
static int compare(const struct part *whole, const struct part *part)
{
	for (int i = 0; i < part->c.n; i++) {
		const struct param *p = &part->c.params[i], *w = find_in(whole, p->name);
		assert_non_null(w);
		assert_memory_equal(part->grads + p->offset, whole->grads + w->offset, (size_t)p->count * sizeof(float));
	}
	return part->c.n;
}

static void check_cut(const struct tiny *t, const struct cut *cut)
{
	struct chain whole, cut_up;
	int met = 0;

	chain_open(t, &cuts[0], &whole);
	chain_open(t, cut, &cut_up);
	chain_run(&whole, t);
	chain_run(&cut_up, t);
	assert_true(whole.loss == cut_up.loss && whole.loss > 0);
	for (int i = 0; i < cut_up.n; i++)
		met += compare(&whole.parts[0], &cut_up.parts[i]);
	assert_int_equal(met, whole.parts[0].c.n);
	chain_close(&whole);
	chain_close(&cut_up);
}

static void any_cut_computes_the_same_bits(void **state)
{
	(void)state;
	for (size_t m = 0; m < sizeof models / sizeof *models; m++)
		for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
			check_cut(&models[m], &cuts[c]);
}

struct seen {
	int64_t from[32];
	int n;
};

static int note(void *arg, int64_t from, struct err *e)
{
	struct seen *s = arg;
	(void)e;
	s->from[s->n++] = from;
	return 0;
}

/* The last stage reports its head, then its layers from the last, then everything. */
static void gradients_are_reported_from_the_buffer_s_end(void **state)
{
	(void)state;
	const struct tiny *t = &models[0];
	struct chain ch;
	struct seen seen = { .n = 0 };
	struct err e = ERR_INIT;
	int32_t inputs[t->micro * t->seq], targets[t->micro * t->seq];

	chain_open(t, &cuts[0], &ch);
	const struct catalogue *c = &ch.parts[0].c;
	tiny_batch(t, 0, t->micro, inputs, targets);
	assert_int_equal(model_forward(ch.parts[0].model, SLOT, inputs, targets, true, &ch.loss, &e), 0);
	assert_int_equal(model_backward(ch.parts[0].model, SLOT, inputs, &(struct model_watch){ note, &seen }, &e), 0);
	assert_int_equal(seen.n, 5);
	assert_int_equal(seen.from[0], catalogue_find(c, PARAM_NORM_W, -1)->offset);
	for (int layer = 0; layer < 3; layer++)
		assert_int_equal(seen.from[3 - layer], catalogue_find(c, PARAM_NORM1_W, layer)->offset);
	assert_int_equal(seen.from[4], 0);
	chain_close(&ch);
}

/* The logits in pieces of 5, 5, 5 and 3 rows: each token's loss keeps its bits, sums of gradients keep their value. */
static void a_head_in_pieces_computes_the_same(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct chain whole, pieces;
		chain_open(&models[i], &cuts[0], &whole);
		chain_open(&models[i], &cuts[0], &pieces);
		pieces.parts[0].model->rows = 5;
		chain_run(&whole, &models[i]);
		chain_run(&pieces, &models[i]);
		assert_true(whole.loss == pieces.loss);
		for (int64_t j = 0; j < whole.parts[0].c.elements; j++)
			assert_true(fabsf(whole.parts[0].grads[j] - pieces.parts[0].grads[j]) <= 1e-5f);
		chain_close(&whole);
		chain_close(&pieces);
	}
}

static void logits_are_held_in_equal_pieces(void **state)
{
	(void)state;
	assert_int_equal(model_head_rows(100, 29), 100);
	assert_int_equal(model_head_rows(1024, 50257), 256);
	assert_int_equal(model_head_rows(3, 1 << 30), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cut_computes_the_same_bits),
		cmocka_unit_test(gradients_are_reported_from_the_buffer_s_end),
		cmocka_unit_test(a_head_in_pieces_computes_the_same),
		cmocka_unit_test(logits_are_held_in_equal_pieces),
	};
	return cmocka_run_group_tests_name("stages", tests, NULL, NULL);
}
