#include "launcher/fit.h"

#include "plan/search/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 10, NODES_MAX = 8 };

/* A cluster of n nodes with 2 slots each, named n1, n2, …; to be freed. */
static void cluster_of(int n, struct cluster *c)
{
	static struct node_kind kind = {
		.name = "box", .device = "cpu", .devices = 2, .cores = 4, .numa = 1
	};
	static struct cluster_node nodes[NODES_MAX];
	const struct cluster all = {
		.name = "slurm", .kinds = &kind, .n_kinds = 1, .nodes = nodes, .n_nodes = n
	};
	for (int i = 0; i < n; i++) {
		nodes[i] = (struct cluster_node){ .leaf = -1, .domain = -1 };
		snprintf(nodes[i].name, sizeof nodes[i].name, "n%d", i + 1);
	}
	assert_int_equal(topo_cluster_without(&all, NULL, 0, c, NULL), 0);
}

static void job_of(const char *const *words, struct job *job)
{
	struct err e = ERR_INIT;
	int n = 0;
	while (n < WORDS && words[n])
		n++;
	if (job_load(NULL, words, n, job, &e))
		fail_msg("%s", e.text);
}

static void spares_are_the_nodes_beyond_those_that_work(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *words[WORDS];
		int nodes, working;
		const char *says;
	} rows[] = {
		{ { "slurm.nodes=3", "slurm.spares=1" }, 4, 3, "1 spare node: n4\n" },
		{ { "slurm.nodes=3", "slurm.spares=2" }, 5, 3, "2 spare nodes: n4 n5\n" },
		{ { "slurm.nodes=4" }, 4, 4, "" },
		/* Nodes that are neither requested nor spare work, too. */
		{ { "slurm.nodes=3", "slurm.spares=1" }, 5, 4, "1 spare node: n5\n" },
		/* An allocation that salloc made, by a job that says nothing of nodes. */
		{ { "slurm.spares=1" }, 4, 3, "1 spare node: n4\n" },
		{ { "slurm.spares=1" }, 1, 1, "" },
		{ { "slurm.spares=9" }, 4, 1, "3 spare nodes: n2 n3 n4\n" },
		/* A node works before a spare waits. */
		{ { "slurm.nodes=3-4", "slurm.spares=1" }, 3, 3, "" },
		{ { "slurm.nodes=3-4", "slurm.spares=1" }, 4, 4, "" },
		{ { "slurm.nodes=3-4", "slurm.spares=1" }, 5, 4, "1 spare node: n5\n" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job;
		struct cluster c;
		json_t *spares = NULL;
		struct buf said = BUF_INIT;
		job_of(rows[i].words, &job);
		cluster_of(rows[i].nodes, &c);
		assert_int_equal(launcher_spares_keep(&job, &c, &spares, NULL), 0);
		assert_int_equal(c.n_nodes, rows[i].working);
		assert_string_equal(c.nodes[0].name, "n1");
		launcher_spares_print(spares, &said);
		assert_string_equal(buf_str(&said), rows[i].says);
		assert_int_equal(json_array_size(spares), rows[i].nodes - rows[i].working);
		buf_fini(&said);
		json_decref(spares);
		topo_cluster_free(&c);
	}
}

/* Lays out the job on the cluster's nodes. Returns the deployment, to be freed, or NULL with the
 * error's text in `said`. */
static struct deployment *fit(const char *const *words, int nodes, bool requeued, struct buf *said)
{
	static struct job job;
	struct cluster c;
	struct deployment *d = NULL;
	struct err e = ERR_INIT;
	job_of(words, &job);
	cluster_of(nodes, &c);
	if (!launcher_fit_build(&job, &c, requeued, &d, said, &e)) {
		assert_int_equal(d->job.batch.global, job.batch.global);
		assert_in_range(d->plan.world, 1, 2 * nodes);
		assert_int_equal(d->job.open, 0);
		return d;
	}
	assert_int_equal(e.code, ERR_NOFIT);
	buf_puts(said, e.text);
	return NULL;
}

static void a_layout_that_does_not_fit_changes_as_far_as_the_job_permits(void **state)
{
	(void)state;
	static const char tp[] = "parallel.tp=2", pp[] = "parallel.pp=2", dp[] = "parallel.dp=2",
			  range[] = "slurm.nodes=1-4";
	/* clang-format off */
	static const struct {
		const char *words[WORDS];
		int nodes;
		bool requeued;
		const char *layout; /* as search_config_print(); NULL: any; "": refused */
		const char *says;
	} rows[] = {
		{ { tp, pp, dp, range }, 4, false, "tp 2 × dp 2 × pp 2, 1f1b, micro 4", "" },
		{ { tp, pp, dp, range, "restart.shrink=dp" }, 3, false, "tp 2 × dp 1 × pp 2, 1f1b, micro 4",
		  "3 nodes cannot hold the layout of the job; it runs with tp 2 × dp 1 × pp 2, 1f1b, micro 4, and the global batch stays 32\n" },
		{ { tp, pp, dp, range, "restart.shrink=dp" }, 2, false, "tp 2 × dp 1 × pp 2, 1f1b, micro 4", "2 nodes cannot" },
		{ { tp, pp, dp, range, "restart.shrink=dp" }, 1, false, "", "8 ranks, and slurm has 2 devices" },
		{ { tp, pp, dp, range, "restart.shrink=keep" }, 3, false, "", "[restart] shrink = keep allows no other layout: request more nodes" },
		/* Not even one replica fits. */
		{ { tp, pp, dp, range }, 1, false, NULL, "1 node cannot hold the layout of the job" },
		{ { tp, pp, dp, range, "parallel.schedule=interleaved", "parallel.sp=yes" }, 1, false, NULL, "1 node cannot hold" },
		/* dp must divide the global batch: 6 replicas would fit, and 4 divide. */
		{ { "parallel.dp=8", "batch.micro=1", "batch.global=16", range, "restart.shrink=dp" }, 3, false, "tp 1 × dp 4 × pp 1, micro 1", "3 nodes" },
		/* Whoever asks for one number of nodes gets what the degrees say, or a refusal. */
		{ { tp, pp, dp, "slurm.nodes=4" }, 3, false, "", "8 ranks, and slurm has 6 devices" },
		{ { tp, pp, dp, "slurm.nodes=4", "restart.shrink=dp" }, 3, true, "tp 2 × dp 1 × pp 2, 1f1b, micro 4", "3 nodes" },
		{ { tp, pp, dp, "slurm.nodes=4", "restart.shrink=keep" }, 3, true, "", "shrink = keep" },
		/* A list names as many devices as there are ranks. */
		{ { "parallel.dp=4", range, "launch.speeds=1,2,1,1" }, 1, false, "", "4 ranks, and slurm has 2 devices" },
		/* Keys that muster chooses are chosen for what is there. */
		{ { "parallel.auto=yes", range }, 1, false, NULL, "" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf said = BUF_INIT, layout = BUF_INIT;
		struct deployment *d = fit(rows[i].words, rows[i].nodes, rows[i].requeued, &said);
		if (d) {
			struct search_config c = search_config_of(&d->job, d->plan.layout.dp);
			search_config_print(&c, &layout);
		}
		if (rows[i].layout)
			assert_string_equal(buf_str(&layout), rows[i].layout);
		else
			assert_non_null(d);
		if (!strstr(buf_str(&said), rows[i].says) || (!*rows[i].says && said.len))
			fail_msg("row %zu: \"%s\"", i, buf_str(&said));
		launcher_deployment_free(d);
		buf_fini(&layout);
		buf_fini(&said);
	}
}

/* Of a lower dp and another layout the one that is predicted to be faster runs. */
static void the_faster_of_the_permitted_layouts_runs(void **state)
{
	(void)state;
	static const char *const any[WORDS] = { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2",
						"slurm.nodes=1-4" };
	static const char *const dp[WORDS] = { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2",
					       "slurm.nodes=1-4", "restart.shrink=dp" };
	for (int nodes = 2; nodes <= 3; nodes++) {
		struct buf said = BUF_INIT;
		struct deployment *lower = fit(dp, nodes, false, &said);
		struct deployment *best = fit(any, nodes, false, &said);
		assert_non_null(lower);
		assert_non_null(best);
		assert_true(best->plan.time.total <= lower->plan.time.total);
		launcher_deployment_free(best);
		launcher_deployment_free(lower);
		buf_fini(&said);
	}
}

static void a_later_generation_may_use_every_device(void **state)
{
	(void)state;
	static const char *const words[WORDS] = { "parallel.dp=4" };
	struct buf said = BUF_INIT;
	struct deployment *d = fit(words, 2, false, &said);
	struct cluster machines;
	cluster_of(3, &machines); /* a spare */
	assert_int_equal(launcher_deployment_most_ranks(d, &machines), 6);
	topo_cluster_free(&machines);
	/* The ranks of one device may be several: the plan counts then. */
	cluster_of(1, &machines);
	assert_int_equal(launcher_deployment_most_ranks(d, &machines), 4);
	topo_cluster_free(&machines);
	launcher_deployment_free(d);
	buf_fini(&said);
}

static void a_plan_that_lacks_the_spares_names_them(void **state)
{
	(void)state;
	json_t *spares = json_pack("[s,s]", "n4", "n5"), *none = json_array();
	struct err e = ERR_INIT;
	err_set(&e, ERR_NOFIT, "8 ranks, 6 devices");
	assert_int_equal(launcher_spares_name(none, &e), -1);
	assert_string_equal(e.text, "8 ranks, 6 devices");
	assert_int_equal(launcher_spares_name(spares, &e), -1);
	assert_non_null(strstr(e.text, "2 spare nodes: n4 n5: 8 ranks, 6 devices"));
	err_set(&e, ERR_USAGE, "a typing error");
	launcher_spares_name(spares, &e);
	assert_string_equal(e.text, "a typing error");
	json_decref(none);
	json_decref(spares);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spares_are_the_nodes_beyond_those_that_work),
		cmocka_unit_test(a_layout_that_does_not_fit_changes_as_far_as_the_job_permits),
		cmocka_unit_test(the_faster_of_the_permitted_layouts_runs),
		cmocka_unit_test(a_later_generation_may_use_every_device),
		cmocka_unit_test(a_plan_that_lacks_the_spares_names_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
