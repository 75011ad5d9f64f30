/*
 * Every op of every backend against plain64, the specification on doubles.
 *
 * A struct op_test declares an op's arguments and calls it; the rest is the
 * same for all: "sets" outputs are NaN before, "adds" outputs hold known
 * values, inputs must stay as they were, nothing may be written behind an
 * array, the error is |out - ref| / |ref| <= 1e-5 (more where the result is
 * stored in 2 bytes), two runs give the same bits, and so do 1, 2 and 3
 * threads where the op promises it. The reference reads what the backend reads, rounded to its storage.
 */
#include "base/philox.h"
#include "tests/conform/op_test.h"
#include "tests/conform/storage.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAD = 16 };
static const unsigned char canary = 0x7b;

/* One call's arrays, of doubles for the reference or as a backend stores them, with a canary behind each. */
struct call {
	struct arg args[ARGS];
	void *p[ARGS];
	const struct storage *storage;
};

/* Of the numbers in argument i. */
static const struct storage *arg_storage(const struct call *c, int i)
{
	if (c->args[i].width == DOUBLE)
		return &storage_fp64;
	return c->storage != &storage_fp64 && c->args[i].width != STORED ? &storage_fp32 : c->storage;
}

/* Of sums that are made in float64 of what was computed in fp32. */
static const double double_tolerance = 1e-6;

static double arg_tolerance(const struct call *c, int i)
{
	double stored = c->storage->tolerance;
	switch (c->args[i].width) {
	case STORED:
		return stored;
	case SINGLE:
		return storage_fp32.tolerance;
	case SINGLE_OF_STORED:
		return 4 * stored;
	default:
		return double_tolerance;
	}
}

static bool arg_whole(const struct arg *a)
{
	return a->kind == TOKENS || a->kind == ROWS || a->kind == CHOICES || a->kind == PLACES;
}

static size_t arg_bytes(const struct call *c, int i)
{
	const struct arg *a = &c->args[i];
	size_t element = a->kind == ROWS || a->kind == PLACES ? sizeof(int64_t) : arg_whole(a) ? sizeof(int32_t) : arg_storage(c, i)->width;
	return (size_t)a->count * element;
}

static void call_init(struct call *c, const struct op_test *t, const struct dims *d, const struct storage *storage)
{
	memset(c, 0, sizeof *c);
	c->storage = storage;
	t->args(d, c->args);
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		size_t bytes = arg_bytes(c, i);
		c->p[i] = aligned_alloc(64, (bytes + PAD + 63) / 64 * 64);
		assert_non_null(c->p[i]);
		memset((char *)c->p[i] + bytes, canary, PAD);
	}
}

static void call_fini(struct call *c)
{
	for (int i = 0; i < ARGS; i++)
		free(c->p[i]);
}

/* Normal numbers, drawn by a hundred since they come by four. */
static void random_numbers(double *x, const struct arg *a, struct philox_key key)
{
	float normal[100];
	for (int64_t j = 0; j < a->count; j++) {
		if (j % 100 == 0)
			philox_normal(key, (uint64_t)j, 100, normal);
		x[j] = (double)(normal[j % 100] * (float)a->scale);
	}
}

static uint32_t random_below(const struct arg *a, struct philox_key key, int64_t j)
{
	uint32_t bits[4];
	philox4(key, (uint64_t)j, bits);
	return bits[0] % (uint32_t)a->scale;
}

static void call_random(struct call *c, uint64_t seed)
{
	for (int i = 0; i < ARGS; i++) {
		const struct arg *a = &c->args[i];
		struct philox_key key = philox_key(seed, PHILOX_TEST, (uint64_t)i);
		if (a->kind != NONE && !arg_whole(a))
			random_numbers(c->p[i], a, key);
		for (int64_t j = 0; arg_whole(a) && j < a->count; j++)
			if (a->kind == ROWS || a->kind == PLACES)
				((int64_t *)c->p[i])[j] = a->kind == ROWS ? (int64_t)random_below(a, key, j) : -1;
			else
				((int32_t *)c->p[i])[j] = a->kind == TOKENS ? (int32_t)random_below(a, key, j) : -1;
	}
}

/* To what the arrays of `like` can hold. */
static void call_round(struct call *c, const struct call *like)
{
	for (int i = 0; i < ARGS; i++)
		for (int64_t j = 0; c->args[i].kind && !arg_whole(&c->args[i]) && j < c->args[i].count; j++)
			((double *)c->p[i])[j] = storage_round(arg_storage(like, i), ((double *)c->p[i])[j]);
}

/* Copies what the op reads; what it sets becomes NaN. */
static void call_copy(struct call *to, const struct call *from)
{
	for (int i = 0; i < ARGS; i++) {
		enum kind kind = to->args[i].kind;
		if (arg_whole(&to->args[i]))
			memcpy(to->p[i], from->p[i], arg_bytes(to, i));
		else if (kind != NONE)
			for (int64_t j = 0; j < to->args[i].count; j++) {
				double x = kind == SET ? (double)NAN : ((double *)from->p[i])[j];
				storage_put(arg_storage(to, i), to->p[i], j, x);
			}
	}
}

static void call_keep(struct call *to, const struct call *from)
{
	for (int i = 0; i < ARGS; i++)
		if (to->args[i].kind != NONE)
			memcpy(to->p[i], from->p[i], arg_bytes(to, i));
}

/* The arrays in the kern's memory, for one call of the op: its own where that is the host's. */
static void run_there(const struct op_test *t, struct kern *k, const struct dims *d, struct call *c)
{
	void *there[ARGS] = { NULL };
	struct err e = ERR_INIT;
	if (kern_on_host(k)) {
		t->run(kern_ops(k), k, d, c->p);
		return;
	}
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		there[i] = kern_alloc(k, arg_bytes(c, i) + PAD);
		assert_non_null(there[i]);
		kern_put(k, there[i], c->p[i], arg_bytes(c, i) + PAD);
	}
	t->run(kern_ops(k), k, d, there);
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		if (kern_get(k, c->p[i], there[i], arg_bytes(c, i) + PAD, &e) < 0)
			fail_msg("%s: %s", t->name, e.text);
		kern_free(k, there[i]);
	}
}

static const char *where(const struct op_test *t, const struct dims *d, const char *backend, int threads, int arg)
{
	static char text[200];
	snprintf(text, sizeof text, "%s %s, %d threads, argument %d (n %ld, c %ld, d %ld, %ldx%ld over %ld, %d/%d heads of %d)",
		 backend, t->name, threads, arg, (long)d->n, (long)d->c, (long)d->d, (long)d->s.batch, (long)d->s.q_len,
		 (long)d->s.k_len, d->s.heads, d->s.kv_heads, d->s.dim);
	return text;
}

/* What is infinite must be the same infinity. */
static double relative_error(const struct storage *s, const void *out, const double *ref, int64_t n)
{
	double diff = 0, norm = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = storage_get(s, out, i);
		if (isinf(ref[i]) && x == ref[i])
			continue;
		diff += (x - ref[i]) * (x - ref[i]);
		norm += ref[i] * ref[i];
	}
	return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Outputs near the reference, inputs untouched, canaries alive. */
static void check(const struct call *out, const struct call *in, const struct call *ref, const struct op_test *t,
		  const struct dims *d, const char *backend, int threads)
{
	for (int i = 0; i < ARGS; i++) {
		enum kind kind = out->args[i].kind;
		if (kind == NONE)
			continue;
		const char *at = where(t, d, backend, threads, i);
		size_t bytes = arg_bytes(out, i);
		for (int j = 0; j < PAD; j++)
			if (((unsigned char *)out->p[i])[bytes + (size_t)j] != canary)
				fail_msg("%s: wrote behind its end", at);
		if (kind == CHOICES || kind == PLACES) {
			if (memcmp(out->p[i], ref->p[i], bytes))
				fail_msg("%s: chose others", at);
			continue;
		}
		if (kind == IN || kind == TOKENS || kind == ROWS) {
			if (memcmp(out->p[i], in->p[i], bytes))
				fail_msg("%s: changed an input", at);
			continue;
		}
		double error = relative_error(arg_storage(out, i), out->p[i], ref->p[i], out->args[i].count);
		if (!(error <= arg_tolerance(out, i)))
			fail_msg("%s: error %.3g", at, error);
	}
}

static void check_same(const struct call *a, const struct call *b, const char *at)
{
	for (int i = 0; i < ARGS; i++)
		if (a->args[i].kind != NONE && memcmp(a->p[i], b->p[i], arg_bytes(a, i)))
			fail_msg("%s: argument %d differs", at, i);
}

static void run_threads(const struct op_test *t, const struct dims *d, const char *backend, int threads,
			const struct call *master, const struct call *ref, struct call *first)
{
	struct kern *k;
	struct err e = ERR_INIT;
	struct call in, one, two;
	if (kern_open(backend, threads, &k, &e) < 0)
		fail_msg("%s", e.text);
	call_init(&in, t, d, storage_of(backend));
	call_init(&one, t, d, storage_of(backend));
	call_init(&two, t, d, storage_of(backend));
	call_copy(&in, master);
	call_copy(&one, master);
	call_copy(&two, master);
	run_there(t, k, d, &one);
	check(&one, &in, ref, t, d, backend, threads);
	run_there(t, k, d, &two);
	check_same(&one, &two, where(t, d, backend, threads, -1));
	if (threads == 1)
		call_keep(first, &one);
	else if (t->any_threads)
		check_same(first, &one, where(t, d, backend, threads, -1));
	call_fini(&in);
	call_fini(&one);
	call_fini(&two);
	kern_close(k);
}

static void run_dims(const struct op_test *t, const struct dims *d, const char *backend)
{
	struct kern *k;
	struct call master, ref, first;
	assert_int_equal(kern_open("plain64", 1, &k, NULL), 0);
	call_init(&master, t, d, &storage_fp64);
	call_init(&ref, t, d, &storage_fp64);
	call_init(&first, t, d, storage_of(backend));
	call_random(&master, 7);
	if (t->prepare)
		t->prepare(kern_ops(k), k, d, master.p);
	call_round(&master, &first);
	call_copy(&ref, &master);
	t->run(kern_ops(k), k, d, ref.p);
	for (int threads = 1; threads <= (strcmp(backend, "plain") ? 3 : 1); threads++)
		run_threads(t, d, backend, threads, &master, &ref, &first);
	call_fini(&master);
	call_fini(&ref);
	call_fini(&first);
	kern_close(k);
}

/* cmocka hands over the backend's name. */
static void every_op_agrees_with_the_specification(void **state)
{
	const char *backend = *state;
	struct kern *k;
	struct err e = ERR_INIT;
	if (kern_open(backend, 1, &k, &e) < 0) {
		print_message("%s\n", e.text);
		skip();
	}
	kern_close(k);
	static const struct op_test *const families[] = { layer_ops, element_ops, token_ops, attention_ops, expert_ops };
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		for (const struct op_test *t = families[i]; t->name; t++)
			for (const struct dims *d = t->dims; d->n || d->s.batch; d++)
				run_dims(t, d, backend);
}

#define BACKEND(name) { name " agrees with the specification", every_op_agrees_with_the_specification, NULL, NULL, name }

int main(void)
{
	const struct CMUnitTest backends[] = {
		BACKEND("plain"), BACKEND("cpu"), BACKEND("cpu-v2"), BACKEND("cpu-v3"), BACKEND("cpu-v4"),
		BACKEND("plain:bf16"), BACKEND("plain:fp16"), BACKEND("cpu:bf16"), BACKEND("cpu:fp16"),
		/* The levels' 2-byte forms are the same wrapper over ops that are held above; test_narrow has their conversions. */
	};
	return cmocka_run_group_tests(backends, NULL, NULL);
}
