#include "plan/search/search.h"

#include "base/human.h"
#include "plan/capacity.h"
#include "plan/cost/devices.h"
#include "plan/parts.h"
#include "plan/search/fit.h"
#include "plan/search/visit.h"
#include "plan/spec/job/keys.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two times that differ by less than this share may be equal to by_time. */
#define EQUAL 1e-6
/* The front has one point for each factor of STEP in memory. */
#define STEP 1.08
enum { STEPS = 256, ROOM = 4 * SEARCH_FINALISTS };
/* Placing many ranks takes long. The finalists have at most RANKS_MAX ranks together, but there
 * are at least FINALISTS_MIN. */
enum { RANKS_MAX = 40 * 1024, FINALISTS_MIN = 2 };

/* The best leaf of each layout so far, the best first. */
struct board {
	struct eval_leaf *leaves;
	int n, most;
};

struct search_state {
	struct board best, misfits;
	struct eval_leaf front[STEPS]; /* by rising memory */
	bool on_front[STEPS];
	const struct search_options *ask;
	struct eval_leaf least; /* of those that do not fit, the one that lacks the least */
	int64_t considered, fitting;
};

/* Compares only seven digits, so that a different order of summation does not decide. */
static int by_time(double a, double b)
{
	float x = (float)a, y = (float)b;
	return (x > y) - (x < y);
}

/* A total order, so the result does not depend on the order of the visit. */
static bool better(const struct eval_leaf *a, const struct eval_leaf *b)
{
	int time = by_time(a->time.total, b->time.total),
	    weight = search_config_weight(&a->config) - search_config_weight(&b->config);
	if (time || weight)
		return time ? time < 0 : weight < 0;
	if (a->rank.total < b->rank.total || a->rank.total > b->rank.total)
		return a->rank.total < b->rank.total;
	return search_config_order(&a->config, &b->config) < 0;
}

static bool is_tight(double bytes, double limit)
{
	return limit > 0 && bytes > SEARCH_TIGHT * limit;
}

/* A layout can be found twice: with and without room. */
static bool same_layout(const struct eval_leaf *one, const struct eval_leaf *other)
{
	const struct search_config *a = &one->config, *b = &other->config;
	return is_tight(one->rank.total, one->limit) == is_tight(other->rank.total, other->limit) &&
	       a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->dp == b->dp &&
	       a->pp == b->pp && a->schedule == b->schedule && !strcmp(a->speeds, b->speeds);
}

static void post(struct board *b, const struct eval_leaf *leaf)
{
	int old = 0, at;
	while (old < b->n && !same_layout(&b->leaves[old], leaf))
		old++;
	if (old < b->n && !better(leaf, &b->leaves[old]))
		return;
	if (old == b->n) {
		if (b->n == b->most && !better(leaf, &b->leaves[b->n - 1]))
			return;
		old = b->n < b->most ? b->n++ : b->n - 1;
	}
	for (at = old; at > 0 && better(leaf, &b->leaves[at - 1]); at--)
		b->leaves[at] = b->leaves[at - 1];
	b->leaves[at] = *leaf;
}

static double best_time(const struct search_state *h)
{
	return h->best.n ? h->best.leaves[0].time.total : INFINITY;
}

/* Whether a configuration that takes at least so many seconds can change the result. */
static bool worth(void *arg, double seconds)
{
	const struct search_state *h = arg;
	double last = h->best.n == h->best.most ? h->best.leaves[h->best.n - 1].time.total
						: INFINITY;
	double slowest = h->ask->front ? SEARCH_SLOWEST * best_time(h) : 0;
	return seconds <= fmax(last, slowest) * (1 + EQUAL);
}

static void put_on_front(struct search_state *h, const struct eval_leaf *leaf)
{
	int step = leaf->rank.total > 1 ? (int)(log(leaf->rank.total / (1 << 20)) / log(STEP)) : 0;
	step = step < 0 ? 0 : step >= STEPS ? STEPS - 1 : step;
	if (!h->on_front[step] || better(leaf, &h->front[step])) {
		h->front[step] = *leaf;
		h->on_front[step] = true;
	}
}

static void look(void *arg, const struct eval_leaf *leaf)
{
	struct search_state *h = arg;
	h->considered++;
	if (!leaf->fits) {
		if (leaf->time.total < best_time(h) &&
		    leaf->rank.total <= EVAL_NEARLY * leaf->limit)
			post(&h->misfits, leaf);
		if (!(h->least.rank.total > 0) ||
		    leaf->rank.total - leaf->limit < h->least.rank.total - h->least.limit)
			h->least = *leaf;
		return;
	}
	h->fitting++;
	if (h->ask->front)
		put_on_front(h, leaf);
	post(&h->best, leaf);
}

/* --- The finalists --- */

/* mine: the job with the finalist's configuration. */
static void build_job(const struct job *mine, const struct cluster *c, struct search_found *f,
		      bool *built)
{
	struct cost_machine machine;
	struct plan p;
	*built = !plan_build(mine, c, &p, NULL);
	if (!*built)
		return;
	cost_machine_of_plan(mine, c, &p, &machine);
	f->time = p.time;
	f->crowd = machine.crowd;
	plan_peak_of(c, &p, &f->peak);
	f->limit = p.memory;
	*p.warning = '\0';
	plan_warn_machines(mine, c, &p);
	memcpy(f->warning, p.warning, sizeof f->warning);
	f->memory = 0;
	f->nodes = 0;
	for (int i = 0; i < p.world; i++) {
		f->memory = fmax(f->memory, p.ranks[i].total);
		f->nodes += i == 0 || p.ranks[i].node != p.ranks[i - 1].node;
	}
	plan_free(&p);
}

static void build(const struct job *job, const struct cluster *c, struct search_found *f,
		  bool *built)
{
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	f->time = f->leaf.time;
	f->memory = f->leaf.rank.total;
	f->limit = f->leaf.limit;
	*built = false;
	if (!mine)
		return;
	*mine = *job;
	search_config_apply(&f->leaf.config, mine);
	build_job(mine, c, f, built);
	free(mine);
}

static bool ahead(const struct search_found *a, const struct search_found *b)
{
	int time = by_time(a->time.total, b->time.total),
	    weight = search_config_weight(&a->leaf.config) - search_config_weight(&b->leaf.config);
	if (time || weight)
		return time ? time < 0 : weight < 0;
	return search_config_order(&a->leaf.config, &b->leaf.config) < 0;
}

/* The order of two finalists whose times differ by less than the prediction's error. */
static bool surer(const struct search_found *a, const struct search_found *b)
{
	double one = fmax(1, a->crowd), other = fmax(1, b->crowd);
	int weight = search_config_weight(&a->leaf.config) - search_config_weight(&b->leaf.config);
	if (one < other || one > other)
		return one < other;
	if (is_tight(a->memory, a->limit) != is_tight(b->memory, b->limit))
		return is_tight(b->memory, b->limit);
	if (a->peak.kinds != b->peak.kinds)
		return a->peak.kinds < b->peak.kinds;
	return one > 1 && weight ? weight < 0 : ahead(a, b);
}

static void prefer_surer(struct search *s)
{
	int near = 0;
	double most = s->n ? s->found[0].time.total * (1 + SEARCH_DOUBT) : 0;
	for (; near < s->n && s->found[near].time.total <= most; near++) {
		struct search_found f = s->found[near];
		int at = near;
		for (; at > 0 && surer(&f, &s->found[at - 1]); at--)
			s->found[at] = s->found[at - 1];
		s->found[at] = f;
	}
}

/* Builds the finalists. Those that cannot be built as whole plans are dropped; that happens if
 * nodes differ more than the closed forms assume. */
static void finish(const struct job *job, const struct cluster *c, const struct board *best,
		   int most, struct search *out)
{
	for (int i = 0; i < best->n && out->n < most; i++) {
		struct search_found f = { .leaf = best->leaves[i] };
		bool built;
		build(job, c, &f, &built);
		if (!built)
			continue;
		int at = out->n++;
		for (; at > 0 && ahead(&f, &out->found[at - 1]); at--)
			out->found[at] = out->found[at - 1];
		out->found[at] = f;
	}
	prefer_surer(out);
}

/* Copies the front's points, thinned to the room for them. The fastest point stays. */
static void collect_front(const struct search_state *h, struct search *out)
{
	const struct eval_leaf *points[STEPS];
	double slowest = SEARCH_SLOWEST * best_time(h), fastest = INFINITY;
	int n = 0;
	for (int s = 0; s < STEPS; s++)
		if (h->on_front[s] && h->front[s].time.total <= slowest &&
		    h->front[s].time.total < fastest * (1 - 1e-3)) {
			fastest = h->front[s].time.total;
			points[n++] = &h->front[s];
		}
	int most = n < SEARCH_FRONT ? n : SEARCH_FRONT;
	for (int i = 0; i < most; i++)
		out->front[out->n_front++] = *points[most == 1 ? n - 1 : i * (n - 1) / (most - 1)];
}

static int refuse(const struct search_state *h, const struct cluster *c, struct err *e)
{
	struct buf words = BUF_INIT;
	char needs[HUMAN], has[HUMAN];
	if (!(h->least.rank.total > 0))
		return err_set(e, ERR_NOFIT,
			       "no layout of the job's model and batch is possible with the fixed "
			       "keys and "
			       "the %d devices of %s; leave more keys to muster "
			       "(parallel.auto, or --auto), or change batch.global",
			       plan_devices(c), c->name);
	search_config_print(&h->least.config, &words);
	if (h->least.limit <= 0 || h->least.rank.total <= h->least.limit)
		err_set(e, ERR_NOFIT,
			"nothing fits %s: even %s keeps %s of each rank in its node's memory, "
			"which "
			"leaves a rank %s; offload less, or use more nodes",
			c->name, buf_str(&words), human_bytes(h->least.host, needs),
			human_bytes(h->least.host_limit, has));
	else
		err_set(e, ERR_NOFIT,
			"nothing fits %s: even %s needs %s, and a device leaves a rank %s; use "
			"more "
			"or larger devices, or a smaller model or model.seq",
			c->name, buf_str(&words), human_bytes(h->least.rank.total, needs),
			human_bytes(h->least.limit, has));
	buf_fini(&words);
	return -1;
}

static int search_space(const struct space *s, struct search_state *h, struct err *e)
{
	struct space_visitor visitor = { h, h->ask->exhaustive ? NULL : worth, look,
					 !h->ask->exhaustive };
	struct eval *v = search_eval_open(s, e);
	int rc = v ? search_visit_space(s, v, &visitor, e) : -1;
	search_eval_close(v);
	return rc;
}

static int search_part(const struct job *job, const struct plan_part *part, bool roomy,
		       struct search_state *h, struct err *e)
{
	struct space *s = calloc(1, sizeof *s);
	int rc = s ? search_space_open(job, &part->cluster, s, e)
		   : err_set(e, ERR_NOMEM, "no memory to search layouts; close other programs");
	if (!rc) {
		s->roomy = roomy;
		rc = search_space(s, h, e);
	}
	free(s);
	return rc;
}

/* Whether muster may name the speeds of a job's devices. Other programs share the work equally. */
static bool may_name(const struct job *job)
{
	return job->plan.engine == ENGINE_MUSTER && job->parallel.sync != SYNC_SERVER &&
	       !speeds_devices(job);
}

/* Searches the layouts of one part of the cluster, with equal shares of the work and, on unlike
 * devices, with shares by their speeds. What has been found so far is a bound. */
static int search_shares(const struct job *job, const struct plan_parts *parts, int i, bool roomy,
			 struct search_state *h, struct err *e)
{
	struct plan_part part;
	struct job *named = malloc(sizeof *named);
	int rc = named ? plan_part_open(parts, i, &part, e)
		       : err_set(e, ERR_NOMEM, "no memory to search layouts; close other programs");
	if (!rc) {
		*named = *job;
		rc = search_part(job, &part, roomy, h, e);
		if (!rc && may_name(job) && plan_part_speeds(parts, &part, named->launch.speeds))
			rc = search_part(named, &part, roomy, h, e);
		plan_part_close(&part);
	}
	free(named);
	return rc;
}

/* Searches all parts: only the configurations with room to spare, or all. */
static int search_parts(const struct job *job, const struct plan_parts *parts, bool roomy,
			struct search_state *h, const struct search_options *ask,
			struct eval_leaf *room, int most, struct err *e)
{
	int rc = 0;
	*h = (struct search_state){
		.best = { room, 0, most },
		.misfits = { room + SEARCH_FINALISTS, 0, SEARCH_MISFITS },
		.ask = ask,
	};
	for (int i = 0; i < parts->n && !rc; i++)
		rc = search_shares(job, parts, i, roomy, h, e);
	return rc;
}

/* The number of finalists; each is placed on every part. */
static int count_finalists(const struct cluster *c, const struct plan_parts *parts, int asked)
{
	int64_t ranks = (int64_t)plan_devices(c) * parts->n,
		some = ranks * FINALISTS_MIN < RANKS_MAX ? RANKS_MAX / ranks : FINALISTS_MIN;
	int most = asked < SEARCH_FINALISTS ? asked : SEARCH_FINALISTS;
	return some < most ? (int)some : most;
}

static void collect(const struct search_state *h, struct search *out)
{
	for (int i = 0; i < h->misfits.n; i++)
		if (h->misfits.leaves[i].time.total < out->found[0].time.total)
			out->misfits[out->n_misfits++] = h->misfits.leaves[i];
	collect_front(h, out);
	out->considered = h->considered;
	out->fitting = h->fitting;
}

int search_run(const struct job *job, const struct cluster *c, const struct search_options *ask,
	       struct search *out, struct err *e)
{
	struct plan_parts parts = { 0 };
	struct search_state *h = calloc(1, sizeof *h);
	struct eval_leaf *room = calloc(ROOM, sizeof *room);
	int rc = h && room ? plan_parts_open(job, c, &parts, e)
			   : err_set(e, ERR_NOMEM,
				     "no memory to search layouts; close other programs");
	memset(out, 0, sizeof *out);
	if (!rc) {
		int most = count_finalists(c, &parts, ask->finalists);
		for (int roomy = 1; roomy >= 0 && !rc && !out->n; roomy--) {
			rc = search_parts(job, &parts, roomy, h, ask, room, most, e);
			if (!rc)
				finish(job, c, &h->best, most, out);
		}
		if (!rc && !h->best.n)
			rc = refuse(h, c, e);
		if (!rc && !out->n)
			rc = err_set(e, ERR_NOFIT,
				     "none of the %d best layouts can be placed on %s, whose nodes "
				     "differ; fix more of the job's keys",
				     h->best.n, c->name);
	}
	if (!rc)
		collect(h, out);
	plan_parts_close(&parts);
	free(room);
	free(h);
	return rc;
}

int search_resolve(struct job *job, const struct cluster *c, struct err *e)
{
	struct search *found;
	if (!job->open)
		return 0;
	found = calloc(1, sizeof *found);
	int rc = found ? search_run(job, c,
				    &(struct search_options){ .finalists = SEARCH_FINALISTS },
				    found, e)
		       : err_set(e, ERR_NOMEM, "no memory to search layouts; close other programs");
	if (!rc) {
		struct job_source src = { .name = "the job with the planned layout" };
		search_config_apply(&found->found[0].leaf.config, job);
		rc = job_check(job, &src, e);
	}
	free(found);
	return rc;
}
