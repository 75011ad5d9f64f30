/*
 * Measures each op at the sizes of the models of models.h (kernel_rows.h): seconds per call, the
 * bytes that it must move (inputs once, outputs once, both for what it changes), and the FLOPs of
 * products and attention. It prints one line of JSON per row. What has several forms is measured as
 * in training: the first run chooses. For attention, each way is measured too, and what the two
 * compute is compared: it is an error if they differ by more than 2 %. "notices" are what the backend
 * reported, such as a slow product.
 *
 * On a GPU each row also has what the planner predicts: "published_s" by its constants and, with
 * --calibrate, "calibrated_s" by the times that this program measures first, S seconds for each
 * size.
 *
 * usage: kernels [--backend NAME] [--toy] [--only WORD] [--calibrate S]
 *
 * Calls use several sets of arrays in turn, which are together larger than a GPU's L2 cache. The
 * numbers are random. If the backend records graphs, calls are recorded, so that the device's work
 * is timed and not the launches. The result is the median of several rounds.
 */
#include "base/choices.h"
#include "base/clock.h"
#include "base/philox.h"
#include "tests/conform/op_check.h"
#include "tests/conform/storage.h"
#include "tests/gpu/json_text.h"
#include "tests/gpu/kernel_rows.h"
#include "tests/gpu/predict.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 8, ROUNDS_MAX = 7, PATTERN = 1 << 20 };

struct bench {
	struct backend *k;
	const struct storage *storage;
	bool toy;
	const char *only;
	float *numbers; /* [PATTERN] normal numbers */
	char *stored;   /* the same in the storage type */
	size_t room;    /* bytes of all sets of a row */
	double least;   /* seconds of a round */
	double slow;    /* after a round of more seconds, no more are measured */
	int rounds;
	/* for predictions; without a device: none. calibrated has a chip, or is not used. */
	bool predicts;
	struct node_kind published, calibrated;
};

/* --- Arrays ------------------------------------------------------------------------------- */

static size_t element_of(const struct bench *b, const struct arg *a)
{
	if (a->kind == ROWS || a->kind == PLACES || a->width == DOUBLE)
		return 8;
	return a->kind == TOKENS || a->kind == CHOICES || a->width != STORED ? 4
									     : b->storage->width;
}

/* Fills an argument with random numbers of its kind: one pattern, repeated. */
static void fill(const struct bench *b, const struct arg *a, void *p)
{
	size_t element = element_of(b, a), left = (size_t)a->count * element,
	       most = PATTERN * element;
	int32_t *tokens = NULL;
	const char *from = element == 4 ? (const char *)b->numbers : b->stored;
	if (a->kind == ROWS || a->kind == PLACES || a->width == DOUBLE)
		return; /* zeros */
	if (a->kind == TOKENS && (tokens = malloc(most))) {
		uint32_t r[4];
		for (uint64_t i = 0; i < PATTERN; i++) {
			philox4(philox_key(9, PHILOX_TEST, 1), i, r);
			tokens[i] = (int32_t)(r[0] % (uint32_t)a->scale);
		}
		from = (const char *)tokens;
	}
	for (size_t at = 0; left; at += most) {
		size_t n = left < most ? left : most;
		backend_put(b->k, (char *)p + at, from, n);
		left -= n;
	}
	free(tokens);
}

static bool make_set(const struct bench *b, const struct kernel_row *r, const struct op_test *t,
		     const struct arg *a, void **p)
{
	for (int i = 0; i < ARGS; i++) {
		if (a[i].kind == NONE)
			continue;
		p[i] = backend_alloc(b->k, (size_t)a[i].count * element_of(b, &a[i]) + 1);
		if (!p[i])
			return false;
		fill(b, &a[i], p[i]);
	}
	if (r->op && t->prepare)
		t->prepare(backend_ops(b->k), b->k, &r->d, p);
	return true;
}

/* The bytes that a call must move: inputs once, outputs once, and what is changed twice. */
static double bytes_of(const struct bench *b, const struct kernel_row *r, const struct arg *a)
{
	double sum = 0;
	for (int i = 0; i < ARGS; i++) {
		double bytes = (double)a[i].count * (double)element_of(b, &a[i]);
		if (r->table && a[i].kind == INOUT)
			sum += (double)(r->d.n * r->d.c) * (double)element_of(b, &a[i]) * r->table;
		else if (a[i].kind == ADD || a[i].kind == INOUT)
			sum += 2 * bytes;
		else if (a[i].kind != NONE)
			sum += bytes;
	}
	return sum;
}

/* --- Timing ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Runs all sets once, or replays their graph. */
static void run_once(const struct bench *b, const struct kernel_row *r, const struct op_test *t,
		     struct backend_graph *graph, void *(*p)[ARGS], int sets)
{
	if (graph)
		backend_graph_replay(b->k, graph);
	for (int i = 0; !graph && i < sets; i++)
		t->run(backend_ops(b->k), b->k, &r->d, p[i]);
}

static int time_row(const struct bench *b, const struct kernel_row *r, const struct op_test *t,
		    void *(*p)[ARGS], int sets, double *seconds, struct err *e)
{
	double rounds[ROUNDS_MAX];
	struct backend_graph *graph = NULL;
	/* the first run creates and chooses things, and is neither timed nor recorded */
	run_once(b, r, t, NULL, p, sets);
	if (backend_sync(b->k, e))
		return -1;
	if (backend_graph_begin(b->k)) {
		run_once(b, r, t, NULL, p, sets);
		if (backend_graph_end(b->k, &graph, e))
			return -1;
	}
	int rc = 0, all = b->rounds;
	int64_t times = 1;
	for (int i = 0; !rc && i < all;) {
		double since = clock_s();
		for (int64_t j = 0; j < times; j++)
			run_once(b, r, t, graph, p, sets);
		rc = backend_sync(b->k, e);
		double took = clock_s() - since;
		if (!rc && took < b->least) {
			times *= 2;
			i = 0;
		} else {
			rounds[i++] = took / (double)(times * sets);
			all = took > b->slow ? i : all;
		}
	}
	backend_graph_free(b->k, graph);
	qsort(rounds, (size_t)all, sizeof *rounds, by_value);
	*seconds = rounds[all / 2];
	return rc;
}

/* The ways to compute a row, their times, and the choice among them. The last one is only timed if
 * the backend may add in any order. */
enum { ANY_ORDER = 2, WAYS };
static const char *const ways[WAYS] = { "own", "cudnn", [ANY_ORDER] = "cudnn-any" };
struct contest {
	char key[CHOICES_TEXT], note[CHOICES_TEXT];
	const char *chosen;   /* NULL: there is one way only */
	double seconds[WAYS]; /* 0: not timed */
};

/* The choice between the ways of attention at these sizes. */
static void find_contest(const struct bench *b, const struct op_test *t, const struct kernel_row *r,
			 bool any_order, struct contest *c)
{
	const struct attn_shape *s = &r->d.s;
	struct choices *all = backend_choices(b->k);
	const char *key, *note;
	char sizes[96], word[16];
	size_t length;
	*c = (struct contest){ .chosen = NULL };
	const char *mask = r->d.documents ? " documents " : " causal ";
	if (!all || strncmp(t->name, "attention_", 10))
		return;
	snprintf(sizes, sizeof sizes, " b=%lld q=%lld k=%lld heads=%d/%d dim=%d ",
		 (long long)s->batch, (long long)s->q_len, (long long)s->q_len, s->heads,
		 s->kv_heads, s->dim);
	for (int i = 0; choices_at(all, i, &key, &note); i++) {
		if (strncmp(key, "attention ", 10) || strncmp(key + 10, t->name + 10, 3) ||
		    !strstr(key, mask) || !strstr(key, sizes) ||
		    !strstr(key, " any-order") == any_order ||
		    !choices_find(all, key, word, sizeof word, &length))
			continue;
		snprintf(c->key, sizeof c->key, "%s", key);
		snprintf(c->note, sizeof c->note, "%s", note);
		for (int w = 0; w < WAYS; w++)
			if (length == strlen(ways[w]) && !memcmp(word, ways[w], length))
				c->chosen = ways[w];
	}
}

/* What the first way computed. */
struct results {
	void *of[ARGS]; /* in host memory; NULL: not an output */
};

static void *copy_result(const struct bench *b, const struct arg *a, const void *at, struct err *e)
{
	size_t bytes = (size_t)a->count * element_of(b, a);
	void *copy = malloc(bytes + 1);
	if (!copy) {
		err_set(e, ERR_NOMEM, "no memory for a copy of its results");
	} else if (backend_get(b->k, copy, at, bytes, e)) {
		free(copy);
		copy = NULL;
	}
	return copy;
}

/* The size of the difference of two arrays, relative to the first one; NaN if one has a NaN. */
static double difference_of(const struct bench *b, const struct arg *a, const void *x,
			    const void *y)
{
	const struct storage *type = a->width == STORED ? b->storage : &storage_fp32;
	double size = 0, difference = 0;
	for (int64_t i = 0; i < a->count; i++) {
		double u = storage_get(type, x, i), v = storage_get(type, y, i);
		size += u * u;
		difference += (u - v) * (u - v);
	}
	return sqrt(difference / (size > 0 ? size : 1));
}

/* The first call keeps the results, later ones compare their own with them. way: of this call. */
static int compare_ways(const struct bench *b, const struct arg *a, void *const p[ARGS], int way,
			struct results *first, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < ARGS && !rc; i++) {
		if (a[i].kind != SET)
			continue;
		void *mine = copy_result(b, &a[i], p[i], e);
		rc = mine ? 0 : -1;
		if (first->of[i] && mine) {
			double differ = difference_of(b, &a[i], first->of[i], mine);
			if (!(differ <= 0.02))
				rc = err_set(e, ERR_NUMERIC,
					     "output %d by %s differs from that by %s by %.2g", i,
					     ways[way], ways[0], differ);
			free(mine);
		} else {
			first->of[i] = mine;
		}
	}
	return rc;
}

/* A row with all that is needed to run it. */
struct runnable {
	const struct kernel_row *r;
	const struct op_test *t;
	const struct arg *a;
	void *(*p)[ARGS];
	int sets;
};

/* Times one way of the choice `c`, which is afterwards what it was. */
static int time_way(const struct bench *b, const struct runnable *x, const struct contest *c,
		    int way, double *seconds, struct results *first, struct err *e)
{
	struct choices *all = backend_choices(b->k);
	choices_put(all, c->key, ways[way], strlen(ways[way]));
	int rc = time_row(b, x->r, x->t, x->p, x->sets, seconds, e);
	if (!rc)
		rc = compare_ways(b, x->a, x->p[0], way, first, e);
	choices_put(all, c->key, c->chosen, strlen(c->chosen));
	choices_note(all, "%s", c->note);
	return rc;
}

/* As with job.deterministic = any-order: the first run of the row measures, if that is possible. */
static int time_any_order(const struct bench *b, const struct runnable *x, double *seconds,
			  struct results *first, struct err *e)
{
	struct contest c;
	double chosen;
	backend_allow_any_order(b->k, true);
	int rc = time_row(b, x->r, x->t, x->p, x->sets, &chosen, e);
	find_contest(b, x->t, x->r, true, &c);
	if (!rc && c.chosen && strstr(c.note, "any order"))
		rc = time_way(b, x, &c, ANY_ORDER, seconds, first, e);
	backend_allow_any_order(b->k, false);
	return rc;
}

static int time_ways(const struct bench *b, const struct runnable *x, struct contest *c,
		     struct err *e)
{
	struct results first = { { NULL } };
	int rc = 0;
	for (int w = 0; w < ANY_ORDER && !rc; w++)
		rc = time_way(b, x, c, w, &c->seconds[w], &first, e);
	if (!rc && !strcmp(x->t->name, "attention_bwd"))
		rc = time_any_order(b, x, &c->seconds[ANY_ORDER], &first, e);
	for (int i = 0; i < ARGS; i++)
		free(first.of[i]);
	return rc;
}

static void print_predictions(const struct bench *b, const struct kernel_row *r, const char *op,
			      double bytes)
{
	if (b->predicts)
		printf(", \"published_s\": %.6g", predict_row(&b->published, r, op, bytes));
	if (b->predicts && b->calibrated.chip)
		printf(", \"calibrated_s\": %.6g", predict_row(&b->calibrated, r, op, bytes));
}

static void print_contest(const struct contest *c)
{
	if (!c->chosen)
		return;
	printf(", \"chose\": \"%s\", \"own\": %.6g, \"cudnn\": %.6g, \"key\": \"%s\", "
	       "\"note\": \"%s\"",
	       c->chosen, c->seconds[0], c->seconds[1], c->key, c->note);
	if (c->seconds[ANY_ORDER] > 0)
		printf(", \"any_order\": %.6g", c->seconds[ANY_ORDER]);
}

static void print_notices(const struct bench *b)
{
	const char *notice = backend_notice(b->k);
	if (!notice)
		return;
	fputs(", \"notices\": [", stdout);
	for (int i = 0; notice; i++, notice = backend_notice(b->k)) {
		fputs(i ? ", " : "", stdout);
		json_text_print(notice);
	}
	putchar(']');
}

/* contest: NULL if there is an error. */
static void print_row(const struct bench *b, const struct kernel_row *r, const char *op,
		      double seconds, double bytes, const struct contest *contest,
		      const char *error)
{
	printf("{\"model\": \"%s\", \"op\": \"%s\", \"what\": \"%s\", ", r->model, op, r->what);
	if (error) {
		printf("\"error\": \"%s\"}\n", error);
	} else {
		printf("\"seconds\": %.6g, \"bytes\": %.0f, \"flops\": %.0f", seconds, bytes,
		       r->flops);
		print_contest(contest);
		print_predictions(b, r, op, bytes);
		print_notices(b);
		puts("}");
	}
	fflush(stdout);
}

static int measure_row(void *arg, const struct kernel_row *r)
{
	const struct bench *b = arg;
	const struct op_test *t = r->op ? r->op : NULL;
	for (const struct op_test *const *f = op_families; !t && *f; f++)
		for (const struct op_test *o = *f; !t && o->name; o++)
			t = strcmp(o->name, r->name) ? NULL : o;
	if (!t) {
		print_row(b, r, r->name, 0, 0, NULL, "there is no such op");
		return -1;
	}
	if (b->only && !strstr(t->name, b->only))
		return 0;
	struct arg a[ARGS] = { { .kind = NONE } };
	void *p[SETS_MAX][ARGS] = { { NULL } };
	struct err e = ERR_INIT;
	double seconds = 0;
	t->args(&r->d, a);
	double bytes = bytes_of(b, r, a);
	int sets = 0, want = (int)((double)b->room / bytes) + 1;
	while (sets < want && sets < SETS_MAX && make_set(b, r, t, a, p[sets]))
		sets++;
	int rc = sets ? time_row(b, r, t, p, sets, &seconds, &e)
		      : err_set(&e, ERR_NOMEM, "no memory for its arrays");
	struct contest contest;
	find_contest(b, t, r, false, &contest);
	const struct runnable x = { r, t, a, p, sets };
	if (!rc && contest.chosen)
		rc = time_ways(b, &x, &contest, &e);
	print_row(b, r, t->name, seconds, bytes, &contest, rc ? e.text : NULL);
	for (int i = 0; i < SETS_MAX; i++)
		for (int j = 0; j < ARGS; j++)
			if (p[i][j])
				backend_free(b->k, p[i][j]);
	return rc;
}

/* What the rows above used. */
static void print_choices(const struct choices *c)
{
	const char *key, *note;
	for (int i = 0; choices_at(c, i, &key, &note); i++)
		printf("{\"choice\": \"%s\", \"note\": \"%s\"}\n", key, note);
}

/* --- The program -------------------------------------------------------------------------- */

static int prepare(struct bench *b)
{
	b->numbers = malloc(PATTERN * sizeof *b->numbers);
	b->stored = malloc(PATTERN * b->storage->width);
	if (!b->numbers || !b->stored)
		return -1;
	philox_normal(philox_key(9, PHILOX_TEST, 0), 0, PATTERN, b->numbers);
	for (int64_t i = 0; i < PATTERN; i++)
		storage_put(b->storage, b->stored, i,
			    storage_round(b->storage, (double)b->numbers[i]));
	b->room = b->toy ? 1 : (size_t)384 << 20;
	b->least = b->toy ? 0 : 0.01;
	b->slow = 0.5;
	b->rounds = b->toy ? 1 : ROUNDS_MAX;
	return 0;
}

enum { ELEMENTS = 64 << 20, TOY_ELEMENTS = 8192 };

/* Other backends have no predictions. */
static int prepare_predictions(struct bench *b, const char *backend_name, double calibrate,
			       struct err *e)
{
	b->predicts = !predict_open(backend_name, &b->published, NULL);
	b->calibrated = b->published;
	return !b->predicts || !(calibrate > 0)
		       ? 0
		       : predict_calibrate(&b->calibrated, calibrate,
					   b->toy ? TOY_ELEMENTS : ELEMENTS, e);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "backend", required_argument, NULL, 'b' },
		{ "toy", no_argument, NULL, 't' },
		{ "only", required_argument, NULL, 'o' },
		{ "calibrate", required_argument, NULL, 'c' },
		{ 0 },
	};
	const char *backend_name = "cuda:bf16";
	struct bench b = { .toy = false };
	double calibrate = 0;
	struct err e = ERR_INIT;
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		if (c == 'b')
			backend_name = optarg;
		else if (c == 't')
			b.toy = true;
		else if (c == 'o')
			b.only = optarg;
		else if (c == 'c')
			calibrate = atof(optarg);
		else
			return 2;
	b.storage = storage_of(backend_name);
	if (prepare(&b) || prepare_predictions(&b, backend_name, calibrate, &e) ||
	    backend_open(backend_name, 1, &b.k, &e)) {
		fprintf(stderr, "kernels: %s\n", e.text);
		return 1;
	}
	struct choices *choices = backend_choices(b.k);
	if (choices)
		choices_set_mode(choices, CHOICES_MEASURED);
	int bad = kernel_rows_visit(b.toy, measure_row, &b);
	if (choices)
		print_choices(choices);
	backend_close(b.k);
	free(b.calibrated.chip);
	free(b.numbers);
	free(b.stored);
	return bad ? 1 : 0;
}
