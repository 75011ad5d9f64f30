#include "launcher/fit.h"

#include "plan/plan.h"
#include "plan/search/search.h"

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

static void a_layout_that_does_not_fit_changes_as_far_as_the_job_permits(void **state)
{
	(void)state;
	static const char eight[] = "parallel.tp=2", pp[] = "parallel.pp=2", dp[] = "parallel.dp=2",
			  range[] = "slurm.nodes=1-4";
	/* clang-format off */
	static const struct {
		const char *words[WORDS];
		int nodes;
		bool requeued;
		int dp; /* afterwards; 0: planned again; -1: refused */
		const char *says;
	} rows[] = {
		{ { eight, pp, dp, range }, 4, false, 2, "" },
		{ { eight, pp, dp, range }, 3, false, 1, "dp = 1 instead of 2: 3 nodes hold no more; the global batch stays 32" },
		{ { eight, pp, dp, range, "restart.shrink=dp" }, 2, false, 1, "dp = 1 instead of 2: 2 nodes" },
		{ { eight, pp, dp, range, "restart.shrink=keep" }, 3, false, -1, "shrink = keep allows no other layout" },
		{ { eight, pp, dp, range }, 1, false, 0, "1 node holds not one replica of it" },
		{ { eight, pp, dp, range, "restart.shrink=dp" }, 1, false, 2, "" },
		/* dp must divide the global batch: 5 of 6 replicas would fit, and 4 divide. */
		{ { "parallel.dp=8", "batch.micro=1", "batch.global=16", range }, 3, false, 4, "dp = 4 instead of 8" },
		/* Whoever asks for one number of nodes gets what the degrees say, or a refusal. */
		{ { eight, pp, dp, "slurm.nodes=4" }, 3, false, 2, "" },
		{ { eight, pp, dp, "slurm.nodes=4" }, 3, true, 1, "dp = 1 instead of 2" },
		{ { eight, pp, dp, "slurm.nodes=4", "restart.shrink=keep" }, 3, true, -1, "request more nodes" },
		/* A list names as many devices as there are ranks. */
		{ { dp, range, "launch.speeds=1,2" }, 4, false, 2, "" },
		{ { "parallel.dp=4", range, "launch.speeds=1,2,1,1" }, 1, false, 4, "" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job, asked;
		struct cluster c;
		struct buf said = BUF_INIT;
		struct err e = ERR_INIT;
		job_of(rows[i].words, &asked);
		job = asked;
		cluster_of(rows[i].nodes, &c);
		int rc = launcher_fit_job(&job, &c, rows[i].requeued, &said, &e);
		assert_int_equal(rc, rows[i].dp < 0 ? -1 : 0);
		if (rc)
			buf_puts(&said, e.text);
		if (!strstr(buf_str(&said), rows[i].says) || (!*rows[i].says && said.len))
			fail_msg("row %zu: \"%s\"", i, buf_str(&said));
		if (rows[i].dp > 0)
			assert_int_equal(job.parallel.dp, rows[i].dp);
		assert_int_equal(job.open != 0, rows[i].dp == 0);
		assert_int_equal(job.batch.global, asked.batch.global);
		buf_fini(&said);
		topo_cluster_free(&c);
	}
}

/* What a search finds for the nodes can be planned, and the batch is that of the job. */
static void a_job_that_is_planned_again_fits(void **state)
{
	(void)state;
	static const char *const words[WORDS] = {
		"parallel.tp=2",   "parallel.pp=2",
		"parallel.dp=2",   "parallel.schedule=interleaved",
		"parallel.sp=yes", "slurm.nodes=1-4"
	};
	struct job job;
	struct cluster c;
	struct plan plan;
	struct buf said = BUF_INIT;
	struct err e = ERR_INIT;
	job_of(words, &job);
	cluster_of(1, &c);
	assert_int_equal(launcher_fit_job(&job, &c, false, &said, &e), 0);
	if (search_resolve(&job, &c, &e) || plan_build(&job, &c, &plan, &e))
		fail_msg("%s", e.text);
	assert_int_equal(job.batch.global, 32);
	assert_in_range(plan.world, 1, 2);
	plan_free(&plan);
	buf_fini(&said);
	topo_cluster_free(&c);
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
		cmocka_unit_test(a_job_that_is_planned_again_fits),
		cmocka_unit_test(a_plan_that_lacks_the_spares_names_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
