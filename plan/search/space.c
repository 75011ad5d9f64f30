#include "plan/search/space.h"

#include "plan/cost/engine.h"
#include "plan/spec/schedule/schedule.h"
#include "plan/search/fit.h"
#include "plan/spec/speeds.h"

#include <string.h>

/* CP_FROM: sequences of dense models on GPUs that context parallelism is tried for. With
 * shorter ones it gains less than the prediction's error, unless heads and layers do not
 * suffice for the devices. TOKENS_MIN: tokens of a sequence on a cp rank, if a quarter of it is
 * not less. Fewer tokens do not keep a device busy. */
enum { CP_FROM = 16 * 1024, CP_MAX = 64, MICRO_MAX = 16, TOKENS_MIN = 256 };

static void add_value(struct space_list *l, int value)
{
	if (l->n < SPACE_VALUES && (!l->n || l->at[l->n - 1] < value))
		l->at[l->n++] = value;
}

static bool open_to(const struct space *s, uint32_t bit)
{
	return s->job->open & bit;
}

/* The number of agents on all nodes that have cores of their own. */
static int devices_apart(const struct job *job, const struct cluster *c)
{
	int sum = 0, threads = speeds_threads(job, 0) > 0 ? speeds_threads(job, 0) : 1;
	for (int i = 0; i < c->n_nodes; i++) {
		const struct node_kind *k = topo_cluster_kind(c, i);
		int own = k->cores > 0 && k->cores / threads < k->devices ? k->cores / threads
									  : k->devices;
		sum += !plan_on_cpu(k) ? k->devices : own > 1 ? own : 1;
	}
	return sum;
}

/* --- Degrees --- */

static bool cuts_tp(const struct model_shape *m, int tp)
{
	bool heads = tp <= m->kv_heads || (tp % m->kv_heads == 0 && m->heads % tp == 0);
	return heads && tp <= m->heads && tp <= m->ffn && tp <= m->vocab;
}

static int groups_of(const struct space *s, int tp)
{
	int groups = plan_groups(s->cluster, tp);
	return groups ? groups : s->devices / tp;
}

static void list_tp(struct space *s)
{
	int most = s->devices < 2 * s->domain ? s->devices : 2 * s->domain;
	if (!open_to(s, OPEN_TP)) {
		if (cuts_tp(&s->shape, (int)s->job->parallel.tp))
			add_value(&s->tp, (int)s->job->parallel.tp);
		return;
	}
	for (int tp = 1; tp <= most; tp++)
		if (cuts_tp(&s->shape, tp) && (tp <= s->box || tp % s->box == 0) &&
		    4 * (int64_t)tp * groups_of(s, tp) >= 3 * (int64_t)s->devices)
			add_value(&s->tp, tp);
}

int64_t search_space_stages(const struct space *s)
{
	return layout_stages_most(s->shape.layers, layout_bare_ends(s->job));
}

/* Whether n is a power of two, or three times one. */
static bool round_number(int n)
{
	while (n % 2 == 0)
		n /= 2;
	return n == 1 || n == 3;
}

/* Whether all devices can have work without context parallelism. */
static bool suffices_without_cp(const struct space *s)
{
	const struct model_shape *m = &s->shape;
	double shares = (double)m->heads * (double)m->layers * (double)s->job->batch.global;
	return !m->experts && m->seq < CP_FROM && shares >= s->devices &&
	       !plan_on_cpu(topo_cluster_kind(s->cluster, 0));
}

static void list_cp(struct space *s)
{
	if (!open_to(s, OPEN_CP)) {
		add_value(&s->cp, (int)s->job->parallel.cp);
		return;
	}
	int64_t least = s->shape.seq / 4 < TOKENS_MIN ? s->shape.seq / 4 : TOKENS_MIN;
	int most = suffices_without_cp(s) ? 1 : CP_MAX;
	for (int cp = 1; cp <= most && cp <= s->devices; cp++)
		if (cp == 1 || (round_number(cp) && s->shape.seq % (2 * cp) == 0 &&
				s->shape.seq / cp >= least))
			add_value(&s->cp, cp);
}

static void list_ep(struct space *s)
{
	int64_t most = s->shape.experts < s->devices ? s->shape.experts : s->devices;
	if (!open_to(s, OPEN_EP) || !s->shape.experts) {
		add_value(&s->ep, open_to(s, OPEN_EP) ? 1 : (int)s->job->parallel.ep);
		return;
	}
	for (int ep = 1; ep <= most && ep <= 1024; ep++)
		if (s->shape.experts % ep == 0)
			add_value(&s->ep, ep);
}

static void list_pp(struct space *s)
{
	if (!open_to(s, OPEN_PP)) {
		add_value(&s->pp, (int)s->job->parallel.pp);
		return;
	}
	for (int pp = 1; pp <= search_space_stages(s) && pp <= s->devices && pp <= 1024; pp++)
		add_value(&s->pp, pp);
}

static void list_micro(struct space *s)
{
	if (!open_to(s, OPEN_MICRO)) {
		add_value(&s->micro, (int)s->job->batch.micro);
		return;
	}
	for (int micro = 1; micro <= MICRO_MAX && micro <= s->job->batch.global; micro++)
		if (s->job->batch.global % micro == 0 && ((micro & (micro - 1)) == 0 || micro < 6))
			add_value(&s->micro, micro);
}

/* --- Other keys --- */

static void add_again(struct space *s, enum job_recompute mode)
{
	static const int everys[] = { 1, 2, 4 };
	int given = (int)s->job->recompute.every;
	if (mode == RECOMPUTE_NONE) {
		s->again[s->n_again++] = (struct space_recompute){ mode, 1 };
		return;
	}
	for (int i = 0; i < (int)(sizeof everys / sizeof *everys) && open_to(s, OPEN_EVERY); i++)
		if (everys[i] <= s->shape.layers)
			s->again[s->n_again++] = (struct space_recompute){ mode, everys[i] };
	if (!open_to(s, OPEN_EVERY) && given <= s->shape.layers)
		s->again[s->n_again++] = (struct space_recompute){ mode, given };
}

static void list_again(struct space *s)
{
	bool open = open_to(s, OPEN_MODE);
	/* If the job sets `every` above 1, some layers must recompute. */
	bool none = open_to(s, OPEN_EVERY) || s->job->recompute.every == 1;
	for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
		if ((open || (int)s->job->recompute.mode == mode) &&
		    (mode != RECOMPUTE_NONE || none))
			add_again(s, (enum job_recompute)mode);
}

static void list_zero(struct space *s)
{
	bool stages = open_to(s, OPEN_ZERO), shards = open_to(s, OPEN_ZERO_SHARD);
	for (int stage = 0; stage <= 3; stage++)
		for (int shard = ZERO_SHARD_ALL; shard <= ZERO_SHARD_NODE; shard++) {
			bool asked = (stages || stage == s->job->parallel.zero) &&
				     (shards || shard == (int)s->job->parallel.zero_shard);
			if (asked && (stage || shard == ZERO_SHARD_ALL))
				s->zero[s->n_zero++] =
					(struct space_zero){ stage, (enum job_zero_shard)shard };
		}
}

static void choose(bool open, bool given, bool tried[2])
{
	tried[0] = open || !given;
	tried[1] = open || given;
}

int search_space_open(const struct job *job, const struct cluster *c, struct space *out,
		      struct err *e)
{
	struct space *s = out;
	memset(s, 0, sizeof *s);
	s->job = job;
	s->cluster = c;
	s->devices = plan_devices(c);
	s->apart = devices_apart(job, c);
	s->named = speeds_devices(job);
	s->box = s->devices;
	for (int i = 0; i < c->n_nodes; i++) {
		s->box = topo_cluster_kind(c, i)->devices < s->box
				 ? topo_cluster_kind(c, i)->devices
				 : s->box;
		s->domain += topo_cluster_share_nvlink(c, 0, i) ? topo_cluster_kind(c, i)->devices
								: 0;
	}
	shape_of_job(job, &s->shape);
	list_tp(s);
	for (int i = 0; i < s->tp.n; i++)
		s->groups[i] = groups_of(s, s->tp.at[i]);
	list_cp(s);
	list_ep(s);
	list_pp(s);
	list_micro(s);
	list_again(s);
	list_zero(s);
	choose(open_to(s, OPEN_SP), job->parallel.sp, s->sp);
	choose(open_to(s, OPEN_ACTIVATIONS), job->offload.activations, s->activations);
	choose(open_to(s, OPEN_OPTIMIZER), job->offload.optimizer, s->optimizer);
	if (!s->tp.n || !s->n_again)
		return err_set(
			e, ERR_USAGE,
			"%s = %lld is possible with none of the values that muster may choose; "
			"leave it to muster too",
			s->tp.n ? "recompute.every" : "parallel.tp",
			(long long)(s->tp.n ? job->recompute.every : job->parallel.tp));
	return 0;
}

void search_space_dp(const struct space *s, int tp, int cp, int ep, int pp, int micro,
		     struct space_list *out)
{
	int64_t shares = s->job->batch.global / micro, given = s->job->parallel.dp;
	int t = 0;
	while (t + 1 < s->tp.n && s->tp.at[t] != tp)
		t++;
	int most = (int)(s->groups[t] / ((int64_t)cp * pp));
	out->n = 0;
	if (s->job->batch.global % micro || most < ep)
		return;
	if (most > 65536)
		most = 65536;
	if (s->named && !open_to(s, OPEN_DP) && given && given != s->named / tp / cp / pp)
		return;
	if (s->named)
		given = s->named % (tp * cp * pp) ? -1 : s->named / tp / cp / pp;
	else if (open_to(s, OPEN_DP))
		given = 0;
	if (given) {
		bool whole = s->named ? shares % ep == 0 && shares >= given
				      : given > 0 && shares % given == 0;
		if (given > 0 && given <= most && given % ep == 0 && whole)
			add_value(out, (int)given);
		return;
	}
	int largest = most / ep * ep;
	while (largest > ep && shares % largest)
		largest -= ep;
	bool sharing = s->apart < s->devices;
	for (int dp = ep; dp <= largest; dp += ep)
		if (shares % dp == 0 &&
		    (4 * dp >= 3 * most || dp == largest ||
		     (sharing && 4 * (int64_t)dp * tp * cp * pp >= 3 * (int64_t)s->apart)))
			add_value(out, dp);
}

void search_space_chunks(const struct space *s, enum job_schedule schedule, int pp,
			 struct space_list *out)
{
	const struct schedule_kind *kind = schedule_kinds[schedule];
	int least = kind->chunks_least, most = kind->chunks_most;
	int given = (int)s->job->parallel.chunks;
	out->n = 0;
	if (!open_to(s, OPEN_SCHEDULE) && schedule != s->job->parallel.schedule)
		return;
	if (open_to(s, OPEN_SCHEDULE) &&
	    (!kind->searched || (pp == 1 && schedule != SCHEDULE_1F1B) ||
	     (schedule_splits(schedule) && !cost_engines[s->job->plan.engine]->splits_backward)))
		return;
	if (pp == 1 && kind->loops)
		return;
	if (most == 1) {
		if (open_to(s, OPEN_CHUNKS) || given == 0)
			add_value(out, 1);
		return;
	}
	if (!open_to(s, OPEN_CHUNKS)) {
		given = given ? given : least;
		if (given >= least && given <= most &&
		    (int64_t)given * pp <= search_space_stages(s))
			add_value(out, given);
		return;
	}
	int all = (int)(s->shape.layers / pp), filled = (int)(search_space_stages(s) / pp);
	for (int chunks = least; chunks <= most && chunks <= filled; chunks++)
		if (chunks <= 4 || all % chunks == 0 || filled % chunks == 0 ||
		    (round_number(chunks) && chunks <= 12))
			add_value(out, chunks);
}

bool search_space_sp(const struct space *s, bool sp, int tp, int cp, int micro)
{
	return s->sp[sp] && (!sp || (tp > 1 && micro * (s->shape.seq / cp) % tp == 0));
}
