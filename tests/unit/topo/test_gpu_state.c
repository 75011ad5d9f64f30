/* The momentary state of GPUs, and the findings from it: each fault that the double plays is found
 * once, with a remedy, and nothing else is found. */
#include "topo/discover/gpu_state.h"
#include "tests/unit/nvml_double.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char library[NVML_DOUBLE_PATH];

static int find_double(void **state)
{
	(void)state;
	return nvml_double_find(library);
}

static int reads(const char *machine, struct gpu_states *s)
{
	setenv("NVML_DOUBLE", machine, 1);
	return topo_gpu_states_read(library, NULL, s, NULL);
}

struct findings {
	int warnings, bad;
	char text[2048];
};

static void note(void *arg, enum gpu_level level, const char *found, const char *remedy)
{
	struct findings *f = arg;
	f->warnings += level != GPU_BAD;
	f->bad += level == GPU_BAD;
	assert_true(strlen(remedy) > 10 && !strchr(remedy, '%'));
	size_t len = strlen(f->text);
	snprintf(f->text + len, sizeof f->text - len, "%s [%s]\n", found, remedy);
}

static void a_healthy_gpu_is_reported_completely(void **state)
{
	(void)state;
	struct gpu_states s;
	assert_int_equal(reads("dgx-h100", &s), 0);
	assert_int_equal(s.n, 8);
	assert_string_equal(s.driver, "580.65.06");
	assert_int_equal(s.cuda, 13000);
	const struct gpu_state *g = topo_gpu_state_at(&s, "0000:3b:00.0");
	assert_ptr_equal(g, &s.gpus[3]);
	assert_null(topo_gpu_state_at(&s, "0000:99:00.0"));
	assert_true(g->memory > 79 * (double)(1 << 30) && g->memory_free < g->memory &&
		    g->memory_reserved > 0);
	assert_true(g->links == 18 && g->links_up == 18 && !*g->links_down && g->link_replays == 0);
	assert_true(g->pcie == 1 && g->pcie_most == 5 && g->pcie_width == 16 &&
		    g->pcie_width_most == 16);
	assert_true(g->ecc == 1 && g->uncorrected == 0 && g->corrected_ever == 10 &&
		    g->retired == -1 && g->remapped == 0);
	assert_true(g->slow_told && !g->slow && g->temperature == 34 && g->temperature_slow == 87);
	assert_true(g->power_limit == 700 && g->persistence == 1 && g->compute == 0 &&
		    g->mig == 0 && g->n_processes == 0);
	topo_gpu_states_free(&s);
}

static void sound_gpus_have_no_findings(void **state)
{
	(void)state;
	static const char *const machines[] = { "dgx-1", "dgx-2",   "dgx-h100",     "gb200",
						"pair",  "strange", "dgx-h100,mute" };
	for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
		struct gpu_states s;
		assert_int_equal(reads(machines[m], &s), 0);
		for (int i = 0; i < s.n; i++) {
			struct findings f = { 0 };
			topo_gpu_judge(&s.gpus[i], note, &f);
			if (f.bad || f.warnings)
				fail_msg("%s: %s", machines[m], f.text);
		}
		topo_gpu_states_free(&s);
	}
}

static void each_fault_is_found_at_its_gpu_alone(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *machine;
		int bad;
		const char *says;
	} rows[] = {
		{ "dgx-h100,lost=3", 1, "GPU is lost" },
		{ "dgx-h100,falls=3", 1, "GPU is lost" },
		{ "dgx-h100,remap-failed=3", 1, "could not be remapped" },
		{ "dgx-h100,remap-pending=3", 0, "waits for a reset" },
		{ "dgx-h100,remap-pending=3,uncorrected=3", 1, "3 uncorrected memory errors, and the memory is used" },
		{ "dgx-1,retire-pending=3,uncorrected=3", 1, "nvidia-smi --gpu-reset -i 3" },
		{ "dgx-1,retire-pending=3", 0, "waits for a reset" },
		{ "dgx-1,retired=3", 0, "63 pages" },
		{ "dgx-h100,uncorrected=3", 0, "3 uncorrected memory errors since" },
		{ "dgx-h100,ecc-off=3", 0, "ECC is off" },
		{ "dgx-h100,ecc-next=3", 0, "ECC is on until" },
		{ "dgx-h100,brake=3", 0, "power brake" },
		{ "dgx-h100,hot=3", 0, "for heat: 89 °C, and it slows down at 87 °C" },
		{ "dgx-h100,slowdown=3", 0, "heat or power" },
		{ "dgx-h100,capped=3", 0, "limited to 400 W" },
		{ "dgx-h100,narrow=3", 0, "8 of 16 lanes" },
		{ "dgx-h100,recover=3", 0, "recover 4 times" },
		{ "dgx-h100,prohibited=3", 1, "nvidia-smi -i 3 -c DEFAULT" },
		{ "dgx-h100,mig=3", 0, "2 instances" },
		{ "dgx-h100,mig-empty=3", 1, "no instance" },
		{ "dgx-h100,mig-next=3", 0, "MIG is off until" },
	};
	/* clang-format on */
	for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
		struct gpu_states s;
		assert_int_equal(reads(rows[r].machine, &s), 0);
		assert_int_equal(s.n, 8);
		for (int i = 0; i < s.n; i++) {
			struct findings f = { 0 };
			topo_gpu_judge(&s.gpus[i], note, &f);
			if (f.bad != (i == 3 && rows[r].bad) || f.bad + f.warnings != (i == 3) ||
			    (i == 3 && !strstr(f.text, rows[r].says)))
				fail_msg("%s, GPU%d: %d bad, %d warnings: %s", rows[r].machine, i,
					 f.bad, f.warnings, f.text);
		}
		topo_gpu_states_free(&s);
	}
}

static void links_processes_and_visibility_are_reported(void **state)
{
	(void)state;
	struct gpu_states s;
	assert_int_equal(reads("dgx-h100,link-down=1,busy=2", &s), 0);
	assert_int_equal(s.gpus[1].links_up, 17);
	assert_string_equal(s.gpus[1].links_down, "2");
	assert_int_equal(s.gpus[2].n_processes, 1);
	assert_int_equal(s.gpus[2].processes[0].pid, 4711);
	assert_string_equal(s.gpus[2].processes[0].name, "somebody1");
	topo_gpu_states_free(&s);
	assert_int_equal(reads("dgx-h100,crowd=1", &s), 0);
	assert_int_equal(s.gpus[1].n_processes, GPU_PROCESSES_MAX);
	topo_gpu_states_free(&s);
	setenv("NVML_DOUBLE", "dgx-h100,lost=3", 1);
	assert_int_equal(topo_gpu_states_read(library, "5,3", &s, NULL), 0);
	assert_true(s.n == 2 && s.hidden == 6 && s.gpus[0].index == 5 && s.gpus[1].index == 3 &&
		    *s.gpus[1].trouble);
	topo_gpu_states_free(&s);
	assert_int_equal(topo_gpu_states_read(library, "", &s, NULL), 0);
	assert_true(s.n == 0 && s.hidden == 8);
	topo_gpu_states_free(&s);
}

static void memory_of_an_instance_is_its_own(void **state)
{
	(void)state;
	static const struct {
		const char *visible;
		int n, at;
	} rows[] = { { NULL, 8, 3 },
		     { "MIG-d2000000-0000", 1, 0 },
		     { "2,MIG-d1000000-0000", 2, 1 } };
	setenv("NVML_DOUBLE", "dgx-h100,mig=3", 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct gpu_states s;
		assert_int_equal(topo_gpu_states_read(library, rows[i].visible, &s, NULL), 0);
		assert_int_equal(s.n, rows[i].n);
		for (int k = 0; k < s.n; k++)
			assert_true((s.gpus[k].memory < 20 * (double)(1 << 30)) ==
				    (k == rows[i].at));
		assert_true(s.gpus[rows[i].at].memory_free < s.gpus[rows[i].at].memory);
		topo_gpu_states_free(&s);
	}
}

static void drivers_that_fail_or_report_nonsense_do_no_harm(void **state)
{
	(void)state;
	struct gpu_states s;
	struct err e = ERR_INIT;
	setenv("NVML_DOUBLE", "none", 1);
	assert_int_equal(topo_gpu_states_read(library, NULL, &s, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(topo_gpu_states_read("libno-such.so.1", NULL, &s, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	/* The file exists, but it is not a library. */
	assert_int_equal(topo_gpu_states_read("/etc/hostname", NULL, &s, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	setenv("NVML_DOUBLE", "dgx-h100,init", 1);
	assert_int_equal(topo_gpu_states_read(library, NULL, &s, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	static const char *const liars[] = { "dgx-h100,wild", "dgx-h100,endless", "strange,rude" };
	for (size_t i = 0; i < sizeof liars / sizeof *liars; i++) {
		assert_int_equal(reads(liars[i], &s), 0);
		topo_gpu_states_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_healthy_gpu_is_reported_completely),
		cmocka_unit_test(sound_gpus_have_no_findings),
		cmocka_unit_test(each_fault_is_found_at_its_gpu_alone),
		cmocka_unit_test(links_processes_and_visibility_are_reported),
		cmocka_unit_test(memory_of_an_instance_is_its_own),
		cmocka_unit_test(drivers_that_fail_or_report_nonsense_do_no_harm),
	};
	return cmocka_run_group_tests(tests, find_double, NULL);
}
