#include "agent/engine/data/audit.h"

#include "agent/engine/data/feed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void data_audit_find(struct audit *a, const char *fmt, ...)
{
	va_list ap;
	char *text = NULL;
	va_start(ap, fmt);
	if (a->n_findings < AUDIT_FINDINGS_MAX && vasprintf(&text, fmt, ap) >= 0)
		a->findings[a->n_findings] = text;
	va_end(ap);
	a->n_findings++;
}

static int64_t end_of(const struct ledger_line *l)
{
	return l->first + (l->to - l->from) * l->global;
}

/* Adds the line's samples to the samples that do not count. The sum is capped, so that a ledger
 * with impossible numbers cannot overflow it. */
static void count_back(struct audit *a, const struct ledger_line *l)
{
	if (__builtin_add_overflow(a->undone, (l->to - l->from) * l->global, &a->undone))
		a->undone = INT64_MAX;
}

/* Returns the generation of that number whose start line came last. */
static struct audit_generation *generation_of(struct audit *a, int64_t number)
{
	for (int i = a->n_generations - 1; i >= 0; i--)
		if (a->generations[i].generation == number)
			return &a->generations[i];
	return NULL;
}

/* A start line undoes all steps after it. A line that it cuts in two is dropped whole, because its
 * digests prove nothing about a part of it. */
static void take_back(struct audit *a, int64_t step)
{
	while (a->n_steps && a->steps[a->n_steps - 1].to > step) {
		struct ledger_line *l = &a->steps[--a->n_steps];
		count_back(a, l);
		data_ledger_line_fini(l);
	}
}

/* Compares the end of what is proven so far with the place where the next line continues. */
static void compare_ends(struct audit *a, int64_t step, int64_t samples, int64_t generation)
{
	if (samples > a->samples)
		data_audit_find(a,
				"samples %lld to %lld are missing: generation %lld continues after "
				"step %lld with sample %lld",
				(long long)a->samples, (long long)samples - 1,
				(long long)generation, (long long)step, (long long)samples);
	else if (samples < a->samples)
		data_audit_find(a,
				"samples %lld to %lld come twice: generation %lld continues after "
				"step %lld with sample %lld",
				(long long)samples, (long long)a->samples - 1,
				(long long)generation, (long long)step, (long long)samples);
	else if (step != a->step)
		data_audit_find(
			a,
			"generation %lld continues after step %lld, those before it end with "
			"step %lld, both at sample %lld",
			(long long)generation, (long long)step, (long long)a->step,
			(long long)samples);
	a->step = step;
	a->samples = samples;
}

/* Compares two orders without the paths, because files may be moved. */
static bool same_order(const json_t *a, const json_t *b)
{
	static const char *const keys[] = { "seed", "seq", "validation" }, *const inside[] = {
		"weight", "tokens", "samples"
	};
	const json_t *x = json_object_get(a, "sources"), *y = json_object_get(b, "sources");
	bool same = json_array_size(x) == json_array_size(y);
	for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
		same = same && json_equal(json_object_get(a, keys[k]), json_object_get(b, keys[k]));
	for (size_t i = 0; same && i < json_array_size(x); i++)
		for (size_t k = 0; k < sizeof inside / sizeof *inside; k++)
			same = same && json_equal(json_object_get(json_array_get(x, i), inside[k]),
						  json_object_get(json_array_get(y, i), inside[k]));
	return same;
}

static int on_start(struct audit *a, struct ledger_line *l, struct err *e)
{
	struct audit_generation *list = realloc(a->generations,
						(size_t)(a->n_generations + 1) * sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for %d generations", a->n_generations + 1);
	a->generations = list;
	take_back(a, l->step);
	list[a->n_generations++] = (struct audit_generation){
		.generation = l->generation,
		.step = l->step,
		.samples = l->samples,
		.reached = l->step,
		.order = l->order,
		.layout = l->layout,
	};
	l->order = l->layout = NULL;
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct ledger_replica *x = a, *y = b;
	return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
				      : (x->share > y->share) - (x->share < y->share);
}

/* Proves that the shares cover each position of the batch exactly once. */
static void prove_tiles(struct audit *a, struct ledger_line *l)
{
	int64_t at = 0;
	qsort(l->replicas, (size_t)l->n, sizeof *l->replicas, by_offset);
	for (int i = 0; i <= l->n; i++) {
		int64_t offset = i < l->n ? l->replicas[i].offset : l->global;
		if (i < l->n && !l->replicas[i].share)
			continue;
		if (offset != at)
			data_audit_find(a,
					"steps %lld to %lld of generation %lld: %s the samples "
					"%lld to %lld of each batch of %lld",
					(long long)l->from + 1, (long long)l->to,
					(long long)l->generation,
					offset > at ? "no replica read" : "two replicas read",
					(long long)(offset > at ? at : offset),
					(long long)(offset > at ? offset : at) - 1,
					(long long)l->global);
		if (i < l->n && offset + l->replicas[i].share > at)
			at = offset + l->replicas[i].share;
	}
}

static int on_steps(struct audit *a, struct ledger_line *l, struct err *e)
{
	struct audit_generation *g = generation_of(a, l->generation);
	if (g && l->to > g->reached)
		g->reached = l->to;
	/* The line is of a generation that has no start line, or that had already ended: nothing in
	 * it counts. */
	if (!g || g != &a->generations[a->n_generations - 1]) {
		count_back(a, l);
		return 0;
	}
	if ((a->n_steps & (a->n_steps - 1)) == 0) {
		struct ledger_line *list =
			realloc(a->steps, (size_t)(a->n_steps ? 2 * a->n_steps : 1) * sizeof *list);
		if (!list)
			return err_set(e, ERR_NOMEM, "no memory for %lld lines",
				       (long long)a->n_steps);
		a->steps = list;
	}
	a->steps[a->n_steps++] = *l;
	*l = (struct ledger_line){ 0 };
	return 0;
}

static int on_line(struct audit *a, const char *text, size_t size, struct err *e)
{
	struct ledger_line l;
	if (!size)
		return 0;
	if (data_ledger_parse(text, size, &l, NULL)) {
		a->unreadable++;
		return 0;
	}
	int rc = l.start ? on_start(a, &l, e) : on_steps(a, &l, e);
	data_ledger_line_fini(&l);
	return rc;
}

/* Proves that positions mean the same samples in both generations. */
static void prove_order(struct audit *a, const struct ledger_line *before,
			const struct ledger_line *l)
{
	const struct audit_generation *was = generation_of(a, before->generation),
				      *is = generation_of(a, l->generation);
	if (was && is && was != is && !same_order(was->order, is->order))
		data_audit_find(
			a,
			"generation %lld has another order of samples than generation %lld (seed, "
			"seq, validation or sources): its "
			"positions stand for other samples, and which came twice is not known",
			(long long)is->generation, (long long)was->generation);
}

static void prove(struct audit *a)
{
	const struct audit_generation *newest = &a->generations[a->n_generations - 1],
				      *lowest = newest;
	for (int i = 0; i < a->n_generations; i++)
		if (a->generations[i].samples < lowest->samples)
			lowest = &a->generations[i];
	a->first = a->samples = lowest->samples;
	a->step = lowest->step;
	for (int64_t i = 0; i < a->n_steps; i++) {
		struct ledger_line *l = &a->steps[i];
		compare_ends(a, l->from, l->first, l->generation);
		prove_tiles(a, l);
		if (i)
			prove_order(a, l - 1, l);
		a->step = l->to;
		a->samples = end_of(l);
	}
	if (!a->n_steps || a->steps[a->n_steps - 1].generation != newest->generation)
		compare_ends(a, newest->step, newest->samples, newest->generation);
}

/* Counts the steps that each generation did and the next one repeated. */
static void count_undone(struct audit *a)
{
	for (int i = 0; i < a->n_generations; i++) {
		int64_t least = a->generations[i].reached;
		for (int k = i + 1; k < a->n_generations; k++)
			if (a->generations[k].step < least)
				least = a->generations[k].step;
		if (least < a->generations[i].step)
			least = a->generations[i].step;
		a->generations[i].undone = a->generations[i].reached - least;
	}
}

int data_audit_open(const char *text, size_t size, struct audit **out, struct err *e)
{
	struct audit *a = calloc(1, sizeof *a);
	int rc = a ? 0 : err_set(e, ERR_NOMEM, "no memory for the ledger");
	for (size_t at = 0; !rc && at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t n = end ? (size_t)(end - text) - at : size - at;
		rc = on_line(a, text + at, n, e);
		at += n + 1;
	}
	if (!rc && !a->n_generations)
		rc = err_set(e, ERR_CORRUPT, "it has no line that says where a generation starts");
	if (rc) {
		data_audit_close(a);
		return -1;
	}
	prove(a);
	count_undone(a);
	*out = a;
	return 0;
}

void data_audit_close(struct audit *a)
{
	if (!a)
		return;
	for (int i = 0; i < a->n_generations; i++) {
		json_decref(a->generations[i].order);
		json_decref(a->generations[i].layout);
	}
	for (int64_t i = 0; i < a->n_steps; i++)
		data_ledger_line_fini(&a->steps[i]);
	for (int i = 0; i < AUDIT_FINDINGS_MAX; i++)
		free(a->findings[i]);
	free(a->generations);
	free(a->steps);
	free(a);
}

void data_audit_metrics(struct audit *a, const char *text, size_t size)
{
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t n = end ? (size_t)(end - text) - at : size - at;
		json_t *o = n ? json_loadb(text + at, n, 0, NULL) : NULL;
		const json_t *number = json_object_get(o, "generation"),
			     *step = json_object_get(o, "step");
		struct audit_generation *g = json_is_integer(number)
						     ? generation_of(a, json_integer_value(number))
						     : NULL;
		if (g && json_is_integer(step) && json_integer_value(step) > g->reached)
			g->reached = json_integer_value(step);
		json_decref(o);
		at += n + 1;
	}
	count_undone(a);
}

/* Returns the order of the last generation that counts. */
static const json_t *order_of(struct audit *a)
{
	const struct audit_generation *g =
		a->n_steps ? generation_of(a, a->steps[a->n_steps - 1].generation) : NULL;
	return g ? g->order : a->generations[a->n_generations - 1].order;
}

int data_audit_dataset(struct audit *a, const char *words, struct dataset **out, struct err *e)
{
	const json_t *order = order_of(a);
	int64_t seq = json_integer_value(json_object_get(order, "seq"));
	double validation = json_number_value(json_object_get(order, "validation"));
	if (words)
		return dataset_open(words, seq, validation, out, e);
	struct blend_source *list = calloc(LEDGER_SOURCES_MAX, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for the sources");
	int rc = dataset_open_list(list, data_ledger_sources(order, list, NULL, NULL), seq,
				   validation, out, e);
	free(list);
	return rc;
}

/* Whether the data has the sizes that the run recorded. */
static bool check_sizes(struct audit *a, const struct dataset *d)
{
	const json_t *sources = json_object_get(order_of(a), "sources");
	int64_t before = a->n_findings;
	if ((int)json_array_size(sources) != dataset_sources(d))
		data_audit_find(a, "the data has %d sources, the run had %zu", dataset_sources(d),
				json_array_size(sources));
	for (int i = 0; a->n_findings == before && i < dataset_sources(d); i++) {
		struct dataset_source is = dataset_source(d, i);
		const json_t *was = json_array_get(sources, (size_t)i);
		if (json_integer_value(json_object_get(was, "tokens")) != is.tokens ||
		    json_number_value(json_object_get(was, "weight")) != is.weight)
			data_audit_find(
				a,
				"%s has %lld tokens and the weight %g, the run had it with %lld "
				"and %g: the data was changed",
				is.path, (long long)is.tokens, is.weight,
				(long long)json_integer_value(json_object_get(was, "tokens")),
				json_number_value(json_object_get(was, "weight")));
	}
	return a->n_findings == before;
}

static int check_line(struct audit *a, const struct ledger_line *l, const struct dataset *d,
		      uint64_t seed, int32_t *room, struct err *e)
{
	for (int i = 0; i < l->n; i++) {
		const struct ledger_replica *r = &l->replicas[i];
		struct digest chain = { { 0 } }, step;
		for (int64_t s = 0; s < l->to - l->from; s++) {
			if (data_feed_digest(d, DATA_TRAIN, seed, INT32_MAX,
					     l->first + s * l->global + r->offset, r->share, room,
					     &step, e))
				return -1;
			data_ledger_chain(&chain, &step);
		}
		if (!ckpt_digest_equal(&chain, &r->digest))
			data_audit_find(a,
					"steps %lld to %lld of generation %lld: the replica of "
					"samples %lld to %lld of each batch read tokens that "
					"differ from the data",
					(long long)l->from + 1, (long long)l->to,
					(long long)l->generation, (long long)r->offset,
					(long long)(r->offset + r->share) - 1);
	}
	return 0;
}

int data_audit_data(struct audit *a, const struct dataset *d,
		    void (*moved)(int64_t samples, void *arg), void *arg, struct err *e)
{
	uint64_t seed = strtoull(json_string_value(json_object_get(order_of(a), "seed")), NULL, 10);
	if (!check_sizes(a, d))
		return 0;
	int32_t *room = malloc(2 * (size_t)dataset_seq(d) * sizeof *room);
	if (!room)
		return err_set(e, ERR_NOMEM, "no memory for a sample");
	int rc = 0;
	for (int64_t i = 0; i < a->n_steps && !rc; i++) {
		rc = check_line(a, &a->steps[i], d, seed, room, e);
		if (moved)
			moved(end_of(&a->steps[i]) - a->first, arg);
	}
	free(room);
	return rc;
}
