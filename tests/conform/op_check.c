#include "tests/conform/op_check.h"

#include "base/philox.h"
#include "tests/conform/op_call.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct op_test *const op_families[] = { layer_ops,  element_ops, token_ops, attention_ops,
					      expert_ops, fp8_ops,     NULL };

enum { THREADS_MAX = 3 };

struct op_checker {
	const char *backend_name;
	const struct storage *storage;
	struct backend *spec;           /* reference64 */
	struct backend *k[THREADS_MAX]; /* k[i] has i + 1 threads */
	int n;
};

/* The test of one op at one choice of sizes. */
struct trial {
	struct op_checker *c;
	const struct op_test *t;
	const struct dims *d;
	const struct op_draw *draw;
	int threads;
	/* random numbers, and the specification's results */
	struct op_call master, ref;
	struct op_call first; /* the results of one thread */
	char *why;
};

void op_checker_close(struct op_checker *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n; i++)
		backend_close(c->k[i]);
	backend_close(c->spec);
	free(c);
}

/* reference64 has no threads, and a device ignores their number. */
static int open_all(struct op_checker *c, struct err *e)
{
	int most = strncmp(c->backend_name, "reference", 9) ? THREADS_MAX : 1;
	if (backend_open("reference64", 1, &c->spec, e))
		return -1;
	while (c->n < most) {
		if (backend_open(c->backend_name, c->n + 1, &c->k[c->n], e))
			return -1;
		if (!backend_on_host(c->k[c->n++]))
			most = 1;
	}
	return 0;
}

int op_checker_open(const char *backend_name, struct op_checker **out, struct err *e)
{
	struct op_checker *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "no memory for a checker");
	c->backend_name = backend_name;
	c->storage = storage_of(backend_name);
	if (open_all(c, e)) {
		op_checker_close(c);
		return -1;
	}
	*out = c;
	return 0;
}

/* --- Errors --- */

__attribute__((format(printf, 3, 4))) static bool wrong(const struct trial *t, int arg,
							const char *fmt, ...)
{
	const struct dims *d = t->d;
	char what[OP_CHECK_WHY / 2];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	snprintf(t->why, OP_CHECK_WHY,
		 "%s %s, %d threads, argument %d (n %ld, c %ld, d %ld, lo %d, %ldx%ld over %ld, "
		 "%d/%d heads of %d, shift %d): %s",
		 t->c->backend_name, t->t->name, t->threads, arg, (long)d->n, (long)d->c,
		 (long)d->d, (int)d->lo, (long)d->s.batch, (long)d->s.q_len, (long)d->s.k_len,
		 d->s.heads, d->s.kv_heads, d->s.dim, t->draw->shift, what);
	return false;
}

/* Infinite results must be the same infinity. */
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

static bool check_arg(const struct trial *t, const struct op_call *out, const struct op_call *in,
		      int i)
{
	const struct arg *a = &out->args[i];
	size_t bytes = op_call_bytes(out, i);
	if (!op_call_guarded(out, i))
		return wrong(t, i, "the op wrote outside of it");
	if (a->kind == CHOICES || a->kind == PLACES)
		return !memcmp(out->p[i], t->ref.p[i], bytes) || wrong(t, i, "the results differ");
	if (a->kind == IN || a->kind == TOKENS || a->kind == ROWS)
		return !memcmp(out->p[i], in->p[i], bytes) ||
		       wrong(t, i, "the op changed an input");
	double error = relative_error(op_call_storage(out, i), out->p[i], t->ref.p[i], a->count);
	return error <= op_call_tolerance(out, i, !backend_on_host(t->c->k[0])) ||
	       wrong(t, i, "error %.3g", error);
}

/* Outputs must be close to the reference, and inputs and guards unchanged. */
static bool check_call(const struct trial *t, const struct op_call *out, const struct op_call *in)
{
	for (int i = 0; i < ARGS; i++)
		if (out->args[i].kind != NONE && !check_arg(t, out, in, i))
			return false;
	return true;
}

static bool check_same(const struct trial *t, const struct op_call *a, const struct op_call *b,
		       const char *whose)
{
	for (int i = 0; i < ARGS; i++)
		if (a->args[i].kind != NONE && memcmp(a->p[i], b->p[i], op_call_bytes(a, i)))
			return wrong(t, i, "%s differ", whose);
	return true;
}

/* --- Running --- */

/* Runs the op on arrays in the backend's memory that begin as `in`; `out` gets their results. With
 * `recorded`, the op runs by replaying a graph. */
static bool run_op(const struct trial *t, struct backend *k, const struct op_call *in,
		   bool recorded, struct op_call *out)
{
	struct err e = ERR_INIT;
	struct backend_graph *graph = NULL;
	void *base[ARGS], *p[ARGS];
	int rc = op_call_lend(in, k, base, p, &e);
	if (!rc && recorded)
		recorded = backend_graph_begin(k);
	if (!rc)
		t->t->run(backend_ops(k), k, t->d, p);
	if (!rc && recorded) {
		rc = backend_graph_end(k, &graph, &e);
		if (!rc)
			backend_graph_replay(k, graph);
	}
	rc = rc || op_call_fetch(out, k, base, &e) ? -1 : 0;
	backend_graph_free(k, graph);
	op_call_return(k, base);
	return !rc || wrong(t, -1, "%s", e.text);
}

static bool run_backend(struct trial *t, struct backend *k)
{
	struct op_call in, one, two;
	op_call_init(&in, t->t, t->d, t->c->storage, t->draw->shift);
	op_call_init(&one, t->t, t->d, t->c->storage, t->draw->shift);
	op_call_init(&two, t->t, t->d, t->c->storage, t->draw->shift);
	op_call_convert(&in, &t->master);
	bool ok = run_op(t, k, &in, false, &one) && check_call(t, &one, &in) &&
		  run_op(t, k, &in, false, &two) &&
		  check_same(t, &one, &two, "the results of two runs");
	if (ok && !backend_on_host(k))
		ok = run_op(t, k, &in, true, &two) &&
		     check_same(t, &one, &two, "the results of the op and of its graph");
	if (ok && t->threads == 1)
		op_call_copy_bits(&t->first, &one);
	else if (ok && t->t->any_threads)
		ok = check_same(t, &t->first, &one, "the results of different numbers of threads");
	op_call_fini(&in);
	op_call_fini(&one);
	op_call_fini(&two);
	return ok;
}

bool op_conforms(struct op_checker *c, const struct op_test *t, const struct dims *d,
		 const struct op_draw *draw, char why[OP_CHECK_WHY])
{
	struct trial r = { .c = c, .t = t, .d = d, .draw = draw, .why = why };
	bool ok = true;
	op_call_init(&r.master, t, d, &storage_fp64, 0);
	op_call_init(&r.ref, t, d, &storage_fp64, 0);
	op_call_init(&r.first, t, d, c->storage, draw->shift);
	op_call_random(&r.master, draw->seed);
	if (t->prepare)
		t->prepare(backend_ops(c->spec), c->spec, d, r.master.p);
	op_call_round(&r.master, &r.first);
	op_call_convert(&r.ref, &r.master);
	t->run(backend_ops(c->spec), c->spec, d, r.ref.p);
	for (r.threads = 1; ok && r.threads <= c->n; r.threads++)
		ok = run_backend(&r, c->k[r.threads - 1]);
	op_call_fini(&r.master);
	op_call_fini(&r.ref);
	op_call_fini(&r.first);
	return ok;
}
