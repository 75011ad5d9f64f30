#include "agent/engine/data/audit.h"

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

/* Adds the line's samples after this step to the samples that do not count. The sum is capped, so
 * that a ledger with impossible numbers cannot overflow it. */
static void count_back(struct audit *a, const struct ledger_line *l, int64_t step)
{
	if (__builtin_add_overflow(a->undone, (l->to - step) * l->global, &a->undone))
		a->undone = INT64_MAX;
}

struct audit_generation *data_audit_generation(struct audit *a, int64_t number)
{
	for (int i = a->n_generations - 1; i >= 0; i--)
		if (a->generations[i].generation == number)
			return &a->generations[i];
	return NULL;
}

/* The position after this step of the line, at which a piece of it ends. */
static int64_t end_of(struct audit *a, const struct ledger_line *l, int64_t step)
{
	const struct audit_generation *g = data_audit_generation(a, l->generation);
	return ranges_end(g ? g->skips : NULL, l->first, (step - l->from) * l->global);
}

/* A start line undoes all steps after it. A line, or a piece of a merged one, that it cuts in two is
 * dropped whole: no checkpoint can have been taken there. */
static void take_back(struct audit *a, int64_t step)
{
	while (a->n_steps && a->steps[a->n_steps - 1].to > step) {
		struct ledger_line *l = &a->steps[a->n_steps - 1];
		int64_t to = data_ledger_cut(l, step);
		count_back(a, l, to);
		if (to > l->from) {
			l->to = to;
			l->end = end_of(a, l, to);
			return;
		}
		a->n_steps--;
		data_ledger_line_fini(l);
	}
}

int64_t data_audit_position(struct audit *a, int64_t step)
{
	int64_t after = a->n_steps ? -1 : a->first;
	for (int64_t i = 0; i < a->n_steps; i++) {
		const struct ledger_line *l = &a->steps[i];
		if (step == l->from)
			after = l->first;
		else if (step == l->to)
			after = l->end;
		else if (step > l->from && step < l->to && data_ledger_cut(l, step) == step)
			after = end_of(a, l, step);
	}
	return after;
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
		.position = l->samples + l->skipped,
		.reached = l->step,
		.order = l->order,
		.layout = l->layout,
	};
	l->order = l->layout = NULL;
	return 0;
}

/* Makes room for one more element; the room doubles. */
static int grow(void **list, int64_t n, size_t size, struct err *e)
{
	if (n & (n - 1))
		return 0;
	void *to = realloc(*list, (size_t)(n ? 2 * n : 1) * size);
	if (!to)
		return err_set(e, ERR_NOMEM, "no memory for %lld lines", (long long)n);
	*list = to;
	return 0;
}

/* A skip of a generation that has no start line, or that had already ended, changes nothing. */
static int on_skip(struct audit *a, struct ledger_line *l, struct err *e)
{
	struct audit_generation *g = data_audit_generation(a, l->generation);
	if (!g || g != &a->generations[a->n_generations - 1])
		return 0;
	if (!g->skips && !(g->skips = calloc(1, sizeof *g->skips)))
		return err_set(e, ERR_NOMEM, "no memory for what was skipped");
	if (g->n_list == RANGES_MAX || ranges_add(g->skips, l->first, l->count, NULL)) {
		/* more than a run can have */
		a->unreadable++;
		return 0;
	}
	void *reasons = a->reasons, *list = g->list;
	if (grow(&reasons, a->n_reasons, sizeof *a->reasons, e))
		return -1;
	a->reasons = reasons;
	if (grow(&list, g->n_list, sizeof *g->list, e))
		return -1;
	g->list = list;
	g->list[g->n_list++] = (struct audit_skip){ l->first, l->count, l->generation, l->reason };
	a->reasons[a->n_reasons++] = l->reason;
	l->reason = NULL;
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
	struct audit_generation *g = data_audit_generation(a, l->generation);
	if (g && l->to > g->reached)
		g->reached = l->to;
	/* The line is of a generation that has no start line, or that had already ended: nothing in
	 * it counts. */
	if (!g || g != &a->generations[a->n_generations - 1]) {
		count_back(a, l, l->from);
		return 0;
	}
	void *list = a->steps;
	if (grow(&list, a->n_steps, sizeof *a->steps, e))
		return -1;
	a->steps = list;
	l->end = end_of(a, l, l->to);
	a->steps[a->n_steps++] = *l;
	*l = (struct ledger_line){ 0 };
	return 0;
}

static int on_head(struct audit *a, struct ledger_line *l, struct err *e)
{
	(void)a;
	return data_ledger_check(l, e);
}

static int on_line(struct audit *a, const char *text, size_t size, struct err *e)
{
	static int (*const handle[])(struct audit *, struct ledger_line *, struct err *) = {
		[LEDGER_HEAD] = on_head,
		[LEDGER_START] = on_start,
		[LEDGER_SKIP] = on_skip,
		[LEDGER_STEPS] = on_steps,
	};
	struct ledger_line l;
	if (!size)
		return 0;
	if (data_ledger_parse(text, size, &l, NULL)) {
		a->unreadable++;
		return 0;
	}
	int rc = handle[l.kind](a, &l, e);
	data_ledger_line_fini(&l);
	return rc;
}

/* Proves that positions mean the same samples in both generations. */
static void prove_order(struct audit *a, const struct ledger_line *before,
			const struct ledger_line *l)
{
	const struct audit_generation *was = data_audit_generation(a, before->generation),
				      *is = data_audit_generation(a, l->generation);
	if (was && is && was != is && !same_order(was->order, is->order))
		data_audit_find(
			a,
			"generation %lld has another order of samples than generation %lld (seed, "
			"seq, validation or sources): its "
			"positions stand for other samples, and which came twice is not known",
			(long long)is->generation, (long long)was->generation);
}

/* Lists what the line has passed without reading it. */
static int list_skips(struct audit *a, const struct ledger_line *l, struct err *e)
{
	const struct audit_generation *g = data_audit_generation(a, l->generation);
	for (int64_t at = l->first; g && at < l->end; at++) {
		int64_t next = l->end;
		const struct audit_skip *in = NULL; /* the first range that `at` is in */
		for (int i = 0; i < g->n_list; i++) {
			const struct audit_skip *k = &g->list[i];
			if (k->first <= at && at < k->first + k->count && !in)
				in = k;
			if (k->first > at && k->first < next)
				next = k->first;
		}
		if (!in) {
			at = next - 1;
			continue;
		}
		void *skips = a->skips;
		if (grow(&skips, a->n_skips, sizeof *a->skips, e))
			return -1;
		a->skips = skips;
		int64_t end = in->first + in->count < l->end ? in->first + in->count : l->end;
		a->skips[a->n_skips++] = (struct audit_skip){ at, end - at, l->generation,
							      in->reason };
		a->skipped += end - at;
		at = end - 1;
	}
	return 0;
}

static int prove(struct audit *a, struct err *e)
{
	const struct audit_generation *newest = &a->generations[a->n_generations - 1],
				      *lowest = newest;
	for (int i = 0; i < a->n_generations; i++)
		if (a->generations[i].position < lowest->position)
			lowest = &a->generations[i];
	a->first = a->samples = lowest->position;
	a->step = lowest->step;
	for (int64_t i = 0; i < a->n_steps; i++) {
		struct ledger_line *l = &a->steps[i];
		compare_ends(a, l->from, l->first, l->generation);
		prove_tiles(a, l);
		if (i)
			prove_order(a, l - 1, l);
		a->step = l->to;
		a->samples = l->end;
		if (list_skips(a, l, e))
			return -1;
	}
	if (!a->n_steps || a->steps[a->n_steps - 1].generation != newest->generation)
		compare_ends(a, newest->step, newest->position, newest->generation);
	return 0;
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
	if (rc || prove(a, e)) {
		data_audit_close(a);
		return -1;
	}
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
		free(a->generations[i].skips);
		free(a->generations[i].list);
	}
	for (int i = 0; i < a->n_reasons; i++)
		free(a->reasons[i]);
	free(a->reasons);
	free(a->skips);
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
		struct audit_generation *g =
			json_is_integer(number)
				? data_audit_generation(a, json_integer_value(number))
				: NULL;
		if (g && json_is_integer(step) && json_integer_value(step) > g->reached)
			g->reached = json_integer_value(step);
		json_decref(o);
		at += n + 1;
	}
	count_undone(a);
}
