/* Plans for a program of the user, of which only the degrees are known. */
#include "plan/plan.h"
#include "plan/show/plan.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 12 };

static struct job job; /* too large for a small stack */

/* words: section.key=value, separated by blanks. */
static void load(const char *words)
{
	const char *list[WORDS] = { "job.program=train", "job.name=run", "job.device=cuda" };
	char copy[300];
	struct err e = ERR_INIT;
	int n = 3;
	snprintf(copy, sizeof copy, "%s", words);
	for (char *w = strtok(copy, " "); w && n < WORDS; w = strtok(NULL, " "))
		list[n++] = w;
	if (job_load(NULL, list, n, &job, &e))
		fail_msg("%s", e.text);
}

static void open_cluster(const char *spec, struct cluster *c)
{
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, c, &e))
		fail_msg("%s", e.text);
}

static void build(const char *words, const struct cluster *c, struct plan *p)
{
	struct err e = ERR_INIT;
	load(words);
	if (plan_build(&job, c, p, &e))
		fail_msg("%s", e.text);
}

static void a_program_uses_all_devices(void **state)
{
	struct cluster c;
	struct plan p;
	(void)state;
	open_cluster("dgx-h100:2", &c);
	build("", &c, &p);
	assert_int_equal(p.world, 16);
	assert_int_equal(p.layout.dp, 16);
	plan_free(&p);
	build("parallel.tp=4 parallel.ep=4", &c, &p);
	assert_int_equal(p.layout.dp, 4);
	plan_free(&p);
	build("parallel.tp=2 parallel.ep=3", &c, &p); /* of 8 replicas ep divides 6 */
	assert_int_equal(p.layout.dp, 6);
	plan_free(&p);
	topo_cluster_free(&c);
}

/* As a large Transformer would have it: tp stays on NVLink, and replicas meet on the same rail. */
static void tensor_parallel_groups_stay_inside_nodes(void **state)
{
	struct cluster c;
	struct plan p;
	(void)state;
	open_cluster("dgx-h100:2", &c);
	build("parallel.tp=8", &c, &p);
	for (int r = 0; r < p.world; r++) {
		assert_int_equal(p.ranks[r].node, p.ranks[r / 8 * 8].node);
		assert_int_equal(p.ranks[r].slot, p.ranks[r % 8].slot);
	}
	assert_int_equal(p.place.links[GROUP_TP].hops, 0);
	assert_true(p.place.links[GROUP_DP].hops > 0);
	assert_true(p.place.links[GROUP_DP].rails);
	assert_true(p.place.links[GROUP_TP].bytes > 0);
	assert_true(p.place.links[GROUP_EDP].bytes == 0); /* ep = 1: there are no experts */
	assert_string_equal(p.warning, "");
	plan_free(&p);
	build("parallel.tp=16", &c, &p);
	assert_non_null(strstr(p.warning, "tensor-parallel groups of 16 cross nodes"));
	plan_free(&p);
	topo_cluster_free(&c);
}

/* Nothing is known of other degrees that would fit, and least of all their time. */
static void too_many_tasks_are_refused(void **state)
{
	struct cluster c;
	struct plan p;
	struct err e = ERR_INIT;
	(void)state;
	open_cluster("dgx-h100:2", &c);
	load("parallel.tp=8 parallel.dp=4");
	assert_int_equal(plan_build(&job, &c, &p, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_string_equal(e.text,
			    "tp 8 × dp 4 × pp 1 = 32 ranks, and dgx-h100:2 has 16 devices; use "
			    "fewer tasks or more nodes");
	topo_cluster_free(&c);
}

static void neither_steps_nor_memory_are_predicted(void **state)
{
	struct cluster c;
	struct plan p;
	struct buf text = BUF_INIT;
	static const char *const absent[] = { "batch", "memory", "tokens", "per step\n", "MFU" };
	(void)state;
	open_cluster("dgx-h100:2", &c);
	build("parallel.tp=8", &c, &p);
	assert_true(p.time.total == 0);
	show_plan_text(&job, &c, &p, &text);
	assert_non_null(strstr(buf_str(&text),
			       "Plan for run on dgx-h100:2\n\n  program   train\n"
			       "  layout    16 ranks = tp 8 × dp 2 × pp 1, 14 threads "
			       "each\n"));
	assert_non_null(strstr(buf_str(&text), "What the program transfers is not known"));
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
		if (strstr(buf_str(&text), absent[i]))
			fail_msg("%s: in %s", absent[i], buf_str(&text));
	buf_fini(&text);
	plan_free(&p);
	topo_cluster_free(&c);
}

static void the_json_has_the_places_alone(void **state)
{
	struct cluster c;
	struct plan p;
	static const char *const absent[] = { "model", "batch_global", "stages", "step_s",
					      "chips", "micros",       "train",  "engine",
					      "time",  "sureness" };
	(void)state;
	open_cluster("dgx-h100:2", &c);
	build("parallel.tp=8", &c, &p);
	json_t *doc = show_plan_json(&job, &c, &p);
	assert_string_equal(json_string_value(json_object_get(doc, "program")), "train");
	assert_int_equal(json_integer_value(json_object_get(doc, "world")), 16);
	assert_int_equal(json_array_size(json_object_get(doc, "ranks")), 16);
	assert_int_equal(json_array_size(json_object_get(doc, "nodes")), 2);
	assert_non_null(json_object_get(doc, "placement"));
	assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "layout"), "dp")),
			 2);
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
		assert_null(json_object_get(doc, absent[i]));
	json_decref(doc);
	plan_free(&p);
	topo_cluster_free(&c);
}

/* Nodes of one kind are used if they are enough. Without dp all devices are. */
static void nodes_of_two_kinds_hold_a_program(void **state)
{
	struct cluster c;
	struct plan p;
	(void)state;
	open_cluster("dgx-h100:4+dgx-a100:4", &c);
	build("parallel.tp=8 parallel.dp=4", &c, &p);
	assert_int_equal(p.world, 32);
	for (int r = 0; r < p.world; r++)
		assert_int_equal(c.nodes[p.ranks[r].node].kind, c.nodes[p.ranks[0].node].kind);
	plan_free(&p);
	build("parallel.tp=8", &c, &p);
	assert_int_equal(p.world, 64);
	plan_free(&p);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_uses_all_devices),
		cmocka_unit_test(tensor_parallel_groups_stay_inside_nodes),
		cmocka_unit_test(too_many_tasks_are_refused),
		cmocka_unit_test(neither_steps_nor_memory_are_predicted),
		cmocka_unit_test(the_json_has_the_places_alone),
		cmocka_unit_test(nodes_of_two_kinds_hold_a_program),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
