#include "base/pin.h"
#include "topo/bind.h"
#include "topo/cluster.h"
#include "topo/internal.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void opens(const char *spec, int devices, struct cluster *c)
{
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, devices, c, &e))
		fail_msg("%s: %s", spec, e.text);
}

static void presets_have_all_their_nodes(void **state)
{
	(void)state;
	struct cluster c;
	opens("dgx-h100:128", 0, &c);
	assert_int_equal(c.n_nodes, 128);
	assert_int_equal(topo_cluster_devices(&c), 1024);
	topo_cluster_free(&c);
	assert_null(c.nodes);
}

static void every_preset_has_consistent_rates(void **state)
{
	(void)state;
	static const char *const names[] = { "dgx-a100", "dgx-h100",  "dgx-h200",
					     "h200",     "pcie-a100", "pcie-l40s" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct cluster c;
		opens(names[i], 0, &c);
		const struct node_kind *k = c.kinds;
		assert_string_equal(k->name, names[i]);
		assert_true(k->devices >= 1 && k->cores >= k->devices && k->numa >= 1);
		assert_true(k->device_memory > 40e9 && k->memory > k->device_memory / 2);
		assert_true(k->device_flops > 1e14 && k->device_bandwidth > 5e11);
		/* Links inside a node are faster than links between nodes. */
		assert_true(k->devices == 1 || k->link_bandwidth > k->net_bandwidth);
		assert_true(k->net_bandwidth > 0 && k->net_latency > 0);
		topo_cluster_free(&c);
	}
}

static void unknown_machines_are_refused_by_name(void **state)
{
	(void)state;
	static const char *const specs[] = { "dgx-h10",     "dgx-h100:",
					     "dgx-h100:0",  "dgx-h100:-1",
					     "dgx-h100:4x", "dgx-h100:99999999999999999999",
					     "dgx-h100: 4", ":",
					     ":4",          "nothing" };
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		struct cluster c;
		struct err e = ERR_INIT;
		if (!topo_cluster_open(specs[i], 0, &c, &e))
			fail_msg("\"%s\" was taken", specs[i]);
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, specs[i]));
	}
}

static void this_host_has_the_slots_asked_for(void **state)
{
	(void)state;
	struct cluster c;
	const struct host *h;
	assert_int_equal(topo_host_get(&h, NULL), 0);
	opens("local", 0, &c);
	assert_int_equal(topo_cluster_devices(&c), h->n_cores);
	topo_cluster_free(&c);
	opens("local", 8, &c);
	assert_int_equal(topo_cluster_devices(&c), 8);
	assert_int_equal(c.n_nodes, 1);
	const struct node_kind *k = c.kinds;
	/* Eight slots share the host's memory. */
	assert_true(k->device_memory * 8 <= k->memory * 1.001 && k->memory > 1e8);
	assert_true(k->device_flops > 1e8 && k->device_flops < 1e14 && k->device_bandwidth > 0);
	assert_true(k->net_bandwidth > 0 && k->net_latency > 0 && k->link_latency > 0);
	topo_cluster_free(&c);
}

struct slurm_env {
	const char *nodes, *tasks, *ntasks, *gpus, *cpus;
};

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static int open_slurm(const struct slurm_env *v, struct cluster *c, struct err *e)
{
	set("SLURM_JOB_NODELIST", v->nodes);
	set("SLURM_TASKS_PER_NODE", v->tasks);
	set("SLURM_NTASKS", v->ntasks);
	set("SLURM_NTASKS_PER_NODE", NULL);
	set("SLURM_GPUS_PER_NODE", NULL);
	set("SLURM_GPUS_ON_NODE", v->gpus);
	set("SLURM_JOB_CPUS_PER_NODE", v->cpus);
	return topo_cluster_open("slurm", 0, c, e);
}

static void an_allocation_is_read_from_the_environment(void **state)
{
	(void)state;
	struct cluster c;
	struct err e = ERR_INIT;
	const struct slurm_env v = { "n[1-3],big7", "4(x3),8", "20", NULL, "16(x3),96" };
	if (open_slurm(&v, &c, &e))
		fail_msg("%s", e.text);
	assert_int_equal(c.n_nodes, 4);
	assert_int_equal(c.n_kinds, 2);
	assert_int_equal(topo_cluster_devices(&c), 20);
	assert_string_equal(c.nodes[2].name, "n3");
	assert_string_equal(c.nodes[3].name, "big7");
	assert_int_equal(c.kinds[c.nodes[3].kind].devices, 8);
	assert_int_equal(c.kinds[c.nodes[3].kind].cores, 96);
	assert_int_equal(c.kinds[c.nodes[1].kind].cores, 16);
	topo_cluster_free(&c);
}

static void gpus_count_where_no_tasks_were_asked_for(void **state)
{
	(void)state;
	static const struct {
		struct slurm_env env;
		int devices;
	} rows[] = {
		{ { "n[1-2]", "1(x2)", NULL, "8", NULL }, 16 },
		{ { "n[1-2]", "1(x2)", NULL, "h100:4", NULL }, 8 },
		{ { "n[1-2]", "1(x2)", NULL, "a100:1,h100:2", NULL }, 6 },
		{ { "n[1-2]", "3(x2)", "6", "8", NULL }, 6 },
		{ { "n[1-2]", "1(x2)", NULL, NULL, NULL }, 2 },
		{ { "n[1-2]", NULL, NULL, NULL, NULL }, 2 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c;
		assert_int_equal(open_slurm(&rows[i].env, &c, NULL), 0);
		assert_int_equal(topo_cluster_devices(&c), rows[i].devices);
		assert_int_equal(c.n_kinds, 1);
		topo_cluster_free(&c);
	}
}

static void a_broken_allocation_is_refused(void **state)
{
	(void)state;
	static const struct slurm_env rows[] = {
		{ NULL, "1", NULL, NULL, NULL },
		{ "n[1-", "1", NULL, NULL, NULL },
		{ "n[1-3]", "4(x2)", NULL, NULL, NULL },
		{ "n[1-3]", "4(x3)", NULL, NULL, "x" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c;
		struct err e = ERR_INIT;
		assert_int_equal(open_slurm(&rows[i], &c, &e), -1);
		assert_true(strstr(e.text, "SLURM_") != NULL);
	}
}

static void slots_get_cores_of_their_own(void **state)
{
	(void)state;
	const struct host *h;
	assert_int_equal(topo_host_get(&h, NULL), 0);
	char list[256], seen[8192] = ",";
	for (int i = 0; i < h->n_cores && strlen(seen) < sizeof seen - 300; i++) {
		assert_int_equal(topo_bind_cpus(h->n_cores, i, 1, list, sizeof list, NULL), 0);
		assert_true(list[0] != '\0');
		char find[300];
		snprintf(find, sizeof find, ",%s,", list);
		assert_null(strstr(seen, find));
		strcat(seen, list);
		strcat(seen, ",");
	}
}

static void more_threads_than_cores_are_left_unbound(void **state)
{
	(void)state;
	const struct host *h;
	assert_int_equal(topo_host_get(&h, NULL), 0);
	char list[64] = "x";
	assert_int_equal(topo_bind_cpus(h->n_cores + 1, 0, 1, list, sizeof list, NULL), 0);
	assert_string_equal(list, "");
	assert_int_equal(topo_bind_cpus(2, 2, 1, list, sizeof list, NULL), -1);
}

static struct host_core six_and_four[] = {
	{ 0, "0" }, { 0, "1" }, { 0, "2" }, { 0, "3" }, { 0, "4" },
	{ 0, "5" }, { 1, "6" }, { 1, "7" }, { 1, "8" }, { 1, "9" },
};

static void slots_stay_inside_numa_domains_where_they_fit(void **state)
{
	(void)state;
	const struct host h = { six_and_four, 10, 2, 1e9 };
	/* clang-format off */
	static const struct {
		int slots, threads;
		const char *lists;
	} rows[] = {
		{ 2, 1, "0 6" },                  /* evenly distributed */
		{ 4, 1, "0 1 6 7" },
		{ 2, 3, "0,1,2 6,7,8" },
		{ 4, 2, "0,1 2,3 6,7 8,9" },
		{ 5, 2, "0,1 2,3 4,5 6,7 8,9" },  /* as many as fit */
		{ 10, 1, "0 1 2 3 4 5 6 7 8 9" },
		{ 2, 5, "0,1,2,3,4 5,6,7,8,9" },  /* only one fits in a domain: they straddle */
		{ 1, 4, "0,1,2,3" },
		{ 6, 2, "     " },                /* too many: not bound */
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char all[256] = "", list[64];
		for (int s = 0; s < rows[i].slots; s++) {
			assert_int_equal(topo_bind_on(&h, rows[i].slots, s, rows[i].threads, list,
						      sizeof list, NULL),
					 0);
			strcat(strcat(all, s ? " " : ""), list);
		}
		assert_string_equal(all, rows[i].lists);
	}
	char tiny[4];
	assert_int_equal(topo_bind_on(&h, 1, 0, 4, tiny, sizeof tiny, NULL), -1);
}

/* Checks the cores of devices that have these cores next to them. */
static void near(const char *const *cpus, int n, const char *const *want)
{
	struct topo_device parts[8] = { 0 };
	struct node_kind k = { .devices = n, .parts = parts };
	char list[TOPO_CPUS];
	for (int i = 0; i < n; i++)
		snprintf(parts[i].cpus, sizeof parts[i].cpus, "%s", cpus[i]);
	for (int i = 0; i < n; i++) {
		topo_bind_near(&k, i, list, sizeof list);
		assert_string_equal(list, want[i]);
	}
}

static void devices_share_the_cores_next_to_them(void **state)
{
	(void)state;
	near((const char *[]){ "0-7", "8-15" }, 2, (const char *[]){ "0-7", "8-15" });
	/* Each device gets half of the cores and of their sibling threads. */
	near((const char *[]){ "0-7,16-23", "0-7,16-23", "8-15,24-31" }, 3,
	     (const char *[]){ "0-3,16-19", "4-7,20-23", "8-15,24-31" });
	/* Three devices share eight cores. The other case numbers the cores across sockets. */
	near((const char *[]){ "0-7", "0-7", "0-7" }, 3, (const char *[]){ "0-1", "2-4", "5-7" });
	near((const char *[]){ "0,2,4,6", "0,2,4,6" }, 2, (const char *[]){ "0,2", "4,6" });
	/* There are fewer cores than devices, so every device gets all cores. */
	near((const char *[]){ "0", "0" }, 2, (const char *[]){ "0", "0" });
	near((const char *[]){ "", "x", "3-1" }, 3, (const char *[]){ "", "", "" });
	char list[TOPO_CPUS] = "?";
	topo_bind_near(&(struct node_kind){ .devices = 2 }, 1, list, sizeof list);
	assert_string_equal(list, "");
}

static int in_child(const char *list)
{
	pid_t pid = fork();
	if (!pid) {
		cpu_set_t s;
		_exit(pin_cpus(list, NULL)                 ? 101
		      : sched_getaffinity(0, sizeof s, &s) ? 102
							   : CPU_COUNT(&s));
	}
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void binding_takes_kernel_cpu_lists(void **state)
{
	(void)state;
	char list[256];
	assert_int_equal(topo_bind_cpus(1, 0, 1, list, sizeof list, NULL), 0);
	assert_in_range(in_child(list), 1, 8); /* a core's hardware threads */
	static const char *const broken[] = {
		"x", "1-", "3-1", "0,,1", ",0", "0-3x", "99999", "-1"
	};
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
		assert_int_equal(in_child(broken[i]), 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(presets_have_all_their_nodes),
		cmocka_unit_test(every_preset_has_consistent_rates),
		cmocka_unit_test(unknown_machines_are_refused_by_name),
		cmocka_unit_test(this_host_has_the_slots_asked_for),
		cmocka_unit_test(an_allocation_is_read_from_the_environment),
		cmocka_unit_test(gpus_count_where_no_tasks_were_asked_for),
		cmocka_unit_test(a_broken_allocation_is_refused),
		cmocka_unit_test(slots_get_cores_of_their_own),
		cmocka_unit_test(more_threads_than_cores_are_left_unbound),
		cmocka_unit_test(slots_stay_inside_numa_domains_where_they_fit),
		cmocka_unit_test(devices_share_the_cores_next_to_them),
		cmocka_unit_test(binding_takes_kernel_cpu_lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
