/* The search: its evaluations equal the plan's own, its bounds lose no configuration, and its
 * proposals are legal and fit. */
#include "plan/search/fit.h"
#include "plan/search/live_counts.h"
#include "plan/search/nearest.h"
#include "plan/search/search.h"
#include "plan/search/visit.h"
#include "plan/spec/job/keys.h"

#include "tests/unit/plan/scene.h"

#include "plan/cost/step.h"
#include "plan/cost/devices.h"
#include "plan/cost/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 175b.ini without the settings that make it small and fast. */
#define PLAIN \
	"precision.dtype=fp32 parallel.sp=no parallel.zero=0 parallel.schedule=1f1b " \
	"parallel.chunks=0 "

static struct job job_of(const char *file, const char *words, bool automatic)
{
	const char *list[48];
	char copy[600];
	struct job job;
	struct err e = ERR_INIT;
	int n = automatic ? job_auto_words(list) : 0;
	snprintf(copy, sizeof copy, "%s", words);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		list[n++] = w;
	if (job_load(file, list, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

static struct cluster cluster_of(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	return c;
}

/* A model for which an exhaustive search is fast. */
#define SMALL \
	"model.layers=12 model.hidden=1024 model.heads=16 model.seq=1024 model.vocab=32000 " \
	"batch.global=48 precision.dtype=bf16 job.device=cuda"

static bool legal(const struct job *job)
{
	struct job_source src = { .name = "job" };
	struct err e = ERR_INIT;
	if (!job_check(job, &src, &e))
		return true;
	print_message("%s\n", e.text);
	return false;
}

/* --- Evaluations --- */

/* Every k-th configuration of a space. */
struct sample {
	const struct job *job;
	const struct cluster *cluster;
	struct eval *again; /* to evaluate all at once */
	int every, seen, checked, built;
	int bare; /* plans whose first stage has no layer */
	double worst_time, worst_memory;
};

/* The time as whole plans compute it, with the closed form for the pipeline and the links of
 * Slurm's order. */
static double closed_form(const struct job *job, const struct cluster *c, const struct plan *p)
{
	struct group_links group_links[GROUP_KINDS];
	struct cost_units units;
	struct cost_machine machine;
	struct plan_time t;
	struct regular_cluster regular;
	assert_int_equal(place_regular_cluster_of(c, &regular, NULL), 0);
	struct rank_box fold = place_block_box(&regular, &p->layout);
	place_group_links_regular(&regular, &p->layout, &fold, group_links);
	cost_machine_of_plan(job, c, p, &machine);
	cost_machine_links(&machine, group_links);
	cost_units_of(&p->shape, &p->layout, 0, &units);
	cost_step(&(struct cost_case){ .job = job,
				       .shape = &p->shape,
				       .layout = &p->layout,
				       .stages = p->stages,
				       .units = &units,
				       .group_links = group_links,
				       .machine = &machine,
				       .engine = cost_engines[job->plan.engine],
				       .micros = p->micros,
				       .node_replicas = p->ranks[0].node_replicas },
		  &t);
	return t.total;
}

static int replicas_on_node(const struct cluster *c, const struct layout *l)
{
	struct regular_cluster regular;
	assert_int_equal(place_regular_cluster_of(c, &regular, NULL), 0);
	struct rank_box fold = place_block_box(&regular, l);
	return fold.dp * fold.cp;
}

static void complain(const struct eval_leaf *leaf, double most)
{
	struct buf words = BUF_INIT;
	search_config_print(&leaf->config, &words);
	fail_msg("%s: %.0f bytes of %.0f, and the plan's %.0f", buf_str(&words), leaf->rank.total,
		 leaf->limit, most);
}

static void hold(void *arg, const struct eval_leaf *leaf)
{
	struct sample *s = arg;
	struct job mine = *s->job;
	struct plan p;
	struct eval_leaf again;
	if (s->seen++ % s->every)
		return;
	s->checked++;
	search_config_apply(&leaf->config, &mine);
	assert_true(legal(&mine));
	assert_true(search_eval_config(s->again, &leaf->config, &again));
	assert_true(fabs(again.time.total - leaf->time.total) <= 1e-12 * leaf->time.total &&
		    again.rank.total == leaf->rank.total);
	if (plan_build(&mine, s->cluster, &p, NULL)) {
		assert_true(!leaf->fits || leaf->config.shard == ZERO_SHARD_NODE);
		return;
	}
	s->built++;
	s->bare += p.stages[0].layer_hi == 0;
	double most = 0;
	for (int i = 0; i < p.world; i++)
		most = fmax(most, p.ranks[i].total);
	/* Placement may find more replicas per node than Slurm's order has. */
	bool comparable = leaf->config.shard == ZERO_SHARD_ALL ||
			  p.ranks[0].node_replicas == replicas_on_node(s->cluster, &p.layout);
	if (!comparable) {
		plan_free(&p);
		return;
	}
	if (!leaf->fits || fabs(leaf->rank.total - most) > 1e-12 * most)
		complain(leaf, most);
	s->worst_memory = fmax(s->worst_memory, fabs(leaf->rank.total - most) / most);
	s->worst_time = fmax(s->worst_time,
			     fabs(leaf->time.total / closed_form(&mine, s->cluster, &p) - 1));
	plan_free(&p);
}

/* Returns how many plans had a first stage without layers. */
static int compare(const char *file, const char *words, const char *spec, int every, double memory,
		   double time)
{
	struct job job = job_of(file, words, true);
	struct cluster c = cluster_of(spec);
	struct space *space = calloc(1, sizeof *space);
	struct err e = ERR_INIT;
	assert_int_equal(search_space_open(&job, &c, space, &e), 0);
	struct sample s = { &job, &c, search_eval_open(space, &e), every, 0, 0, 0, 0, 0, 0 };
	struct eval *v = search_eval_open(space, &e);
	assert_int_equal(search_visit_space(space, v,
					    &(struct space_visitor){ .arg = &s, .leaf = hold }, &e),
			 0);
	print_message("%s on %s: %d of %d configurations held to whole plans, %d fit; memory "
		      "differs by %.2g, time by %.2g at most\n",
		      file ? file : "small", spec, s.checked, s.seen, s.built, s.worst_memory,
		      s.worst_time);
	assert_true(s.checked > 50 && s.built > 20);
	assert_true(s.worst_memory <= memory);
	assert_true(s.worst_time <= time);
	search_eval_close(v);
	search_eval_close(s.again);
	free(space);
	topo_cluster_free(&c);
	return s.bare;
}

static void an_evaluation_is_the_whole_plans(void **state)
{
	(void)state;
	compare(NULL, SMALL, "dgx-h100:1", 997, 1e-12, 1e-9);
	compare("templates/jobs/mixtral-8x7b.ini", "model.layers=8 batch.global=32", "dgx-a100:2",
		1999, 1e-12, 1e-9);
	compare("templates/jobs/llama-70b.ini",
		"model.layers=10 batch.global=24 parallel.tp=6 model.ffn=20000", "dgx-h100:3", 37,
		1e-12, 1e-9);
}

/* Programs differ in what they keep of a micro-batch, of parameters and between the halves of a
 * backward pass (plan/memory_programs.h). */
static void an_evaluation_for_another_program_is_the_whole_plans(void **state)
{
	static const char *const engines[] = { "megatron-core", "megatron-2021", "megatron-2022",
					       "fsdp-eager",    "fsdp-async-tp", "deepspeed" };
	(void)state;
	for (int i = 0; i < (int)(sizeof engines / sizeof *engines); i++) {
		char words[256];
		snprintf(words, sizeof words, "model.layers=8 batch.global=32 plan.engine=%s",
			 engines[i]);
		compare("templates/jobs/mixtral-8x7b.ini", words, "dgx-a100:2", 4999, 1e-12, 1e-9);
	}
}

static void an_evaluation_of_stages_without_layers_is_the_whole_plans(void **state)
{
	(void)state;
	assert_true(compare(NULL, SMALL " model.layers=6 plan.engine=megatron-2022", "dgx-a100:1",
			    97, 1e-12, 1e-9) > 0);
	assert_int_equal(compare(NULL, SMALL " model.layers=6", "dgx-a100:1", 499, 1e-12, 1e-9), 0);
}

/* --- The search --- */

static void bounds_lose_nothing(void **state)
{
	/* clang-format off */
	static const struct { const char *file, *words, *spec; } cases[] = {
		{ NULL, SMALL " batch.global=24", "dgx-h100:1" },
		{ NULL, SMALL " model.layers=7 batch.global=30", "dgx-a100:2" },
		{ "templates/jobs/mixtral-8x7b.ini", "model.layers=4 model.experts=4 batch.global=16", "dgx-a100:2" },
		{ "templates/jobs/llama-7b.ini", "batch.global=16 recompute.mode=full parallel.zero=1", "dgx-a100:2" },
	};
	/* clang-format on */
	struct search *fast = calloc(1, sizeof *fast), *full = calloc(1, sizeof *full);
	(void)state;
	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
		struct job job = job_of(cases[i].file, cases[i].words, true);
		struct cluster c = cluster_of(cases[i].spec);
		struct err e = ERR_INIT;
		struct search_options ask = { .finalists = 6 };
		if (search_run(&job, &c, &ask, fast, &e))
			fail_msg("%s", e.text);
		ask.exhaustive = true;
		assert_int_equal(search_run(&job, &c, &ask, full, &e), 0);
		print_message("case %d: %lld of %lld configurations\n", i,
			      (long long)fast->considered, (long long)full->considered);
		assert_true(fast->considered < full->considered);
		assert_int_equal(fast->n, full->n);
		for (int k = 0; k < full->n; k++) {
			struct buf a = BUF_INIT, b = BUF_INIT;
			search_config_print(&fast->found[k].leaf.config, &a);
			search_config_print(&full->found[k].leaf.config, &b);
			if (strcmp(buf_str(&a), buf_str(&b)))
				fail_msg("place %d: %s, %.9g s (%.9g); of all %s, %.9g s (%.9g)", k,
					 buf_str(&a), fast->found[k].time.total,
					 fast->found[k].leaf.time.total, buf_str(&b),
					 full->found[k].time.total, full->found[k].leaf.time.total);
			buf_fini(&a);
			buf_fini(&b);
			assert_true(fast->found[k].time.total == full->found[k].time.total);
		}
		topo_cluster_free(&c);
	}
	free(full);
	free(fast);
}

static void all_that_is_found_can_be_run(void **state)
{
	static const struct {
		const char *file, *words, *spec;
	} cases[] = {
		{ "templates/jobs/175b.ini", "parallel.cp=1", "dgx-h100:32" },
		{ "templates/jobs/mixtral-8x7b.ini", "", "dgx-h100:2" },
		{ "templates/jobs/llama-70b.ini", "", "dgx-a100:5" },
		{ "templates/jobs/long-context.ini", "", "dgx-h100:4" },
		{ NULL, "job.device=cpu launch.speeds=2,1,1,1 model.layers=8", "local:1" },
	};
	struct search *s = calloc(1, sizeof *s);
	(void)state;
	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
		struct job job = job_of(cases[i].file, cases[i].words, true);
		struct cluster c;
		struct err e = ERR_INIT;
		assert_int_equal(topo_cluster_open(strcmp(cases[i].spec, "local:1") ? cases[i].spec
										    : "local",
						   4, &c, &e),
				 0);
		if (search_run(&job, &c,
			       &(struct search_options){ .finalists = 4, .front = i == 1 }, s, &e))
			fail_msg("%s", e.text);
		assert_true(s->n > 1 || i == 4);
		for (int k = 0; k < s->n; k++) {
			struct job mine = job;
			struct plan p;
			search_config_apply(&s->found[k].leaf.config, &mine);
			assert_true(legal(&mine));
			if (plan_build(&mine, &c, &p, &e))
				fail_msg("%s", e.text);
			assert_true(p.time.total == s->found[k].time.total);
			assert_true(k == 0 || s->found[k].time.total >= s->found[k - 1].time.total *
										(1 - SEARCH_DOUBT));
			plan_free(&p);
		}
		for (int k = 1; k < s->n_front; k++)
			assert_true(s->front[k].rank.total > s->front[k - 1].rank.total &&
				    s->front[k].time.total < s->front[k - 1].time.total);
		for (int k = 0; k < s->n_misfits; k++)
			assert_true(!s->misfits[k].fits &&
				    s->misfits[k].time.total < s->found[0].time.total);
		topo_cluster_free(&c);
	}
	free(s);
}

/* The ranks' largest memory, if the job can be built as a whole plan with so many tp ranks;
 * otherwise 0. *taken: what they cannot use of their devices. */
static double memory_of(const struct job *job, const struct cluster *c, int tp, double *taken)
{
	struct job mine = *job;
	struct plan p;
	double most = 0;
	mine.open = 0;
	mine.parallel.tp = tp;
	if (plan_build(&mine, c, &p, NULL))
		return 0;
	for (int i = 0; i < p.world; i++)
		most = fmax(most, p.ranks[i].total);
	*taken = c->kinds[0].device_memory -
		 search_fit_beside(search_fit_limit(&c->kinds[0], 1), p.library);
	plan_free(&p);
	return most;
}

/* 14 replicas on 5 nodes of 7 devices: groups of 2 have room to spare, but leave a node with
 * fewer replicas than the others, so that nothing shards inside nodes. Single devices fill 2
 * nodes, and lack the room. */
static void if_no_plan_with_room_can_be_built_the_others_count(void **state)
{
	struct job job = job_of(NULL,
				SMALL " batch.global=14 batch.micro=1 parallel.dp=14 "
				      "parallel.zero=1 parallel.zero_shard=node parallel.tp=auto",
				false);
	struct cluster c = cluster_of("dgx-a100:5");
	struct search *s = calloc(1, sizeof *s);
	struct err e = ERR_INIT;
	(void)state;
	c.kinds[0].devices = 7;
	double runtime = 0, needs = memory_of(&job, &c, 1, &runtime);
	assert_true(needs > 0 && memory_of(&job, &c, 2, &runtime) == 0);
	c.kinds[0].device_memory = needs / 0.97 + runtime;
	if (search_run(&job, &c, &(struct search_options){ .finalists = 4 }, s, &e))
		fail_msg("%s", e.text);
	assert_int_equal(s->n, 1);
	assert_int_equal(s->found[0].leaf.config.tp, 1);
	assert_true(s->found[0].memory == needs && needs > SPACE_ROOMY * s->found[0].limit);
	topo_cluster_free(&c);
	free(s);
}

static void what_is_given_stays(void **state)
{
	struct job job = job_of(NULL,
				SMALL " parallel.tp=4 parallel.schedule=gpipe recompute.mode=full "
				      "recompute.every=3 batch.micro=3",
				true);
	struct cluster c = cluster_of("dgx-h100:2");
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(search_resolve(&job, &c, &e), 0);
	assert_int_equal(job.open, 0);
	assert_int_equal(job.parallel.tp, 4);
	assert_int_equal(job.parallel.schedule, SCHEDULE_GPIPE);
	assert_int_equal(job.recompute.mode, RECOMPUTE_FULL);
	assert_int_equal(job.recompute.every, 3);
	assert_int_equal(job.batch.micro, 3);
	assert_true(job.parallel.dp > 0 && legal(&job));
	/* Impossible requests are reported. */
	job = job_of(NULL, SMALL " parallel.dp=7", true);
	assert_int_equal(search_resolve(&job, &c, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	/* A key that has no effect with the layout that was found is refused like that of a whole
	 * job. */
	job = job_of(NULL, SMALL " precision.loss_scale=7", true);
	assert_int_equal(search_resolve(&job, &c, &e), -1);
	assert_non_null(strstr(e.text, "loss_scale = 7 has no effect"));
	topo_cluster_free(&c);
}

static void fewer_devices_can_be_better(void **state)
{
	struct job job = job_of(
		NULL,
		SMALL " batch.global=12 parallel.tp=1 parallel.cp=1 parallel.pp=1 batch.micro=1",
		true);
	struct cluster c = cluster_of("dgx-h100:2");
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(search_resolve(&job, &c, &e), 0);
	assert_int_equal(job.parallel.dp, 12); /* of 16 devices */
	topo_cluster_free(&c);
}

/* --- Cores that agents share --- */

#define SHARED \
	"job.device=cpu launch.threads=1 launch.calibration=none model.layers=6 model.hidden=128 " \
	"batch.global=64 batch.micro=2 parallel.tp=1 " \
	"parallel.cp=1 parallel.zero=0 recompute.mode=none"

static void search_host(int cores, const char *words, struct search *s)
{
	struct job job = job_of(NULL, words, true);
	struct cluster c;
	struct err e = ERR_INIT;
	open_host(cores, 8, 0, &c);
	if (search_run(&job, &c, &(struct search_options){ .finalists = SEARCH_FINALISTS }, s, &e))
		fail_msg("%s", e.text);
	topo_cluster_free(&c);
}

static double fastest(const struct search *s)
{
	double least = INFINITY;
	for (int k = 0; k < s->n; k++)
		least = fmin(least, s->found[k].time.total);
	return least;
}

static void a_tie_goes_to_agents_with_cores_of_their_own(void **state)
{
	struct search *s = calloc(1, sizeof *s), *again = calloc(1, sizeof *again);
	(void)state;
	assert_true(s && again);
	search_host(2, SHARED, s);
	const struct search_config *best = &s->found[0].leaf.config;
	double least = fastest(s);
	print_message("two cores: dp %d × pp %d of %d, %.4g of the fastest's time\n", best->dp,
		      best->pp, s->n, s->found[0].time.total / least);
	assert_true(best->dp * best->pp == 2 && s->found[0].crowd <= 1);
	assert_true(s->found[0].time.total > least * (1 + 1e-4)); /* a tie was decided */
	for (int k = 0; k < s->n; k++) {
		const struct search_found *f = &s->found[k], *next = &s->found[k + 1];
		bool near = k + 1 < s->n && next->time.total <= least * (1 + SEARCH_DOUBT);
		assert_true(f->time.total <= least * (1 + SEARCH_DOUBT) || k + 1 == s->n ||
			    next->time.total >= f->time.total * (1 - 1e-6));
		assert_true(!near || fmax(1, next->crowd) >= fmax(1, f->crowd));
	}
	search_host(2, SHARED, again);
	assert_int_equal(s->n, again->n);
	for (int k = 0; k < s->n; k++)
		assert_true(
			search_config_same(&s->found[k].leaf.config, &again->found[k].leaf.config));
	free(again);
	free(s);
}

/* A configuration that is faster by more than the error of predictions stays first. With a core for
 * each agent, the times alone decide. */
static void a_clearly_faster_layout_stays_first(void **state)
{
	struct search *s = calloc(1, sizeof *s);
	(void)state;
	assert_non_null(s);
	/* three micro-batches: a layout with two replicas is not among the choices */
	search_host(2, SHARED " batch.global=6", s);
	int apart = 0;
	for (int k = 0; k < s->n; k++)
		apart += s->found[k].crowd <= 1;
	assert_true(apart > 0 && s->found[0].crowd > 1);
	search_host(8, SHARED, s);
	for (int k = 1; k < s->n; k++)
		assert_true(s->found[k].crowd <= 1 &&
			    s->found[k].time.total >= s->found[k - 1].time.total * (1 - 1e-6));
	free(s);
}

static void an_evaluation_on_shared_cores_is_the_whole_plans(void **state)
{
	struct job job = job_of(NULL, SHARED, true);
	struct cluster c;
	struct space *space = calloc(1, sizeof *space);
	struct err e = ERR_INIT;
	(void)state;
	open_host(2, 8, 2e-4, &c);
	assert_int_equal(search_space_open(&job, &c, space, &e), 0);
	struct sample s = { &job, &c, search_eval_open(space, &e), 1, 0, 0, 0, 0, 0, 0 };
	struct eval *v = search_eval_open(space, &e);
	assert_int_equal(search_visit_space(space, v,
					    &(struct space_visitor){ .arg = &s, .leaf = hold }, &e),
			 0);
	print_message("on two cores: %d configurations held to whole plans; time differs by %.2g "
		      "at most\n",
		      s.built, s.worst_time);
	/* chunks wait as long as their mean does */
	assert_true(s.built > 10 && s.worst_time < 1e-3);
	search_eval_close(v);
	search_eval_close(s.again);
	free(space);
	topo_cluster_free(&c);
}

static void the_nearest_ones_fit(void **state)
{
	static const struct {
		const char *file, *words, *spec;
	} cases[] = {
		{ "templates/jobs/175b.ini", PLAIN "parallel.pp=4 parallel.dp=4", "dgx-a100:16" },
		{ "templates/jobs/175b.ini", PLAIN "parallel.pp=1 parallel.dp=1", "dgx-h100:32" },
		{ "templates/jobs/llama-13b-zero3.ini", "parallel.zero=1", "dgx-a100:2" },
		{ "templates/jobs/llama-70b.ini", "parallel.tp=2 parallel.pp=8", "dgx-a100:4" },
	};
	(void)state;
	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
		struct job job = job_of(cases[i].file, cases[i].words, false);
		struct cluster c = cluster_of(cases[i].spec);
		struct layout asked = layout_of(&job, (int)job.parallel.dp);
		struct eval_leaf near[NEAREST_MAX];
		struct plan p;
		struct err e = ERR_INIT;
		if (!asked.dp)
			asked.dp = plan_fill_dp(&job, &c, &asked);
		assert_int_equal(plan_build(&job, &c, &p, &e), -1);
		int n = search_nearest(&job, &c, &asked, near);
		assert_int_equal(n, NEAREST_MAX);
		for (int k = 0; k < n; k++) {
			struct job mine = job;
			struct buf words = BUF_INIT;
			search_config_apply(&near[k].config, &mine);
			assert_true(legal(&mine));
			if (plan_build(&mine, &c, &p, &e))
				fail_msg("%s", e.text);
			search_config_print(&near[k].config, &words);
			print_message("case %d: %s; %.4g s, as a whole plan %.4g\n", i,
				      buf_str(&words), near[k].time.total, p.time.total);
			/* placement may find better links */
			assert_true(p.time.total < 1.1 * near[k].time.total);
			buf_fini(&words);
			plan_free(&p);
		}
		topo_cluster_free(&c);
	}
}

static void compare_with_few(enum job_schedule kind, int pp, int chunks, int micros)
{
	const struct schedule_kind *k = schedule_kinds[kind];
	struct layout l = {
		.tp = 1, .cp = 1, .dp = 1, .ep = 1, .pp = pp, .chunks = chunks, .vee = k->vee
	};
	if (chunks < k->chunks_least || chunks > k->chunks_most)
		return;
	int enough = schedule_enough_micros(kind, pp, micros);
	assert_in_range(enough, 1, micros);
	for (int r = 0; r < pp; r++) {
		struct sched_slots many = { .most = 0 }, few = { .most = 0 };
		schedule_slots(kind, &l, micros, r, &many);
		schedule_slots(kind, &l, enough, r, &few);
		if (memcmp(many.live, few.live, sizeof many.live))
			fail_msg("%s, %d ranks × %d chunks, %d micro-batches, rank %d",
				 schedule_words[kind], pp, chunks, micros, r);
		for (int c = 0; c < chunks && !k->enough_micros; c++)
			assert_int_equal(many.live[c], micros);
	}
}

/* A long run keeps as many micro-batches alive as the short run that the search simulates. */
static void a_short_run_keeps_as_many_alive_as_a_long_one(void **state)
{
	(void)state;
	for (int kind = 0; kind < SCHEDULES; kind++)
		for (int pp = 2; pp <= 7; pp++)
			for (int chunks = 1; chunks <= 4; chunks++)
				for (int m = 1; m <= 9 * pp; m++)
					compare_with_few((enum job_schedule)kind, pp, chunks, m);
}

static void search_on(const char *file, const char *spec, const char *words, struct search *s)
{
	struct job job = job_of(file, words, true);
	struct cluster c;
	struct err e = ERR_INIT;
	assert_int_equal(topo_cluster_open(spec, 4, &c, &e), 0);
	if (search_run(&job, &c, &(struct search_options){ .finalists = SEARCH_FINALISTS }, s, &e))
		fail_msg("%s", e.text);
	topo_cluster_free(&c);
}

static bool is_tight(const struct search_found *f)
{
	return f->memory > SEARCH_TIGHT * f->limit;
}

/* Among the layouts that take nearly as long as the fastest, those with room to spare come first;
 * by time in both groups. A layout that is clearly faster stays first without room. */
static void a_tie_goes_to_the_layout_with_room(void **state)
{
	struct search *s = calloc(1, sizeof *s);
	(void)state;
	assert_non_null(s);
	search_on("templates/jobs/llama-70b.ini", "dgx-b200:8", "precision.dtype=bf16", s);
	double most = fastest(s) * (1 + SEARCH_DOUBT);
	assert_true(!is_tight(&s->found[0]) && s->found[0].time.total > fastest(s) * (1 + 1e-4));
	for (int k = 1; k < s->n; k++) {
		const struct search_found *f = &s->found[k], *last = &s->found[k - 1];
		bool near = f->time.total <= most, was_near = last->time.total <= most;
		assert_true(was_near || !near);
		assert_true(!near || is_tight(f) >= is_tight(last));
		assert_true((near != was_near || (near && is_tight(f) != is_tight(last))) ||
			    f->time.total >= last->time.total * (1 - 1e-6));
	}
	search_on("templates/jobs/llama-7b.ini", "dgx-a100:8",
		  "precision.dtype=bf16 parallel.tp=1 parallel.pp=1 recompute.mode=none "
		  "batch.micro=8",
		  s);
	assert_true(s->n > 1 && is_tight(&s->found[0]) && !is_tight(&s->found[1]));
	assert_true(s->found[0].time.total <= fastest(s) * (1 + 1e-6));
	free(s);
}

/* Seven nodes and an older one: using that one gains less than predictions err. */
static void a_tie_goes_to_fewer_kinds_of_devices(void **state)
{
	struct search *s = calloc(1, sizeof *s);
	(void)state;
	assert_non_null(s);
	search_on("templates/jobs/llama-7b.ini", "dgx-h100:7+dgx-a100:1", "precision.dtype=bf16",
		  s);
	int faster = 0;
	for (int k = 1; k < s->n; k++)
		faster += s->found[k].time.total < s->found[0].time.total &&
			  s->found[k].peak.kinds == 2;
	assert_true(s->found[0].peak.kinds == 1 && faster > 0);
	search_on("templates/jobs/llama-70b.ini", "dgx-a100:4+dgx-h100:8", "precision.dtype=bf16",
		  s);
	assert_int_equal(s->found[0].peak.kinds, 2); /* they gain more */
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_evaluation_is_the_whole_plans),
		cmocka_unit_test(an_evaluation_for_another_program_is_the_whole_plans),
		cmocka_unit_test(an_evaluation_of_stages_without_layers_is_the_whole_plans),
		cmocka_unit_test(bounds_lose_nothing),
		cmocka_unit_test(all_that_is_found_can_be_run),
		cmocka_unit_test(if_no_plan_with_room_can_be_built_the_others_count),
		cmocka_unit_test(what_is_given_stays),
		cmocka_unit_test(fewer_devices_can_be_better),
		cmocka_unit_test(a_tie_goes_to_agents_with_cores_of_their_own),
		cmocka_unit_test(a_clearly_faster_layout_stays_first),
		cmocka_unit_test(a_tie_goes_to_the_layout_with_room),
		cmocka_unit_test(a_tie_goes_to_fewer_kinds_of_devices),
		cmocka_unit_test(an_evaluation_on_shared_cores_is_the_whole_plans),
		cmocka_unit_test(the_nearest_ones_fit),
		cmocka_unit_test(a_short_run_keeps_as_many_alive_as_a_long_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
