/* Mixed clusters: plans and searches use the nodes that make a step fastest. */
#include "plan/capacity.h"
#include "plan/parts.h"
#include "plan/peak.h"
#include "plan/search/nearest.h"
#include "plan/search/search.h"
#include "plan/search/visit.h"
#include "plan/show/plan.h"
#include "plan/spec/job/keys.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void load(const char *file, const char *words, bool automatic, struct job *job)
{
	const char *list[64];
	char copy[800];
	struct err e = ERR_INIT;
	int n = automatic ? job_auto_words(list) : 0;
	snprintf(copy, sizeof copy, "%s", words);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		list[n++] = w;
	if (job_load(file, list, n, job, &e))
		fail_msg("%s", e.text);
}

static struct cluster cluster_of(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	return c;
}

static double time_of(const struct job *job, const struct cluster *c)
{
	struct plan p;
	struct err e = ERR_INIT;
	if (plan_build(job, c, &p, &e))
		fail_msg("%s", e.text);
	double seconds = p.time.total;
	plan_free(&p);
	return seconds;
}

/* --- Known cases --- */

/* clang-format off */
static const struct {
	const char *file, *words, *cluster, *fast, *devices;
} known[] = {
	{ "templates/jobs/llama-70b.ini", "parallel.tp=2 parallel.cp=4 parallel.dp=1 parallel.pp=8",
	  "dgx-a100:4+dgx-h100:8", "dgx-h100:8", "32 A100-SXM4-80GB + 64 H100-SXM5-80GB" },
	{ "templates/jobs/llama-7b.ini", "precision.dtype=bf16 parallel.tp=1 parallel.dp=32 parallel.pp=1 parallel.zero=2 "
	  "batch.micro=2", "dgx-1:4+dgx-h100:4", "dgx-h100:4", "H100-SXM5-80GB" },
	/* the order of the nodes does not count */
	{ "templates/jobs/llama-7b.ini", "precision.dtype=bf16 parallel.tp=1 parallel.dp=32 parallel.pp=1 parallel.zero=2 "
	  "batch.micro=2", "dgx-h100:4+dgx-1:4", "dgx-h100:4", "H100-SXM5-80GB" },
};
/* clang-format on */

/* Layers of the ranks with this coordinate in the pipeline. */
static int layers_of(const struct plan *p, int pp)
{
	int layers = 0;
	for (int chunk = 0; chunk < p->layout.chunks; chunk++) {
		const struct stage *s = &p->stages[layout_stage(&p->layout, pp, chunk)];
		layers += s->layer_hi - s->layer_lo;
	}
	return layers;
}

/* A pipeline rank on slower devices has fewer layers than one on faster ones. */
static void check_stages(const struct cluster *c, const struct plan *p)
{
	int last = p->layout.pp - 1, first_node = p->ranks[0].node,
	    last_node = p->ranks[p->world - 1].node;
	assert_string_equal(topo_cluster_kind(c, first_node)->name, "dgx-a100");
	assert_string_equal(topo_cluster_kind(c, last_node)->name, "dgx-h100");
	assert_true(layers_of(p, 0) < layers_of(p, last));
}

static void the_search_is_no_slower_than_a_known_layout(void **state)
{
	struct job *job = malloc(sizeof *job), *given = malloc(sizeof *given);
	(void)state;
	assert_true(job && given);
	for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
		struct cluster mixed = cluster_of(known[i].cluster),
			       fast = cluster_of(known[i].fast);
		struct err e = ERR_INIT;
		struct plan p;
		struct plan_peak peak;
		load(known[i].file, known[i].words, false, given);
		double mine = time_of(given, &mixed), alone = time_of(given, &fast);
		/* A plan for given degrees uses the fast nodes, too. */
		assert_true(mine <= alone * (1 + 1e-9));
		load(known[i].file, "precision.dtype=bf16", true, job);
		if (search_resolve(job, &mixed, &e) || plan_build(job, &mixed, &p, &e))
			fail_msg("%s", e.text);
		plan_peak_of(&mixed, &p, &peak);
		print_message("%s on %s: %.4g s; given degrees take %.4g; %s\n", known[i].file,
			      known[i].cluster, p.time.total, mine, peak.devices);
		assert_true(p.time.total <= mine * (1 + 1e-9));
		assert_string_equal(peak.devices, known[i].devices);
		assert_true(peak.flops > 0);
		if (*job->launch.speeds)
			check_stages(&mixed, &p);
		plan_free(&p);
		topo_cluster_free(&mixed);
		topo_cluster_free(&fast);
	}
	free(given);
	free(job);
}

static void unused_nodes_are_spares(void **state)
{
	struct job *job = malloc(sizeof *job);
	struct cluster c = cluster_of("dgx-1:4+dgx-h100:4");
	struct plan p;
	struct err e = ERR_INIT;
	(void)state;
	assert_non_null(job);
	load(known[1].file, known[1].words, false, job);
	if (plan_build(job, &c, &p, &e))
		fail_msg("%s", e.text);
	assert_int_equal(p.place.n_spares, 4);
	for (int i = 0; i < 4; i++)
		assert_string_equal(topo_cluster_kind(&c, p.place.spares[i])->name, "dgx-1");
	for (int i = 0; i < p.world; i++)
		assert_string_equal(topo_cluster_kind(&c, p.ranks[i].node)->name, "dgx-h100");
	plan_free(&p);
	topo_cluster_free(&c);
	free(job);
}

/* Equal shares on unlike devices take nearly as long as the slowest devices need, also if they come
 * from a list of speeds. */
static void a_list_of_speeds_does_not_speed_up_a_slow_kind(void **state)
{
#define PIPELINE \
	"model.layers=16 model.hidden=4096 model.heads=32 model.seq=2048 model.vocab=32000 " \
	"precision.dtype=bf16 job.device=cuda parallel.dp=8 parallel.pp=2 batch.global=128 "
	struct job *job = malloc(sizeof *job), *named = malloc(sizeof *named);
	struct cluster mixed = cluster_of("dgx-a100:1+dgx-h100:1"), slow = cluster_of("dgx-a100:2"),
		       fast = cluster_of("dgx-h100:2");
	(void)state;
	assert_true(job && named);
	load(NULL, PIPELINE, false, job);
	load(NULL, PIPELINE "launch.speeds=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", false, named);
	double equal = time_of(named, &mixed), slowest = time_of(job, &slow);
	print_message("equal shares %.4g s, the slow kind alone %.4g s\n", equal, slowest);
	/* The fast stage only shortens the pipeline's bubble. */
	assert_true(equal > 0.75 * slowest && equal < slowest);
	/* speeds that are nearly right do better, but not better than the fast kind alone */
	load(NULL, PIPELINE "launch.speeds=4,4,4,4,4,4,4,4,11,11,11,11,11,11,11,11", false, named);
	double unequal = time_of(named, &mixed);
	assert_true(unequal < 0.85 * slowest && unequal > time_of(job, &fast));
	topo_cluster_free(&mixed);
	topo_cluster_free(&slow);
	topo_cluster_free(&fast);
	free(named);
	free(job);
}

/* A slow kind beside a fast one with slower links inside its nodes: the slow ranks compute and
 * transfer as on their kind alone, in either order of the nodes. */
static void each_kind_has_its_own_machine(void **state)
{
	struct job *job = malloc(sizeof *job), *named = malloc(sizeof *named);
	struct err e = ERR_INIT;
	(void)state;
	assert_true(job && named);
#define WIDE \
	"model.layers=8 model.hidden=4096 model.heads=32 model.seq=2048 model.vocab=32000 " \
	"precision.dtype=bf16 job.device=cuda parallel.tp=8 parallel.dp=2 parallel.pp=1 " \
	"parallel.zero=1 batch.global=16 batch.micro=1 "
	load(NULL, WIDE, false, job);
	load(NULL, WIDE "launch.speeds=1*16", false, named);
	for (int first = 0; first < 2; first++) {
		struct cluster mixed = cluster_of(first ? "dgx-a100:1+dgx-h100:1"
							: "dgx-h100:1+dgx-a100:1"),
			       slow = cluster_of("dgx-h100:2");
		struct plan a, b;
		slow.kinds[0].device_flops /= 3;
		mixed.kinds[first].device_flops /= 3;
		mixed.kinds[!first].device_flops *= 4;
		if (plan_build(named, &mixed, &a, &e) || plan_build(job, &slow, &b, &e))
			fail_msg("%s", e.text);
		assert_int_equal(a.slowest_replica, first);
		assert_true(fabs(a.time.compute / b.time.compute - 1) < 1e-6);
		assert_true(fabs(a.time.tp / b.time.tp - 1) < 1e-6 && a.time.tp > 0);
		assert_true(fabs(a.time.optimizer / b.time.optimizer - 1) < 1e-6);
		plan_free(&a);
		plan_free(&b);
		topo_cluster_free(&mixed);
		topo_cluster_free(&slow);
	}
	free(named);
	free(job);
}

/* Both kinds are used and named, and one whose rate is unknown leaves no interval and no share. */
static void all_kinds_that_are_used_are_judged(void **state)
{
	struct job *job = malloc(sizeof *job);
	struct err e = ERR_INIT;
	(void)state;
	assert_non_null(job);
	load(NULL, PIPELINE "launch.speeds=4*8,11*8", false, job);
	for (int unknown = -1; unknown < 2; unknown++) {
		struct cluster c = cluster_of("dgx-a100:1+dgx-h100:1");
		struct buf text = BUF_INIT;
		struct plan p;
		if (unknown >= 0)
			c.kinds[unknown].device_flops = 0;
		if (plan_build(job, &c, &p, &e))
			fail_msg("%s", e.text);
		show_plan_text(job, &c, &p, &text);
		json_t *j = show_plan_json(job, &c, &p);
		assert_int_equal(json_is_null(json_object_get(j, "sureness")), unknown >= 0);
		assert_int_equal(!strstr(buf_str(&text), "likely between"), unknown >= 0);
		assert_int_equal(!strstr(buf_str(&text), " % of 8 A100-SXM4-80GB + "
							 "8 H100-SXM5-80GB)"),
				 unknown >= 0);
		json_decref(j);
		buf_fini(&text);
		plan_free(&p);
		topo_cluster_free(&c);
	}
	free(job);
}

/* The slow nodes hold too little for any layout with their devices, and the hint is one of the fast
 * nodes alone. */
static void a_hint_looks_at_the_nodes_that_fit(void **state)
{
	struct job *job = malloc(sizeof *job);
	struct cluster c = cluster_of("dgx-a100:1+dgx-h100:1");
	struct eval_leaf near[NEAREST_MAX];
	struct err e = ERR_INIT;
	struct plan p;
	(void)state;
	assert_non_null(job);
	load(NULL, PIPELINE "parallel.tp=1 parallel.zero=0 parallel.dp=16 parallel.pp=1", false,
	     job);
	c.kinds[0].device_memory = 3.0 * (1 << 30);
	assert_int_equal(plan_build(job, &c, &p, &e), -1);
	if (strstr(e.text, "no nearby degrees fit") || !strstr(e.text, "nearest that fit"))
		fail_msg("%s", e.text);
	struct layout asked = layout_of(job, 16);
	int n = search_nearest(job, &c, &asked, near);
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		struct job *hint = malloc(sizeof *hint);
		assert_non_null(hint);
		*hint = *job;
		search_config_apply(&near[i].config, hint);
		assert_true(time_of(hint, &c) > 0);
		free(hint);
	}
	topo_cluster_free(&c);
	free(job);
}

/* A list of speeds has room for hundreds of devices, and can be written to a job file. */
static void large_mixed_clusters_have_a_list_of_speeds(void **state)
{
	struct job *job = malloc(sizeof *job), *back = malloc(sizeof *back);
	struct search *s = calloc(1, sizeof *s);
	struct cluster c = cluster_of("dgx-a100:16+dgx-h100:16");
	struct buf lines = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	assert_true(job && back && s);
	load("templates/jobs/llama-7b.ini", "precision.dtype=bf16 batch.global=1024", true, job);
	struct search_options ask = { .finalists = 1 };
	if (search_run(job, &c, &ask, s, &e))
		fail_msg("%s", e.text);
	print_message("%s: %.4g s, speeds \"%s\", %.4g million evaluated\n", c.name,
		      s->found[0].time.total, s->found[0].leaf.config.speeds,
		      (double)s->considered / 1e6);
	assert_non_null(strstr(s->found[0].leaf.config.speeds, "*128,"));
	search_config_apply(&s->found[0].leaf.config, job);
	job_write(job, &lines);
	if (job_parse(buf_str(&lines), "best.ini", back, &e))
		fail_msg("%s", e.text);
	assert_int_equal(speeds_devices(back), 256);
	assert_true(fabs(time_of(back, &c) / s->found[0].time.total - 1) < 1e-6);
	buf_fini(&lines);
	topo_cluster_free(&c);
	free(s);
	free(back);
	free(job);
}

/* --- Random clusters --- */

/* All of them only if MUSTER_LARGE is set. */
enum { CLUSTERS = 200, SOME = 40, KINDS = 3, SLOTS = 16 };

static uint64_t draw(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (*seed >> 33) % below;
}

static const char *const presets[] = { "dgx-1", "dgx-a100", "dgx-h100", "dgx-b200" };
enum { PRESETS = sizeof presets / sizeof *presets };

/* Two or three kinds, each with one or two nodes of one, two or four devices; 16 at most. */
static void draw_cluster(uint64_t *seed, struct cluster *out)
{
	int kinds = 2 + (int)draw(seed, KINDS - 1), room = SLOTS, first = (int)draw(seed, PRESETS);
	int nodes[KINDS], devices[KINDS];
	char spec[128];
	size_t used = 0;
	struct err e = ERR_INIT;
	struct cluster_slot *gone = calloc(64, sizeof *gone);
	int n_gone = 0, node = 0;
	assert_non_null(gone);
	for (int k = 0; k < kinds; k++) {
		devices[k] = 1 << draw(seed, 3);
		nodes[k] = 1 + (int)draw(seed, 2);
		while (nodes[k] * devices[k] > room - (kinds - 1 - k)) {
			devices[k] = devices[k] > 1 ? devices[k] / 2 : 1;
			nodes[k] = 1;
		}
		room -= nodes[k] * devices[k];
		used += (size_t)snprintf(spec + used, sizeof spec - used, "%s%s:%d", k ? "+" : "",
					 presets[(first + k) % PRESETS], nodes[k]);
	}
	struct cluster whole = cluster_of(spec);
	for (int k = 0; k < kinds; k++)
		for (int i = 0; i < nodes[k]; i++, node++)
			for (int d = devices[k]; d < 8; d++)
				gone[n_gone++] = (struct cluster_slot){ node, d };
	if (topo_cluster_without(&whole, gone, n_gone, out, &e))
		fail_msg("%s", e.text);
	topo_cluster_free(&whole);
	free(gone);
}

struct best {
	const struct job *job;
	const struct cluster *c;
	struct job *mine;
	double seconds;
	int built;
};

static void build(void *arg, const struct eval_leaf *leaf)
{
	struct best *b = arg;
	struct plan p;
	*b->mine = *b->job;
	search_config_apply(&leaf->config, b->mine);
	if (plan_build(b->mine, b->c, &p, NULL))
		return;
	b->built++;
	b->seconds = fmin(b->seconds, p.time.total);
	plan_free(&p);
}

static void build_space(const struct space *s, struct best *b)
{
	struct err e = ERR_INIT;
	struct eval *v = search_eval_open(s, &e);
	struct space_visitor every = { .arg = b, .leaf = build };
	assert_true(v && !search_visit_space(s, v, &every, &e));
	search_eval_close(v);
}

/* Gives the job the speeds of the cluster's devices. False: they are equal. */
static bool name_speeds(const struct job *job, const struct cluster *c, struct job *out)
{
	struct plan_parts parts;
	struct plan_part part;
	struct err e = ERR_INIT;
	bool named = false;
	*out = *job;
	assert_int_equal(plan_parts_open(job, c, &parts, &e), 0);
	for (int i = 0; i < parts.n; i++) {
		assert_int_equal(plan_part_open(&parts, i, &part, &e), 0);
		named |= part.cluster.n_nodes == c->n_nodes &&
			 plan_part_speeds(&parts, &part, out->launch.speeds);
		plan_part_close(&part);
	}
	plan_parts_close(&parts);
	return named;
}

/* Builds a plan of every configuration of each choice of devices, with equal and with unequal
 * shares, without bounds. A plan may use other devices than those that its layout was listed
 * for. */
static void build_all(const struct job *job, const struct cluster *c, struct best *b)
{
	struct space *s = malloc(sizeof *s);
	struct job *named = malloc(sizeof *named);
	int listed[SLOTS], n = 0; /* a node of each kind of device */
	struct err e = ERR_INIT;
	for (int i = 0; i < c->n_nodes; i++) {
		int at = 0;
		while (at < n && strcmp(topo_cluster_kind(c, listed[at])->device,
					topo_cluster_kind(c, i)->device))
			at++;
		if (at == n)
			listed[n++] = i;
	}
	*b = (struct best){
		.job = job, .c = c, .mine = malloc(sizeof *b->mine), .seconds = INFINITY
	};
	assert_true(s && named && b->mine);
	for (unsigned some = 1; some < 1u << n; some++) {
		struct cluster_slot gone[SLOTS];
		struct cluster part;
		int n_gone = 0;
		for (int i = 0; i < c->n_nodes; i++)
			for (int k = 0; k < n; k++)
				if (!(some & 1u << k) &&
				    !strcmp(topo_cluster_kind(c, listed[k])->device,
					    topo_cluster_kind(c, i)->device))
					gone[n_gone++] = (struct cluster_slot){ i, -1 };
		assert_int_equal(topo_cluster_without(c, gone, n_gone, &part, &e), 0);
		assert_int_equal(search_space_open(job, &part, s, &e), 0);
		build_space(s, b);
		if (name_speeds(job, &part, named)) {
			assert_int_equal(search_space_open(named, &part, s, &e), 0);
			build_space(s, b);
		}
		topo_cluster_free(&part);
	}
	free(b->mine);
	free(named);
	free(s);
}

/* A small model. The search decides the degrees, and one further key by turns. */
static void draw_job(uint64_t *seed, struct job *job)
{
	static const char *const further[] = {
		"parallel.schedule=1f1b parallel.zero=0 parallel.sp=no",
		"parallel.schedule=1f1b parallel.cp=1 parallel.zero=0",
		"parallel.schedule=1f1b parallel.cp=1 parallel.sp=no parallel.zero_shard=all",
		"parallel.cp=1 parallel.tp=1 parallel.zero=0 parallel.sp=no",
	};
	char words[800];
	int micro = 1 << draw(seed, 2);
	snprintf(words, sizeof words,
		 "model.layers=%d model.hidden=%d model.heads=16 model.seq=1024 model.vocab=32000 "
		 "batch.global=%d batch.micro=%d precision.dtype=bf16 job.device=cuda "
		 "recompute.mode=none recompute.every=1 offload.activations=no "
		 "offload.optimizer=no %s",
		 4 + (int)draw(seed, 5), 1024 << draw(seed, 3), micro * (8 << draw(seed, 2)), micro,
		 further[draw(seed, sizeof further / sizeof *further)]);
	load(NULL, words, true, job);
}

/* The closed forms' optimum with bounds is that without bounds. */
static void check_bounds(const struct job *job, const struct cluster *c, uint64_t seed,
			 struct search *s)
{
	struct search_options ask = { .finalists = 1 };
	struct err e = ERR_INIT;
	assert_int_equal(search_run(job, c, &ask, s, &e), 0);
	struct search_config bounded = s->found[0].leaf.config;
	int64_t considered = s->considered;
	ask.exhaustive = true;
	assert_int_equal(search_run(job, c, &ask, s, &e), 0);
	assert_true(considered <= s->considered);
	if (!search_config_same(&bounded, &s->found[0].leaf.config))
		fail_msg("SEED=%llu on %s: bounds lose the optimum", (unsigned long long)seed,
			 c->name);
}

static void random_ones_have_the_optimum_of_all_plans(void **state)
{
	const char *given = getenv("SEED");
	uint64_t first = given ? strtoull(given, NULL, 10) : 20;
	struct search *s = calloc(1, sizeof *s);
	struct job *job = malloc(sizeof *job);
	int built = 0, mixed = 0, clusters = getenv("MUSTER_LARGE") ? CLUSTERS : SOME;
	(void)state;
	assert_true(s && job);
	for (int i = 0; i < clusters; i++) {
		uint64_t seed = first + (uint64_t)i;
		struct cluster c;
		struct best all;
		struct err e = ERR_INIT;
		draw(&seed, 2);
		draw_cluster(&seed, &c);
		draw_job(&seed, job);
		check_bounds(job, &c, first + (uint64_t)i, s);
		struct search_options ask = { .finalists = SEARCH_FINALISTS };
		if (search_run(job, &c, &ask, s, &e))
			fail_msg("SEED=%llu: %s", (unsigned long long)first + i, e.text);
		build_all(job, &c, &all);
		built += all.built;
		mixed += strchr(s->found[0].peak.devices, '+') != NULL;
		double best = INFINITY;
		for (int k = 0; k < s->n; k++)
			best = fmin(best, s->found[k].time.total);
		if (fabs(best / all.seconds - 1) > 1e-6) {
			struct buf words = BUF_INIT;
			search_config_print(&s->found[0].leaf.config, &words);
			fail_msg("SEED=%llu on %s: the search finds %.9g s (%s), and the best "
				 "of %d plans takes %.9g\n",
				 (unsigned long long)first + i, c.name, best, buf_str(&words),
				 all.built, all.seconds);
		}
		topo_cluster_free(&c);
	}
	print_message("SEED=%llu: %d clusters, %d plans; %d optima use several kinds\n",
		      (unsigned long long)first, clusters, built, mixed);
	free(job);
	free(s);
}

/* NCCL and RCCL do not speak with each other, and a V100 has no products in bf16. */
static void unlike_devices_form_no_part(void **state)
{
	static const struct {
		const char *spec, *words;
		int parts;
	} cases[] = {
		{ "dgx-h100:4+mi300x:2", "precision.dtype=bf16", 2 },
		{ "dgx-h100:4+dgx-1:2", "precision.dtype=bf16", 2 },
		{ "dgx-h100:4+dgx-1:2", "precision.dtype=fp16", 3 },
		{ "dgx-h100:4+dgx-a100:2", "precision.dtype=bf16", 3 },
		{ "dgx-h100:4+dgx-a100:2+mi300x:2", "precision.dtype=bf16", 4 },
	};
	struct job *job = malloc(sizeof *job);
	(void)state;
	assert_non_null(job);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cluster c;
		struct plan_parts parts;
		struct err e = ERR_INIT;
		load("templates/jobs/llama-7b.ini", cases[i].words, true, job);
		assert_int_equal(topo_cluster_open(cases[i].spec, 4, &c, &e), 0);
		assert_int_equal(plan_parts_open(job, &c, &parts, &e), 0);
		assert_int_equal(parts.n, cases[i].parts);
		plan_parts_close(&parts);
		topo_cluster_free(&c);
	}
	free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_search_is_no_slower_than_a_known_layout),
		cmocka_unit_test(unused_nodes_are_spares),
		cmocka_unit_test(unlike_devices_form_no_part),
		cmocka_unit_test(a_list_of_speeds_does_not_speed_up_a_slow_kind),
		cmocka_unit_test(each_kind_has_its_own_machine),
		cmocka_unit_test(all_kinds_that_are_used_are_judged),
		cmocka_unit_test(a_hint_looks_at_the_nodes_that_fit),
		cmocka_unit_test(large_mixed_clusters_have_a_list_of_speeds),
		cmocka_unit_test(random_ones_have_the_optimum_of_all_plans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
