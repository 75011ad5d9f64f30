#include "launcher/goodput/study.h"

#include <math.h>
#include <stdlib.h>

/* With fewer faults in all runs together, chance decides what is best. */
enum { FAULTS_LEAST = 30 };

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static void add(struct goodput_sum *to, const struct goodput_result *r)
{
	to->seconds += r->seconds;
	to->steps += (double)r->steps;
	to->all_faults += (double)r->all_faults;
	to->restarts += (double)r->restarts;
	to->people += (double)r->people;
	to->from_copies += (double)r->from_copies;
	to->replaced += (double)r->replaced;
	to->shrunk += (double)r->shrunk;
	to->waited += (double)r->waited;
	to->excluded += (double)r->excluded;
	to->futile += (double)r->futile;
	to->longest += r->longest;
	to->endless |= r->endless;
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		to->parts[i] += r->parts[i];
	for (int i = 0; i < GOODPUT_KINDS; i++)
		to->faults[i] += (double)r->faults[i];
	if (r->restarts > to->most_restarts)
		to->most_restarts = r->restarts;
}

/* Sums of all runs become means. */
static void scale(struct goodput_sum *s, double weight)
{
	double *const means[] = { &s->seconds, &s->steps,       &s->all_faults, &s->restarts,
				  &s->people,  &s->from_copies, &s->replaced,   &s->shrunk,
				  &s->waited,  &s->longest,     &s->effective,  &s->excluded,
				  &s->futile };
	for (size_t i = 0; i < sizeof means / sizeof *means; i++)
		*means[i] *= weight;
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		s->parts[i] *= weight;
	for (int i = 0; i < GOODPUT_KINDS; i++)
		s->faults[i] *= weight;
}

static int too_many(int done, const struct goodput_plan *p, struct err *e)
{
	return err_set(
		e, ERR_USAGE,
		"%d of %d runs have more than %d faults together, which takes too long; give "
		"fewer --runs, less --days, or rarer faults",
		done, p->runs, GOODPUT_SUM_MOST);
}

static void tell(struct goodput_watch *w)
{
	if (!w)
		return;
	w->done++;
	w->show(w);
}

int goodput_sum(const struct goodput_setup *s, const struct goodput_plan *p,
		struct goodput_sum *out, struct err *e)
{
	*out = (struct goodput_sum){ 0 };
	if (p->watch && p->watch->counts) {
		p->watch->all += p->runs;
		return 0;
	}
	double *shares = calloc((size_t)p->runs, sizeof *shares);
	int64_t drawn = 0;
	int n = 0, rc = 0;
	if (!shares)
		return err_set(e, ERR_NOMEM, "no memory to simulate %d runs", p->runs);
	for (; n < p->runs && !out->endless && !rc; n++) {
		struct goodput_result r;
		goodput_run_record(s, p->seed + (uint64_t)n, n ? NULL : p->history, &r);
		add(out, &r);
		shares[n] = goodput_effective(&r);
		out->effective += shares[n];
		out->first = n ? out->first : r;
		drawn += r.drawn;
		rc = drawn > GOODPUT_SUM_MOST ? too_many(n + 1, p, e) : 0;
		tell(p->watch);
	}
	out->runs = n;
	scale(out, 1.0 / n);
	qsort(shares, (size_t)n, sizeof *shares, compare);
	out->low = shares[(int)(0.05 * (n - 1) + 0.5)];
	out->high = shares[(int)(0.95 * (n - 1) + 0.5)];
	free(shares);
	return rc || !p->history || !p->history->failed
		       ? rc
		       : err_set(e, ERR_NOMEM, "no memory to record a run");
}

double goodput_share(const struct goodput_sum *s, enum goodput_part part)
{
	return s->seconds > 0 ? s->parts[part] / s->seconds : 0;
}

/* --- Advice --------------------------------------------------------------------------------- */

/* A setting, and the values that are tried. */
struct setting {
	void (*set)(struct goodput_setup *s, int64_t value);
	bool (*is_possible)(const struct goodput_setup *s, int64_t value);
	const int64_t *values;
	int n;
	bool least; /* of those that are nearly the best, the least one costs the least; otherwise the largest */
};

static void set_slow(struct goodput_setup *s, int64_t value)
{
	s->rules.leaves_slow = value;
}

static bool can_leave(const struct goodput_setup *s, int64_t value)
{
	return !value || s->rules.finds < INFINITY;
}

static void set_every(struct goodput_setup *s, int64_t value)
{
	s->rules.every = value;
}

/* A checkpoint is done before the next one begins, and the run has one. */
static bool can_save(const struct goodput_setup *s, int64_t every)
{
	return (double)every * s->costs.step >= s->costs.write && every <= s->steps;
}

static void set_copies(struct goodput_setup *s, int64_t value)
{
	s->rules.copy_every = value;
}

/* 0: no copies. */
static bool can_copy(const struct goodput_setup *s, int64_t every)
{
	return s->rules.copy_every > 0 &&
	       (!every || (double)every * s->costs.step >= s->costs.copy);
}

static void set_spares(struct goodput_setup *s, int64_t value)
{
	s->spares = (int)value;
}

/* More spares than nodes are no use. */
static bool can_spare(const struct goodput_setup *s, int64_t spares)
{
	return spares <= s->nodes;
}

static const int64_t intervals[] = { 1,   2,    3,    5,    7,    10,   15,   20,
				     30,  50,   70,   100,  150,  200,  300,  500,
				     700, 1000, 1500, 2000, 3000, 5000, 10000 };
static const int64_t copies[] = { 1,  2,   3,   5,   7,   10,  15,  20,   30, 50,
				  70, 100, 150, 200, 300, 500, 700, 1000, 0 };
static const int64_t slow[] = { false, true };
static const int64_t spares[] = { 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 };

enum {
	INTERVALS = sizeof intervals / sizeof *intervals,
	COPIES = sizeof copies / sizeof *copies,
	SPARES = sizeof spares / sizeof *spares,
	SLOW = sizeof slow / sizeof *slow
};

static const struct setting settings[] = {
	{ set_slow, can_leave, slow, SLOW, true },
	{ set_spares, can_spare, spares, SPARES, true },
	{ set_copies, can_copy, copies, COPIES, false },
	{ set_every, can_save, intervals, INTERVALS, false },
};

enum { SETTINGS = sizeof settings / sizeof *settings, VALUES_MOST = INTERVALS };

/* What the run does with all nodes that it has; spares do nothing most of the time. */
static int judge(const struct goodput_setup *s, const struct goodput_plan *p, double *share,
		 struct err *e)
{
	struct goodput_sum sum;
	if (goodput_sum(s, p, &sum, e))
		return -1;
	*share = sum.endless ? 0 : sum.effective * s->nodes / (s->nodes + s->spares);
	return 0;
}

/* Sets the best value. */
static int choose(struct goodput_setup *s, const struct setting *t, const struct goodput_plan *p,
		  struct err *e)
{
	double shares[VALUES_MOST], best = 0;
	int at = -1;
	for (int i = 0; i < t->n; i++) {
		struct goodput_setup other = *s;
		shares[i] = -1;
		if (!t->is_possible(s, t->values[i]))
			continue;
		t->set(&other, t->values[i]);
		if (judge(&other, p, &shares[i], e))
			return -1;
		best = fmax(best, shares[i]);
	}
	for (int i = 0; i < t->n; i++)
		if (shares[i] >= 0 && shares[i] >= best - GOODPUT_NEAR && (at < 0 || !t->least))
			at = i;
	if (at >= 0)
		t->set(s, t->values[at]);
	return 0;
}

int goodput_choose_every(struct goodput_setup *s, const struct goodput_plan *p, struct err *e)
{
	return choose(s, &settings[SETTINGS - 1], p, e);
}

int goodput_advise(const struct goodput_setup *s, const struct goodput_plan *p,
		   struct goodput_advice *out, struct err *e)
{
	struct goodput_setup best = *s;
	best.rules.restarts = -1;
	for (int i = 0; i < SETTINGS; i++)
		if (choose(&best, &settings[i], p, e))
			return -1;
	if (goodput_sum(&best, p, &out->sum, e))
		return -1;
	out->known = out->sum.all_faults * out->sum.runs >= FAULTS_LEAST;
	out->every = best.rules.every;
	out->copy_every = best.rules.copy_every;
	out->spares = best.spares;
	out->leaves_slow = best.rules.leaves_slow;
	/* Half more than in the worst of the runs. */
	out->restarts = out->sum.most_restarts + out->sum.most_restarts / 2 + 10;
	return 0;
}
