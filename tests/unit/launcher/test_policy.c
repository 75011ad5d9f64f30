/* Where the next generation runs when nodes or devices are lost, and when they are back. */
#include "launcher/supervise/policy.h"

#include "launcher/fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cluster machines;
static struct job job;
static struct pool pool;
static struct deployment *first;

static void open_run(const char *spec, int spares, const char *const *words, int n)
{
	struct err e = ERR_INIT;
	struct cluster used;
	struct cluster_slot gone = { 0, -1 };
	if (topo_cluster_open(spec, 0, &machines, &e) || job_words(words, n, &job, &e))
		fail_msg("%s", e.text);
	gone.node = machines.n_nodes - 1;
	if (topo_cluster_without(&machines, &gone, spares, &used, &e) ||
	    launcher_deployment_build(&job, job.parallel.dp, job.open, &used, &first, &e) ||
	    supervise_pool_open(&pool, &machines, job.restart.exclude_after, &e))
		fail_msg("%s", e.text);
}

static int close_run(void **state)
{
	(void)state;
	supervise_pool_close(&pool);
	launcher_deployment_free(first);
	topo_cluster_free(&machines);
	first = NULL;
	return 0;
}

static void set_state(int node, enum node_state state)
{
	enum node_state nodes[8];
	for (int i = 0; i < machines.n_nodes; i++)
		nodes[i] = pool.nodes[i].state;
	nodes[node] = state;
	supervise_pool_survey(&pool, &(struct survey){ .answered = true,
						       .nodes = nodes,
						       .n_nodes = machines.n_nodes });
}

static enum recovery decide(const struct deployment *now, bool can_requeue, double waited,
			    struct policy_decision *d)
{
	const struct policy_request r = { .job = &job,
					  .first = first,
					  .now = now,
					  .pool = &pool,
					  .can_requeue = can_requeue,
					  .waited = waited };
	supervise_policy_recover(&r, d);
	return d->how;
}

/* 4 nodes of 8 GPUs: tp 8 × dp 3 on three of them; the fourth is a spare. */
#define LAYOUT \
	"model.layers=8", "model.hidden=1024", "model.heads=8", "model.vocab=32000", \
		"model.seq=1024", "batch.global=48", "batch.micro=1", "job.device=cuda", \
		"parallel.tp=8"

static void nothing_lost_runs_the_same_plan(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=3" };
	struct policy_decision d;
	open_run("dgx-h100:4", 1, words, 10);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_SAME);
	assert_null(d.next);
}

static void a_spare_replaces_a_lost_node(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=3" };
	struct policy_decision d;
	open_run("dgx-h100:4", 1, words, 10);
	set_state(1, NODE_DOWN);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_SPARE);
	assert_int_equal(d.next->plan.world, 24);
	for (int i = 0; i < d.next->cluster.n_nodes; i++)
		assert_string_not_equal(d.next->cluster.nodes[i].name, machines.nodes[1].name);
	launcher_deployment_free(d.next);
}

static void without_a_spare_dp_shrinks_and_the_global_batch_stays(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=4", "restart.shrink=dp" };
	struct policy_decision d;
	open_run("dgx-h100:4", 0, words, 11);
	set_state(0, NODE_UNREACHABLE);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_DP);
	assert_int_equal(d.next->plan.layout.dp, 3);
	assert_int_equal(d.next->plan.layout.tp, 8);
	assert_int_equal(d.next->job.batch.global, 48);
	assert_int_equal(d.next->plan.micros, 16);
	launcher_deployment_free(d.next);
}

static void the_planner_may_find_a_faster_layout_than_a_lower_dp(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2", "parallel.pp=2",
					     "restart.shrink=any" };
	struct policy_decision d;
	open_run("dgx-h100:4", 0, words, 12);
	set_state(3, NODE_DOWN);
	/* dp 1 uses 16 of the 24 devices. */
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_REPLAN);
	assert_true(d.next->plan.world > 16);
	assert_int_equal(d.next->job.batch.global, 48);
	assert_int_equal(d.n, 3);
	assert_int_equal(d.options[0].how, RECOVERY_SPARE);
	assert_false(d.options[0].possible);
	assert_true(d.options[1].possible && d.options[1].step_s >= d.options[2].step_s);
	launcher_deployment_free(d.next);
}

/* A requeued job that starts with the nodes that a loss would have left runs what the loss would
 * have led to. */
static void a_start_and_a_loss_choose_the_same_layout(void **state)
{
	(void)state;
	static const char *const layouts[][3] = {
		{ "parallel.dp=4", "parallel.pp=1", "restart.shrink=dp" },
		{ "parallel.dp=4", "parallel.pp=1", "restart.shrink=any" },
		{ "parallel.dp=2", "parallel.pp=2", "restart.shrink=any" },
	};
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		const char *words[12] = { LAYOUT };
		struct policy_decision d;
		struct deployment *start;
		struct cluster left;
		struct buf said = BUF_INIT;
		memcpy(words + 9, layouts[i], sizeof layouts[i]);
		open_run("dgx-h100:4", 0, words, 12);
		set_state(3, NODE_DOWN);
		decide(first, true, 0, &d);
		assert_non_null(d.next);
		assert_int_equal(supervise_pool_cluster(&pool, &left, NULL), 0);
		assert_int_equal(launcher_fit_build(&job, &left, true, &start, &said, NULL), 0);
		assert_int_equal(start->plan.layout.tp, d.next->plan.layout.tp);
		assert_int_equal(start->plan.layout.dp, d.next->plan.layout.dp);
		assert_int_equal(start->plan.layout.pp, d.next->plan.layout.pp);
		assert_true(start->plan.time.total == d.next->plan.time.total);
		launcher_deployment_free(start);
		launcher_deployment_free(d.next);
		buf_fini(&said);
		close_run(NULL);
	}
}

static void a_job_with_gpus_is_requeued_once_slurm_counts_its_node_as_down(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=4", "restart.shrink=keep" };
	struct policy_decision d;
	open_run("dgx-h100:4", 0, words, 11);
	set_state(2, NODE_UNREACHABLE);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_WAIT);
	assert_int_equal(decide(first, true, job.restart.patience, &d), RECOVERY_REQUEUE);
	set_state(2, NODE_DOWN);
	assert_int_equal(decide(first, true, 20, &d), RECOVERY_REQUEUE);
}

static void a_layout_that_must_stay_is_requeued_or_waits(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=4", "restart.shrink=keep",
					     "restart.patience=60" };
	struct policy_decision d;
	open_run("dgx-h100:4", 0, words, 12);
	set_state(2, NODE_DOWN);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_REQUEUE);
	assert_int_equal(decide(first, false, 0, &d), RECOVERY_WAIT);
	assert_int_equal(decide(first, false, 61, &d), RECOVERY_GIVE_UP);
	set_state(2, NODE_LEFT); /* it will not come back */
	assert_int_equal(decide(first, false, 0, &d), RECOVERY_GIVE_UP);
	job.slurm.requeue = false;
	set_state(2, NODE_DRAIN);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_WAIT);
}

static void a_lost_gpu_takes_its_slot_out(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "restart.shrink=any" };
	struct policy_decision d;
	struct err e = ERR_INIT;
	open_run("dgx-h100:1", 0, words, 10);
	const struct node_kind *k = topo_cluster_kind(&machines, 0);
	const char *name = k->parts ? k->parts[3].name : "";
	assert_int_equal(supervise_pool_lose_device(&pool, 0, name, &e), 0);
	assert_int_equal(decide(first, true, 0, &d), RECOVERY_REPLAN);
	assert_true(d.next->plan.world < 8);
	for (int i = 0; k->parts && i < 7; i++)
		assert_string_not_equal(d.next->cluster.kinds[0].parts[i].name, name);
	launcher_deployment_free(d.next);
}

static void the_run_grows_again_when_a_node_is_back(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=4", "restart.shrink=dp" };
	struct policy_decision lost, back;
	open_run("dgx-h100:4", 0, words, 11);
	set_state(3, NODE_UNREACHABLE);
	assert_int_equal(decide(first, true, 0, &lost), RECOVERY_DP);
	const struct policy_request r = {
		.job = &job, .first = first, .now = lost.next, .pool = &pool
	};
	supervise_policy_grow(&r, &back);
	assert_int_equal(back.how, RECOVERY_SAME);
	assert_null(back.next);
	set_state(3, NODE_UP);
	supervise_policy_grow(&r, &back);
	assert_int_equal(back.how, RECOVERY_GROW);
	assert_int_equal(back.next->plan.layout.dp, 4);
	launcher_deployment_free(back.next);
	launcher_deployment_free(lost.next);
}

/* Of a program no step is predicted. */
static void a_program_shrinks_and_grows_by_its_ranks(void **state)
{
	(void)state;
	static const char *const words[] = { "job.program=train", "job.device=cuda",
					     "parallel.tp=8", "parallel.dp=4",
					     "restart.shrink=any" };
	struct policy_decision lost, back;
	open_run("dgx-h100:4", 0, words, 5);
	set_state(3, NODE_UNREACHABLE);
	assert_int_equal(decide(first, true, 0, &lost), RECOVERY_DP);
	const struct policy_option *taken = supervise_policy_chosen(&lost);
	assert_ptr_equal(taken, &lost.options[1]);
	assert_true(taken->possible && taken->step_s == 0);
	assert_false(lost.options[0].possible || lost.options[2].possible);
	const struct policy_request r = {
		.job = &job, .first = first, .now = lost.next, .pool = &pool
	};
	supervise_policy_grow(&r, &back);
	assert_int_equal(back.how, RECOVERY_SAME);
	assert_int_equal(back.n, 2); /* the first layout, and to plan again */
	assert_false(back.options[0].possible || back.options[1].possible);
	set_state(3, NODE_UP);
	supervise_policy_grow(&r, &back);
	assert_int_equal(back.how, RECOVERY_GROW);
	assert_int_equal(back.next->plan.layout.dp, 4);
	assert_ptr_equal(supervise_policy_chosen(&back), &back.options[0]);
	launcher_deployment_free(back.next);
	launcher_deployment_free(lost.next);
}

static void every_decision_can_be_printed(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=4", "restart.shrink=any" };
	struct policy_decision d;
	struct buf text = BUF_INIT;
	open_run("dgx-h100:4", 0, words, 11);
	set_state(1, NODE_DOWN);
	decide(first, false, 0, &d);
	supervise_policy_print(supervise_policy_chosen(&d), &text);
	assert_non_null(strstr(buf_str(&text), "a step predicted"));
	supervise_policy_print(&d.options[0], &text);
	assert_non_null(strstr(buf_str(&text), "spare: "));
	assert_null(strchr(buf_str(&text), ';'));
	json_t *list = supervise_policy_json(&d);
	assert_int_equal(json_array_size(list), d.n);
	json_decref(list);
	buf_fini(&text);
	launcher_deployment_free(d.next);
}

/* --- The pool ----------------------------------------------------------------------- */

static void a_node_is_excluded_after_its_faults(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2" };
	struct buf text = BUF_INIT;
	open_run("dgx-h100:2", 0, words, 10);
	supervise_pool_blame(&pool, 1, 1000);
	assert_true(supervise_pool_usable(&pool, 1));
	supervise_pool_blame(&pool, 1, 1000);
	assert_false(supervise_pool_usable(&pool, 1));
	assert_int_equal(supervise_pool_describe(&pool, &text), 1);
	assert_non_null(strstr(buf_str(&text), "after 2 faults"));
	supervise_pool_blame(&pool, 0, 1000);
	supervise_pool_blame(&pool, 0, 1000);
	assert_true(supervise_pool_usable(&pool, 0)); /* the last one */
	assert_true(supervise_pool_use_again(&pool));
	assert_true(supervise_pool_usable(&pool, 1));
	assert_false(supervise_pool_use_again(&pool));
	buf_fini(&text);
}

static void a_node_that_was_a_suspect_before_is_excluded_at_its_first_fault(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2" };
	open_run("dgx-h100:2", 0, words, 10);
	pool.nodes[0].suspect = true;
	supervise_pool_blame(&pool, 1, 1000);
	assert_true(supervise_pool_usable(&pool, 1));
	supervise_pool_blame(&pool, 0, 1000);
	assert_false(supervise_pool_usable(&pool, 0));
}

static void faults_that_lie_far_apart_do_not_exclude_a_node(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2" };
	double now = 1000;
	open_run("dgx-h100:2", 0, words, 10);
	for (int week = 0; week < 3; week++, now += 7 * 24 * 3600.0) {
		supervise_pool_blame(&pool, 1, now);
		assert_true(supervise_pool_usable(&pool, 1));
	}
	supervise_pool_blame(&pool, 1, now);
	supervise_pool_blame(&pool, 1, now + POOL_FAULT_MEMORY - 1);
	assert_false(supervise_pool_usable(&pool, 1));
}

static void a_node_that_fails_again_on_its_return_is_excluded(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2", "restart.exclude_after=0" };
	open_run("dgx-h100:2", 0, words, 11);
	set_state(1, NODE_DOWN);
	set_state(1, NODE_UP);
	supervise_pool_confirm(&pool); /* it has finished a step */
	supervise_pool_blame(&pool, 1, 1000);
	assert_true(supervise_pool_usable(&pool, 1));
	set_state(1, NODE_DOWN);
	set_state(1, NODE_UP);
	supervise_pool_blame(&pool, 1, 1000);
	assert_false(supervise_pool_usable(&pool, 1));
}

static void a_silent_manager_changes_only_what_was_probed(void **state)
{
	(void)state;
	static const char *const words[] = { LAYOUT, "parallel.dp=2" };
	enum node_state nodes[] = { NODE_UNKNOWN, NODE_UNREACHABLE, NODE_UNKNOWN };
	open_run("dgx-h100:3", 0, words, 10);
	set_state(0, NODE_DOWN);
	supervise_pool_survey(&pool, &(struct survey){ .nodes = nodes, .n_nodes = 3 });
	assert_int_equal(pool.nodes[0].state, NODE_DOWN);
	assert_int_equal(pool.nodes[1].state, NODE_UNREACHABLE);
	assert_true(supervise_pool_usable(&pool, 2));
	assert_true(supervise_pool_may_return(&pool));
}

#define T(f) cmocka_unit_test_teardown(f, close_run)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_lost_runs_the_same_plan),
		T(a_spare_replaces_a_lost_node),
		T(without_a_spare_dp_shrinks_and_the_global_batch_stays),
		T(the_planner_may_find_a_faster_layout_than_a_lower_dp),
		T(a_start_and_a_loss_choose_the_same_layout),
		T(a_layout_that_must_stay_is_requeued_or_waits),
		T(a_job_with_gpus_is_requeued_once_slurm_counts_its_node_as_down),
		T(a_lost_gpu_takes_its_slot_out),
		T(the_run_grows_again_when_a_node_is_back),
		T(a_program_shrinks_and_grows_by_its_ranks),
		T(every_decision_can_be_printed),
		T(a_node_is_excluded_after_its_faults),
		T(a_node_that_was_a_suspect_before_is_excluded_at_its_first_fault),
		T(faults_that_lie_far_apart_do_not_exclude_a_node),
		T(a_node_that_fails_again_on_its_return_is_excluded),
		T(a_silent_manager_changes_only_what_was_probed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
