/* The whole plan: placement, memory, time, and errors, on clusters made by hand. */
#include "plan/plan.h"

#include "plan/search/eval.h"
#include "plan/search/search.h"
#include "plan/show/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1024.0 * 1024 * 1024)

enum { NODES_MAX = 512 };

/* A cluster in the caller's memory. */
struct test_cluster {
	struct cluster c;
	struct node_kind kinds[2];
	struct cluster_node nodes[NODES_MAX];
};

/* 175b.ini without the settings that make it small and fast. */
#define PLAIN \
	"precision.dtype=fp32 parallel.sp=no parallel.zero=0 parallel.schedule=1f1b " \
	"parallel.chunks=0 "

static const struct node_kind a100 = {
	.name = "box",
	.device = "A100",
	.devices = 8,
	.cores = 128,
	.numa = 8,
	.memory = 2048 * GIB,
	.device_memory = 80 * GIB,
	.device_flops = 312e12,
	.device_bandwidth = 2039e9,
	.link_bandwidth = 300e9,
	.link_latency = 2e-6,
	.net_bandwidth = 25e9,
	.net_latency = 5e-6,
};
static const struct node_kind cpu = {
	.name = "local",
	.device = "cpu",
	.devices = 8,
	.cores = 16,
	.numa = 1,
	.memory = 16 * GIB,
	.device_memory = 2 * GIB,
	.device_flops = 100e9,
	.device_bandwidth = 5e9,
	.link_bandwidth = 5e9,
	.link_latency = 1e-5,
	.net_bandwidth = 1e9,
	.net_latency = 5e-5,
};

static struct cluster *build(struct test_cluster *y, struct node_kind kind, int nodes)
{
	memset(y, 0, sizeof *y);
	y->kinds[0] = kind;
	y->c = (struct cluster){
		.kinds = y->kinds, .n_kinds = 1, .nodes = y->nodes, .n_nodes = nodes
	};
	snprintf(y->c.name, sizeof y->c.name, "%.40s:%d", kind.name, nodes);
	for (int i = 0; i < nodes; i++) {
		y->nodes[i] = (struct cluster_node){ .leaf = -1, .domain = -1 };
		snprintf(y->nodes[i].name, sizeof y->nodes[i].name, "n%d", i);
	}
	return &y->c;
}

static struct job job_of(const char *file, const char *words)
{
	const char *list[24];
	char copy[600];
	struct job job;
	struct err e = ERR_INIT;
	int n = 0;
	snprintf(copy, sizeof copy, "%s", words);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		list[n++] = w;
	if (job_load(file, list, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

static struct plan plan_of(const struct job *job, const struct cluster *c)
{
	struct plan p;
	struct err e = ERR_INIT;
	if (plan_build(job, c, &p, &e))
		fail_msg("%s", e.text);
	return p;
}

static void ranks_fill_nodes_in_order(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, a100, 128);
	struct job job = job_of("templates/jobs/175b.ini", "");
	struct plan p = plan_of(&job, c);
	assert_int_equal(p.world, 1024);
	assert_int_equal(p.micros, 192);
	assert_int_equal(p.threads, 16);
	for (int r = 0; r < p.world; r++) {
		assert_int_equal(p.ranks[r].node, r / 8);
		assert_int_equal(p.ranks[r].slot, r % 8);
		assert_int_equal(layout_rank(&p.layout, p.ranks[r].at), r);
	}
	assert_string_equal(p.warning, "");
	plan_free(&p);
}

static void sizes_that_gpus_dislike_are_warned_of_with_the_next_good_ones(void **state)
{
	struct test_cluster y;
	(void)state;
	/* clang-format off */
	static const struct {
		const char *words, *says;
	} rows[] = {
		{ "model.vocab=50257", "" },
		{ "model.vocab=50257 parallel.tp=2", "" },
		{ "model.vocab=51200 model.ffn=1030", "model.ffn = 1030 is not a multiple of 8 (model.ffn=1088 is the next good one): products" },
		{ "model.vocab=51200 model.hidden=104 model.heads=4 model.ffn=512", "hidden / heads = 26 is not a multiple of 8 (model.hidden=128 " },
		{ "model.vocab=51200 model.hidden=120 model.heads=5 model.ffn=512", "" },
		{ "model.vocab=51200 model.hidden=84 model.heads=3 model.ffn=512", "model.hidden=192 is" },
		{ "model.vocab=51200 model.hidden=128 model.heads=4 model.head_dim=20 model.ffn=512", "model.head_dim = 20 is not a multiple of 8 (model.head_dim=24 " },
		{ "model.ffn=1030 parallel.tp=2", "the tp ranks' parts of model.ffn = 1030 are not all multiples of 8 (model.ffn=1088 " },
		{ "model.ffn=1030 job.device=cpu", "" },
		{ "model.vocab=51200 model.ffn=1032", "" },
		{ "precision.dtype=bf16 precision.fp8=hybrid model.ffn=1032", "model.ffn = 1032 is not a multiple of 16 (model.ffn=1088 is the next good one): products of such sizes are many" },
		{ "precision.dtype=bf16 precision.fp8=hybrid model.hidden=136 model.heads=4 model.head_dim=32", "model.hidden = 136 is not a multiple of 16 (model.hidden=192 " },
		{ "precision.dtype=bf16 precision.fp8=hybrid model.hidden=192 model.heads=3 model.head_dim=24", "model.head_dim = 24 is not a multiple of 16 (model.head_dim=32 " },
		{ "precision.dtype=bf16 precision.fp8=hybrid model.hidden=192 model.heads=3 model.head_dim=20", "model.head_dim = 20 is not a multiple of 16 (model.head_dim=32 " },
		{ "precision.dtype=bf16 precision.fp8=hybrid model.family=mixtral model.ffn=1030", "model.ffn = 1030 is not a multiple of 8 (model.ffn=1088 is the next good one): products of such sizes are several" },
	};
	/* clang-format on */
	struct cluster *c = build(&y, a100, 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char words[256];
		snprintf(words, sizeof words, "job.device=cuda %s", rows[i].words);
		struct job job = job_of(NULL, words);
		struct plan p = plan_of(&job, c);
		if (!*rows[i].says)
			assert_string_equal(p.warning, "");
		else if (!strstr(p.warning, rows[i].says))
			fail_msg("%s: \"%s\"", rows[i].words, p.warning);
		plan_free(&p);
	}
}

static void types_that_devices_lack_are_named(void **state)
{
	/* clang-format off */
	static const struct {
		const char *device, *words, *says, *not;
	} rows[] = {
		{ "A100-SXM4-80GB", "precision.dtype=bf16", "", "?" },
		{ "A100-SXM4-80GB", "precision.dtype=bf16 precision.fp8=hybrid", "A100-SXM4-80GB has no products of 8-bit numbers", "bf16" },
		{ "H100-SXM5-80GB", "precision.dtype=bf16 precision.fp8=hybrid", "", "?" },
		{ "V100-SXM2-32GB", "precision.dtype=fp16", "", "?" },
		{ "V100-SXM2-32GB", "precision.dtype=bf16", "V100-SXM2-32GB has no products in bf16", "8-bit" },
		{ "T4", "precision.dtype=bf16", "T4 has no products in bf16", "8-bit" },
		{ "P100-SXM2-16GB", "precision.dtype=bf16", "P100-SXM2-16GB has no products in bf16", "8-bit" },
		/* 0.75 of the data sheet, at the clocks that last */
		{ "Z9000", "precision.dtype=bf16", "muster does not know Z9000: its products are taken to reach 69 % of its device_flops, in bf16 as in fp16 and no faster in 8 bits; if it is like", "has no" },
		{ "Z9000", "precision.dtype=bf16 precision.fp8=hybrid", "muster does not know Z9000: ", "has no" },
		{ "Z9000", "precision.dtype=fp32", "muster does not know Z9000: ", "has no" },
	};
	/* clang-format on */
	struct test_cluster y;
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char words[256];
		struct node_kind kind = a100;
		snprintf(kind.device, sizeof kind.device, "%s", rows[i].device);
		snprintf(words, sizeof words, "job.device=cuda model.vocab=51200 %s",
			 rows[i].words);
		struct job job = job_of(NULL, words);
		struct plan p = plan_of(&job, build(&y, kind, 1));
		if (!*rows[i].says)
			assert_string_equal(p.warning, "");
		else if (!strstr(p.warning, rows[i].says) || strstr(p.warning, rows[i].not ))
			fail_msg("%s: \"%s\"", rows[i].words, p.warning);
		plan_free(&p);
	}
}

static void tensor_groups_stay_inside_nodes_while_there_is_room(void **state)
{
	struct test_cluster y;
	(void)state;
	struct node_kind six = a100;
	six.devices = 6;
	/* a group of 4 per node; 2 devices of each node are left */
	struct cluster *c = build(&y, six, 4);
	struct job job = job_of(NULL, "parallel.tp=4 parallel.dp=2 parallel.pp=2");
	struct plan p = plan_of(&job, c);
	for (int r = 0; r < 16; r++) {
		assert_int_equal(p.ranks[r].node, r / 4);
		assert_int_equal(p.ranks[r].slot, r % 4);
	}
	assert_string_equal(p.warning, "");
	plan_free(&p);
	/* There is one group more than fits inside nodes. It gets the devices that the others
	 * leave, and the plan states that. */
	job = job_of(NULL, "parallel.tp=4 parallel.dp=5 batch.global=40");
	p = plan_of(&job, c);
	for (int r = 0; r < 16; r++)
		assert_int_equal(p.ranks[r].node, r / 4);
	assert_int_equal(p.ranks[17].node, 0);
	assert_int_equal(p.ranks[18].node, 1);
	assert_non_null(strstr(p.warning, "cross nodes"));
	plan_free(&p);
}

static void different_nodes_are_filled_to_their_own_size(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, a100, 3);
	y.kinds[1] = a100;
	y.kinds[1].devices = 3;
	y.c.n_kinds = 2;
	y.nodes[1].kind = 1;
	struct job job = job_of(NULL, "parallel.tp=2 parallel.dp=8 model.kv_heads=4");
	struct plan p = plan_of(&job, c);
	/* the different node stays free: with it, the replicas' ring would be as slow as its one
	 * NIC */
	for (int r = 0; r < 16; r++)
		assert_int_equal(p.ranks[r].node, r < 8 ? 0 : 2);
	assert_int_equal(p.place.n_spares, 1);
	assert_int_equal(p.place.spares[0], 1);
	plan_free(&p);
	static const int nodes[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2 };
	job = job_of(NULL, "parallel.tp=2 parallel.dp=9 batch.global=36 model.kv_heads=4");
	p = plan_of(&job, c);
	for (int r = 0; r < 18; r++)
		assert_int_equal(p.ranks[r].node, nodes[r]);
	plan_free(&p);
}

static void dp_fills_the_devices_as_far_as_the_batch_divides(void **state)
{
	static const struct {
		const char *words;
		int dp;
	} cases[] = {
		{ "parallel.dp=0", 8 },
		{ "parallel.dp=0 parallel.tp=2", 4 },
		{ "parallel.dp=0 parallel.tp=4 parallel.pp=2", 1 },
		{ "parallel.dp=0 batch.micro=4 batch.global=24", 6 },
		{ "parallel.dp=0 batch.micro=4 batch.global=28", 7 },
		{ "parallel.dp=0 batch.micro=4 batch.global=44", 1 },
	};
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct job job = job_of(NULL, cases[i].words);
		struct plan p = plan_of(&job, c);
		assert_int_equal(p.layout.dp, cases[i].dp);
		assert_int_equal(job.batch.global, job.batch.micro * p.micros * p.layout.dp);
		plan_free(&p);
	}
}

static void threads_share_the_cores(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	struct job job = job_of(NULL, "parallel.dp=2");
	struct plan p = plan_of(&job, c);
	assert_int_equal(p.threads, 8);
	plan_free(&p);
	job = job_of(NULL, "parallel.dp=2 launch.threads=3");
	p = plan_of(&job, c);
	assert_int_equal(p.threads, 3);
	plan_free(&p);
	y.kinds[0].cores = 2;
	job = job_of(NULL, "parallel.dp=8");
	p = plan_of(&job, c);
	assert_int_equal(p.threads, 1);
	plan_free(&p);
}

static void must_not_fit(const struct job *job, const struct cluster *c, const char *text)
{
	struct plan p;
	struct err e = ERR_INIT;
	if (!plan_build(job, c, &p, &e))
		fail_msg("fits");
	assert_int_equal(e.code, ERR_NOFIT);
	assert_memory_equal(e.text, text, strlen(text));
}

static void too_many_ranks_are_refused_with_the_nearest_that_fit(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	struct job job = job_of(NULL, "parallel.tp=4 parallel.dp=2 parallel.pp=2");
	must_not_fit(&job, c,
		     "tp 4 × dp 2 × pp 2 = 16 ranks, and local:1 has 8 devices; nearest that fit: "
		     "parallel.");
	job = job_of(NULL, "parallel.tp=4 parallel.dp=0 parallel.pp=4");
	must_not_fit(&job, c,
		     "tp 4 × dp 1 × pp 4 = 16 ranks, and local:1 has 8 devices; nearest that fit: "
		     "parallel.");
}

/* Each value is in its range, but their product needs more than 63 bits. */
static void the_largest_sizes_of_all_do_not_fit(void **state)
{
	struct test_cluster y;
	struct plan p;
	struct err e = ERR_INIT;
	(void)state;
	struct cluster *c = build(&y, a100, 1);
	struct job job = job_of(
		NULL, "parallel.dp=1 batch.micro=1048576 batch.global=1048576 model.seq=16777216 "
		      "model.hidden=1048576 model.heads=8192 model.ffn=4194304 "
		      "model.vocab=16777216 model.layers=10000");
	assert_int_equal(plan_build(&job, c, &p, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_non_null(strstr(e.text, "that a device of box:1 leaves it: activations "));
}

static void what_does_not_fit_the_memory_is_refused_by_part(void **state)
{
	struct test_cluster y;
	struct plan p;
	struct err e = ERR_INIT;
	(void)state;
	struct cluster *c = build(&y, a100, 16);
	struct job job = job_of("templates/jobs/175b.ini", PLAIN "parallel.pp=4 parallel.dp=4");
	assert_int_equal(plan_build(&job, c, &p, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_non_null(strstr(e.text, "rank 0 (tp 0, dp 0, pp 0) needs 1"));
	assert_non_null(strstr(
		e.text,
		" GiB more than the 76 GiB that a device of box:16 leaves it: activations "));
	assert_non_null(strstr(e.text, "; nearest that fit: "));
	struct err brief = ERR_BRIEF;
	assert_int_equal(plan_build(&job, c, &p, &brief), -1);
	assert_non_null(strstr(brief.text, "that a device of box:16 leaves it: activations "));
	assert_null(strchr(brief.text, ';'));
	job = job_of("templates/jobs/175b.ini", PLAIN "parallel.pp=1 parallel.tp=1 parallel.dp=1");
	c = build(&y, a100, 1);
	must_not_fit(&job, c,
		     "rank 0 (tp 0, dp 0, pp 0) needs 2.7 TiB, 2.6 TiB more than the 78 GiB that a "
		     "device of box:1 leaves it: optimizer state 1.3 TiB, "
		     "parameters 650 GiB, gradients 650 GiB, activations 144 GiB; no degrees fit: "
		     "use more or larger devices, or a smaller model, batch.micro or model.seq");
}

static void the_hint_names_what_makes_the_same_degrees_fit(void **state)
{
	/* clang-format off */
	static const struct { const char *file, *words; int nodes; const char *says; } cases[] = {
		{ "templates/jobs/llama-13b-zero3.ini", "parallel.zero=1", 2, "parallel.zero = 2 (" },
		{ "templates/jobs/175b.ini", PLAIN "parallel.pp=4 parallel.dp=16 precision.dtype=bf16", 64, "parallel.zero = 1 (" },
		{ "templates/jobs/llama-70b.ini", "parallel.tp=2 parallel.pp=8", 4, "recompute.mode = full (" },
		/* sp has no effect with tp = 1, interleaved none with pp = 1. */
		{ "templates/jobs/llama-70b.ini", "parallel.dp=8", 4, "parallel.tp = 4, parallel.dp = 2 (" },
	};
	/* clang-format on */
	struct test_cluster y;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct job job = job_of(cases[i].file, cases[i].words);
		struct err e = ERR_INIT;
		struct plan p;
		if (!plan_build(&job, build(&y, a100, cases[i].nodes), &p, &e))
			fail_msg("%s %s fits", cases[i].file, cases[i].words);
		if (!strstr(e.text, cases[i].says))
			fail_msg("%s", e.text);
	}
}

/* No degrees fit one node with the job's other keys, and --auto finds an offloaded optimizer. */
static void the_hint_is_what_auto_finds_if_no_degrees_fit(void **state)
{
	struct test_cluster y;
	struct err e = ERR_INIT;
	struct plan p;
	struct buf says = BUF_INIT;
	struct search *found = calloc(1, sizeof *found);
	(void)state;
	assert_non_null(found);
	struct cluster *c = build(&y, a100, 1);
	struct job job = job_of("templates/jobs/llama-70b.ini", ""), best = job;
	best.open = OPEN_ALL;
	struct search_options like_auto = { .finalists = SEARCH_FINALISTS, .front = true };
	if (search_run(&best, c, &like_auto, found, &e))
		fail_msg("%s", e.text);
	assert_true(found->found[0].leaf.config.optimizer);
	struct search_config from = search_config_of(&job, (int)job.parallel.dp);
	buf_puts(&says, "; no nearby degrees fit; muster plan --auto finds ");
	search_config_changes(&from, &found->found[0].leaf.config, &says);
	assert_int_equal(plan_build(&job, c, &p, &e), -1);
	if (!strstr(e.text, buf_str(&says)))
		fail_msg("%s\nis not\n%s", e.text, buf_str(&says));
	search_config_apply(&found->found[0].leaf.config, &best);
	p = plan_of(&best, c);
	plan_free(&p);
	buf_fini(&says);
	free(found);
}

static void cpu_agents_share_their_nodes_memory(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	struct job job = job_of(NULL, "parallel.dp=1");
	struct plan p = plan_of(&job, c);
	assert_true(p.memory == 16 * GIB);
	plan_free(&p);
	job = job_of(NULL, "parallel.dp=8");
	p = plan_of(&job, c);
	assert_true(p.memory == 2 * GIB);
	plan_free(&p);
}

/* The stages of a node offload different amounts, and their sum counts. */
static void what_a_nodes_ranks_offload_adds_up(void **state)
{
	struct test_cluster y;
	(void)state;
	struct job job = job_of(NULL, "job.device=cuda parallel.dp=1 parallel.pp=8 model.layers=8 "
				      "model.hidden=4096 model.heads=32 model.seq=2048 "
				      "precision.dtype=bf16 batch.global=32 batch.micro=1 "
				      "checkpoint.memory_every=0 offload.activations=yes");
	struct plan p = plan_of(&job, build(&y, a100, 1));
	double sum = 0, most = 0;
	for (int i = 0; i < p.world; i++) {
		sum += p.ranks[i].host;
		most = fmax(most, p.ranks[i].host);
	}
	plan_free(&p);
	assert_true(sum < 0.8 * 8 * most);
	struct node_kind box = a100;
	for (int enough = 0; enough < 2; enough++) {
		struct search_config c = search_config_of(&job, 1);
		struct err e = ERR_INIT;
		struct eval_leaf leaf;
		struct space *s = calloc(1, sizeof *s);
		box.memory = (enough ? 1.01 : 0.99) * sum / 0.85;
		build(&y, box, 1);
		assert_non_null(s);
		assert_int_equal(search_space_open(&job, &y.c, s, &e), 0);
		struct eval *v = search_eval_open(s, &e);
		assert_true(v && search_eval_config(v, &c, &leaf));
		assert_int_equal(leaf.fits, enough);
		search_eval_close(v);
		free(s);
		if (enough) {
			p = plan_of(&job, &y.c);
			plan_free(&p);
		} else {
			must_not_fit(&job, &y.c, "the 8 ranks of node n0 keep ");
		}
	}
}

static void a_checkpoints_snapshot_counts_on_cpus_alone(void **state)
{
	struct test_cluster y;
	(void)state;
	struct job job = job_of(NULL, "parallel.tp=2 parallel.dp=3 batch.global=24");
	struct plan p = plan_of(&job, build(&y, cpu, 1));
	double sum = 0;
	for (int i = 0; i < p.world; i++) {
		struct plan_rank *r = &p.ranks[i];
		assert_true(r->total == r->params + r->grads + r->optimizer + r->activations +
						r->buffers + r->snapshot);
		assert_true(plan_largest(&p, 0)->total >= r->total);
		sum += r->snapshot;
	}
	assert_true(sum == 3 * sizeof(float) * (double)shape_params(&p.shape));
	plan_free(&p);
	p = plan_of(&job, build(&y, a100, 1));
	assert_true(p.ranks[0].snapshot == 0);
	plan_free(&p);
	/* Parameters, gradients and moments would fit, but their copy does not. */
	struct err e = ERR_INIT;
	struct node_kind small = cpu;
	small.memory = 3 * GIB;
	job = job_of(NULL, "parallel.dp=1 model.layers=12 model.hidden=1024 model.heads=16 "
			   "batch.micro=1 model.seq=64");
	assert_int_equal(plan_build(&job, build(&y, small, 1), &p, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_non_null(strstr(e.text, ": a checkpoint's snapshot 1.7 GiB, "));
}

static void memory_follows_the_layout(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, a100, 8);
	struct job job = job_of(NULL,
				"model.layers=8 model.hidden=512 model.heads=8 model.vocab=50257 "
				"parallel.tp=1 parallel.pp=1 parallel.dp=1");
	struct plan one = plan_of(&job, c);
	struct plan_rank *r = &one.ranks[0];
	double params = (double)shape_params(&one.shape);
	assert_true(r->params >= 4 * params && r->params < 4 * params * 1.001);
	assert_true(r->grads == r->params && r->optimizer == 2 * r->params);
	assert_true(r->total == r->params + r->grads + r->optimizer + r->activations + r->buffers);

	/* The sum of the split tensors over the tp ranks is the whole. dp changes only the tokens'
	 * buffer. */
	job = job_of(NULL, "model.layers=8 model.hidden=512 model.heads=8 model.vocab=50257 "
			   "parallel.tp=4 parallel.pp=2 parallel.dp=2");
	struct plan many = plan_of(&job, c);
	double sum = 0;
	for (int i = 0; i < many.world; i++)
		if (many.ranks[i].at.dp == 0)
			sum += many.ranks[i].params;
	double copy = 4 * 50257.0 * 512; /* the tied head's */
	assert_true(sum > r->params + copy && sum < (r->params + copy) * 1.02);
	assert_true(many.ranks[0].activations < one.ranks[0].activations);
	plan_free(&many);

	/* 1F1B keeps as many micro-batches as there are stages left; GPipe keeps all. */
	job = job_of(NULL, "model.layers=8 parallel.pp=4 parallel.dp=1 parallel.schedule=1f1b");
	struct plan f = plan_of(&job, c);
	job = job_of(NULL, "model.layers=8 parallel.pp=4 parallel.dp=1 parallel.schedule=gpipe");
	struct plan g = plan_of(&job, c);
	assert_true(fabs(f.ranks[1].activations * 8 / 3 - g.ranks[1].activations) < 1);
	assert_true(fabs(f.ranks[3].activations * 8 - g.ranks[3].activations) < 1);
	plan_free(&g);
	plan_free(&f);
	plan_free(&one);
}

/* zb-v over 4 ranks: the first and the last of 8 stages are on rank 0, and 6 layers on the
 * others. */
static void ends_without_layers_hold_the_embedding_and_the_head(void **state)
{
	struct test_cluster y;
	struct buf text = BUF_INIT;
	(void)state;
	struct cluster *c = build(&y, a100, 1);
	struct job job = job_of(NULL, "plan.engine=megatron-2022 job.device=cuda model.family=gpt2 "
				      "model.layers=6 model.hidden=1024 model.heads=16 "
				      "model.seq=1024 model.vocab=50304 precision.dtype=fp16 "
				      "parallel.pp=4 parallel.dp=2 parallel.schedule=zb-v "
				      "batch.micro=2 batch.global=32");
	struct plan p = plan_of(&job, c);
	double ends = 1024.0 * (50304 + 1024 + 2), layer = 1024.0 * (12 * 1024 + 13);
	assert_true(p.stages[0].layer_hi == 0 && p.stages[7].layer_lo == 6);
	assert_true(p.ranks[0].params == 2 * ends && p.ranks[0].activations == 0);
	for (int pp = 1; pp < 4; pp++)
		assert_true(p.ranks[2 * pp].at.pp == pp && p.ranks[2 * pp].params == 4 * layer &&
			    p.ranks[2 * pp].activations > 0);
	show_plan_text(&job, c, &p, &text);
	assert_non_null(strstr(buf_str(&text), "\n  0       - -  "));
	assert_non_null(strstr(buf_str(&text), "\n  1       0 5  "));
	json_t *json = show_plan_json(&job, c, &p);
	json_t *stage = json_array_get(json_object_get(json, "stages"), 0),
	       *layers = json_object_get(stage, "layers");
	assert_int_equal(json_integer_value(json_array_get(layers, 1)), 0);
	assert_true(json_is_true(json_object_get(stage, "embedding")));
	json_decref(json);
	buf_fini(&text);
	plan_free(&p);
}

static void zero_shards_over_all_or_inside_nodes(void **state)
{
	struct test_cluster y;
	struct plan p;
	struct err e = ERR_INIT;
	(void)state;
	struct node_kind four = a100;
	four.devices = 4;
	struct cluster *c = build(&y, four, 2);
	struct job job = job_of(NULL,
				"model.hidden=512 model.heads=8 parallel.dp=8 parallel.zero=1");
	struct plan all = plan_of(&job, c);
	job = job_of(NULL, "model.hidden=512 model.heads=8 parallel.dp=8 parallel.zero=1 "
			   "parallel.zero_shard=node");
	struct plan node = plan_of(&job, c);
	assert_int_equal(node.ranks[5].node_replicas, 4);
	assert_true(fabs(node.ranks[0].optimizer / all.ranks[0].optimizer - 2) < 0.01);
	assert_true(all.ranks[0].params == node.ranks[0].params);
	plan_free(&all);
	plan_free(&node);
	job = job_of(NULL,
		     "parallel.dp=6 batch.global=48 parallel.zero=1 parallel.zero_shard=node");
	assert_int_equal(plan_build(&job, c, &p, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(
		strstr(e.text, "zero_shard = node: n0 holds 4 replicas of a parameter and n1 2"));
	job = job_of(NULL, "parallel.dp=1 parallel.zero=2");
	p = plan_of(&job, c);
	assert_string_equal(p.warning, "zero = 2 has no replicas to shard over: dp × cp = 1");
	plan_free(&p);
}

/* Each strategy saves memory in the part for which it is made. */
static void strategies_save_what_they_are_for(void **state)
{
	/* clang-format off */
	static const struct { const char *without, *with; size_t part; double least, most; } rows[] = {
		{ "parallel.dp=4", "parallel.dp=4 parallel.zero=1", offsetof(struct plan_rank, optimizer), 3.9, 4.1 },
		{ "parallel.dp=4", "parallel.dp=4 parallel.zero=2", offsetof(struct plan_rank, grads), 3.9, 4.1 },
		{ "parallel.dp=4", "parallel.dp=4 parallel.zero=3", offsetof(struct plan_rank, params), 3.9, 4.1 },
		{ "parallel.dp=1", "parallel.dp=1 precision.dtype=bf16", offsetof(struct plan_rank, params), 1.99, 2.01 },
		{ "parallel.dp=1", "parallel.dp=1 precision.dtype=bf16", offsetof(struct plan_rank, activations), 1.8, 2.01 },
		{ "parallel.dp=1", "parallel.dp=1 recompute.mode=selective", offsetof(struct plan_rank, activations), 1.3, 2 },
		{ "parallel.dp=1", "parallel.dp=1 recompute.mode=full", offsetof(struct plan_rank, activations), 4, 16 },
		{ "parallel.dp=1 parallel.tp=4", "parallel.dp=1 parallel.tp=4 parallel.sp=yes", offsetof(struct plan_rank, activations), 1.5, 3 },
		{ "parallel.dp=1", "parallel.dp=1 parallel.cp=4", offsetof(struct plan_rank, activations), 3.9, 4.1 },
		{ "parallel.dp=1 optimizer.kind=adamw", "parallel.dp=1 optimizer.kind=sgd", offsetof(struct plan_rank, optimizer), 1.99, 2.01 },
		{ "parallel.dp=1 optimizer.kind=adamw", "parallel.dp=1 optimizer.kind=muon", offsetof(struct plan_rank, optimizer), 1.8, 2 },
		{ "parallel.dp=1 optimizer.kind=adamw", "parallel.dp=1 optimizer.kind=adafactor", offsetof(struct plan_rank, optimizer), 300, 500 },
		{ "parallel.dp=1 parallel.pp=4 parallel.schedule=gpipe", "parallel.dp=1 parallel.pp=4", offsetof(struct plan_rank, activations), 1.9, 2.1 },
	};
	/* clang-format on */
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, a100, 8);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char words[2][400];
		struct plan p[2];
		double part[2];
		for (int k = 0; k < 2; k++) {
			snprintf(words[k], sizeof words[k],
				 "model.layers=16 model.hidden=512 model.heads=8 %s",
				 k ? rows[i].with : rows[i].without);
			struct job job = job_of(NULL, words[k]);
			p[k] = plan_of(&job, c);
			memcpy(&part[k], (const char *)&p[k].ranks[0] + rows[i].part,
			       sizeof part[k]);
		}
		if (part[0] / part[1] < rows[i].least || part[0] / part[1] > rows[i].most)
			fail_msg("%s: 1/%.2f of the bytes without", rows[i].with,
				 part[0] / part[1]);
		plan_free(&p[0]);
		plan_free(&p[1]);
	}
}

static double part_sum(const struct plan_time *t)
{
	double sum = 0;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum += t->parts[i];
	return sum;
}

static void the_parts_of_a_step_add_up(void **state)
{
	static const char *const words[] = {
		"parallel.dp=1",
		"parallel.dp=8",
		"parallel.tp=4 parallel.dp=2",
		"parallel.pp=4 parallel.dp=2",
		"parallel.tp=2 parallel.pp=2 parallel.dp=2",
	};
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		struct job job = job_of(NULL, words[i]);
		struct plan p = plan_of(&job, c);
		assert_true(p.time.compute > 0 && p.time.pp > -1e-9 && p.time.optimizer > 0);
		assert_true((p.time.tp > 0) == (p.layout.tp > 1));
		/* the tied head's gradients */
		assert_true((p.time.dp > 0) == (p.layout.dp > 1 || p.layout.pp > 1));
		assert_true(fabs(part_sum(&p.time) / p.time.total - 1) < 1e-9);
		plan_free(&p);
	}
}

static void unknown_figures_still_give_a_prediction(void **state)
{
	struct test_cluster y;
	(void)state;
	struct node_kind blank = { .name = "blank", .device = "cpu", .devices = 4 };
	struct cluster *c = build(&y, blank, 2);
	struct job job = job_of(NULL, "parallel.tp=2 parallel.pp=2 parallel.dp=2");
	struct plan p = plan_of(&job, c);
	assert_true(isfinite(p.time.total) && p.time.total > 0);
	assert_int_equal(p.threads, 1);
	assert_true(p.memory == 0);
	plan_free(&p);
}

static void the_text_shows_the_device_of_every_rank(void **state)
{
	struct test_cluster y;
	struct buf text = BUF_INIT;
	(void)state;
	struct cluster *c = build(&y, cpu, 1);
	struct job job = job_of("templates/jobs/demo.ini", "");
	struct plan p = plan_of(&job, c);
	show_plan_text(&job, c, &p, &text);
	assert_non_null(strstr(buf_str(&text), "Plan for demo on local:1\n"));
	assert_non_null(strstr(buf_str(&text), "8 ranks = tp 2 × dp 2 × pp 2, 2 threads each\n"));
	assert_non_null(strstr(buf_str(&text),
			       "  n0\n"
			       "    ┌────────────┬────────────┬────────────┬────────────┐\n"
			       "    │ pp 0 dp 0  │ pp 0 dp 1  │ pp 1 dp 0  │ pp 1 dp 1  │\n"
			       "    │ 0 1        │ 2 3        │ 4 5        │ 6 7        │\n"
			       "    └────────────┴────────────┴────────────┴────────────┘\n"));
	assert_null(strstr(buf_str(&text), "failures"));
	plan_free(&p);
	buf_fini(&text);
}

static void a_thousand_ranks_fit_a_page(void **state)
{
	struct test_cluster y;
	struct buf text = BUF_INIT;
	int lines = 0;
	(void)state;
	struct cluster *c = build(&y, a100, 128);
	struct job job = job_of("templates/jobs/175b.ini", "");
	struct plan p = plan_of(&job, c);
	show_plan_text(&job, c, &p, &text);
	for (const char *s = buf_str(&text); *s; s++)
		lines += *s == '\n';
	assert_true(lines <= 60);
	assert_non_null(
		strstr(buf_str(&text),
		       "  n8 … n15                               1  0-7       0-7       64-127\n"));
	const char *mine = strstr(buf_str(&text), "  this map             "),
		   *note = strstr(buf_str(&text), "  Slurm's block order: none of ");
	assert_true(mine && note && note < strchr(mine, '\n'));
	assert_null(strstr(buf_str(&text), "\n  Slurm's block order  ")); /* not printed twice */
	assert_non_null(strstr(buf_str(&text), "\nPredicted run\n  95000 steps      "));
	assert_non_null(strstr(buf_str(&text),
			       "  failures         one of each node in 6300 hours, about "));
	plan_free(&p);
	buf_fini(&text);
}

static void the_text_explains_the_map_of_ranks(void **state)
{
	struct buf text = BUF_INIT;
	struct cluster c;
	(void)state;
	assert_int_equal(topo_cluster_open("dgx-1:2", 0, &c, NULL), 0);
	struct job job = job_of(
		NULL, "parallel.tp=8 parallel.dp=1 model.heads=8 model.hidden=512 model.seq=512");
	struct plan p = plan_of(&job, &c);
	show_plan_text(&job, &c, &p, &text);
	/* Ranks, and below them their GPUs: the order goes round the ring of double NVLinks. */
	assert_non_null(strstr(buf_str(&text), "│ 0 1 2 3 4 5 6 7 │\n    │ 0 3 2 1 5 6 7 4 │\n"));
	assert_non_null(strstr(buf_str(&text), "  the best of "));
	assert_non_null(strstr(buf_str(&text), "\n  Slurm's block order  "));
	assert_non_null(strstr(buf_str(&text), "\n  worst map tried      "));
	assert_non_null(strstr(buf_str(&text), "  tp                 8     1  NVLink "));
	assert_non_null(strstr(buf_str(&text), "  spare node: node1\n"));
	json_t *j = show_plan_json(&job, &c, &p), *place = json_object_get(j, "placement"),
	       *tp = json_array_get(json_object_get(place, "groups"), 0);
	assert_string_equal(json_string_value(json_object_get(place, "order")), "placed");
	assert_true(json_real_value(json_object_get(place, "seconds")) <
		    json_real_value(json_object_get(place, "block_seconds")));
	assert_string_equal(json_string_value(json_array_get(json_object_get(place, "spares"), 0)),
			    "node1");
	assert_string_equal(json_string_value(json_object_get(tp, "kind")), "tp");
	assert_string_equal(json_string_value(json_object_get(tp, "inside")), "NVL");
	json_decref(j);
	plan_free(&p);
	buf_fini(&text);
	topo_cluster_free(&c);
}

static void the_text_names_fixed_maps_and_free_devices(void **state)
{
	struct buf text = BUF_INIT;
	struct cluster c;
	(void)state;
	assert_int_equal(topo_cluster_open("dgx-1:2", 0, &c, NULL), 0);
	struct job job = job_of(NULL, "parallel.tp=3 parallel.dp=4 model.heads=6 model.hidden=384 "
				      "model.ffn=768 model.vocab=300 parallel.zero=1 "
				      "parallel.zero_shard=node");
	struct plan p = plan_of(&job, &c);
	show_plan_text(&job, &c, &p, &text);
	assert_non_null(
		strstr(buf_str(&text),
		       "Slurm's block order of whole tp groups, as the job's settings ask\n"));
	assert_non_null(strstr(buf_str(&text), "  4 devices stay free on nodes that hold ranks\n"));
	double waited = 0;
	for (int k = 0; k < GROUP_KINDS; k++)
		waited += p.place.links[k].bytes > 0 ? p.place.links[k].waited : 0;
	/* the table adds up to its head */
	assert_true(fabs(waited / p.place.cost.total - 1) < 1e-9);
	plan_free(&p);
	buf_fini(&text);
	topo_cluster_free(&c);
	/* There are few enough devices to try all maps. */
	assert_int_equal(topo_cluster_open("dgx-1:1", 0, &c, NULL), 0);
	job = job_of(NULL,
		     "parallel.tp=8 parallel.dp=1 model.heads=8 model.hidden=512 model.seq=512");
	p = plan_of(&job, &c);
	text = (struct buf)BUF_INIT;
	show_plan_text(&job, &c, &p, &text);
	assert_non_null(strstr(buf_str(&text), "  no map costs less\n"));
	plan_free(&p);
	buf_fini(&text);
	topo_cluster_free(&c);
}

/* Boxes of ranks that are not consecutive: the stages' replicas share nodes. */
static void a_table_of_folded_ranks_names_them_all(void **state)
{
	struct test_cluster y;
	struct buf text = BUF_INIT;
	(void)state;
	struct cluster *c = build(&y, a100, 16);
	struct job job = job_of(NULL, "parallel.tp=2 parallel.dp=4 parallel.pp=16 model.layers=16");
	struct plan p = plan_of(&job, c);
	for (int r = 0; r < p.world; r++) { /* a node holds halves of two stages */
		p.ranks[r].node = p.ranks[r].at.pp / 2 * 2 + p.ranks[r].at.dp / 2;
		p.ranks[r].slot = p.ranks[r].at.pp % 2 * 4 + p.ranks[r].at.dp % 2 * 2 +
				  p.ranks[r].at.tp;
	}
	show_plan_text(&job, c, &p, &text);
	assert_non_null(
		strstr(buf_str(&text),
		       "  n0 … n1                              0-1  0-3       0-1       0-15\n"));
	p.ranks[0].node = 2; /* no box any more; the table lists it as it is */
	p.ranks[16].node = 0;
	buf_fini(&text);
	text = (struct buf)BUF_INIT;
	show_plan_text(&job, c, &p, &text);
	assert_non_null(strstr(
		buf_str(&text),
		"  n0                                   0-2  0-1       0-1       8 of 1-16\n"));
	plan_free(&p);
	buf_fini(&text);
}

static void the_json_holds_the_whole_plan(void **state)
{
	struct test_cluster y;
	(void)state;
	struct cluster *c = build(&y, a100, 128);
	struct job job = job_of("templates/jobs/175b.ini", "");
	struct plan p = plan_of(&job, c);
	json_t *j = show_plan_json(&job, c, &p);
	assert_non_null(j);
	assert_int_equal(json_integer_value(json_object_get(j, "world")), 1024);
	assert_int_equal(json_array_size(json_object_get(j, "ranks")), 1024);
	/* 16 ranks of 6 chunks */
	assert_int_equal(json_array_size(json_object_get(j, "stages")), 96);
	assert_int_equal(json_array_size(json_object_get(j, "nodes")), 128);
	json_t *r = json_array_get(json_object_get(j, "ranks"), 777);
	static const int last[] = { 1, 0, 1, 12, 97, 1 };
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(json_integer_value(json_array_get(r, i)), last[i]);
	json_t *t = json_object_get(json_object_get(j, "step_seconds"), "total");
	assert_true(json_real_value(t) == p.time.total);
	t = json_object_get(json_object_get(j, "train"), "total_seconds");
	assert_true(json_real_value(t) > 95000 * p.time.total);
	char *text = json_dumps(j, JSON_COMPACT);
	assert_non_null(text);
	assert_true(strlen(text) < 1 << 16);
	free(text);
	json_decref(j);
	plan_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_fill_nodes_in_order),
		cmocka_unit_test(sizes_that_gpus_dislike_are_warned_of_with_the_next_good_ones),
		cmocka_unit_test(types_that_devices_lack_are_named),
		cmocka_unit_test(tensor_groups_stay_inside_nodes_while_there_is_room),
		cmocka_unit_test(different_nodes_are_filled_to_their_own_size),
		cmocka_unit_test(dp_fills_the_devices_as_far_as_the_batch_divides),
		cmocka_unit_test(threads_share_the_cores),
		cmocka_unit_test(too_many_ranks_are_refused_with_the_nearest_that_fit),
		cmocka_unit_test(the_largest_sizes_of_all_do_not_fit),
		cmocka_unit_test(what_does_not_fit_the_memory_is_refused_by_part),
		cmocka_unit_test(the_hint_names_what_makes_the_same_degrees_fit),
		cmocka_unit_test(the_hint_is_what_auto_finds_if_no_degrees_fit),
		cmocka_unit_test(cpu_agents_share_their_nodes_memory),
		cmocka_unit_test(what_a_nodes_ranks_offload_adds_up),
		cmocka_unit_test(a_checkpoints_snapshot_counts_on_cpus_alone),
		cmocka_unit_test(memory_follows_the_layout),
		cmocka_unit_test(ends_without_layers_hold_the_embedding_and_the_head),
		cmocka_unit_test(zero_shards_over_all_or_inside_nodes),
		cmocka_unit_test(strategies_save_what_they_are_for),
		cmocka_unit_test(the_parts_of_a_step_add_up),
		cmocka_unit_test(unknown_figures_still_give_a_prediction),
		cmocka_unit_test(the_text_shows_the_device_of_every_rank),
		cmocka_unit_test(a_thousand_ranks_fit_a_page),
		cmocka_unit_test(the_text_explains_the_map_of_ranks),
		cmocka_unit_test(the_text_names_fixed_maps_and_free_devices),
		cmocka_unit_test(a_table_of_folded_ranks_names_them_all),
		cmocka_unit_test(the_json_holds_the_whole_plan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
