/* Tests which conditions keep an agent from training, which ones it only logs, and which ones it
 * ignores. An error names the object, the figures and the remedy. */
#include "agent/preflight.h"

#include "base/log.h"
#include "tests/unit/nvml_double.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (double)(1 << 30)

static char warnings[4096];

static void keep(enum log_level level, const char *text, void *arg)
{
	(void)level, (void)arg;
	size_t len = strlen(warnings);
	snprintf(warnings + len, sizeof warnings - len, "%s\n", text);
}

/* The test double is loaded first, so a later load of the library's name finds the double. */
static int load_double(void **state)
{
	char library[NVML_DOUBLE_PATH];
	(void)state;
	log_setup(open("/dev/null", O_WRONLY), LOG_DEBUG, "test");
	log_hook(LOG_WARN, keep, NULL);
	unsetenv("CUDA_VISIBLE_DEVICES");
	return nvml_double_find(library) || !dlopen(library, RTLD_NOW) ? -1 : 0;
}

static int fly(const char *machine, struct preflight p, struct err *e)
{
	*e = (struct err)ERR_INIT;
	*warnings = '\0';
	setenv("NVML_DOUBLE", machine, 1);
	p.node = "n7";
	p.bus = p.bus ? p.bus : "";
	return agent_preflight(&p, e);
}

static void a_gpu_that_cannot_be_trained_on_is_refused_by_name(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *machine, *visible, *bus;
		int device;
		double memory;
		enum err_code code;
		const char *says[3];
	} rows[] = {
		{ "dgx-h100,lost=3", NULL, "", 3, 1, ERR_DEVICE, { "n7: device 3, GPU3: ", "GPU is lost", "reset GPU 3" } },
		{ "dgx-h100,lost=3", NULL, "0000:3b:00.0", 3, 1, ERR_DEVICE, { "GPU3: ", "GPU is lost", "reset GPU 3" } },
		{ "dgx-h100,falls=3", NULL, "0000:3b:00.0", 3, 1, ERR_DEVICE,
		  { "GPU3 (0000:3b:00.0): ", "GPU is lost", "reset GPU 3" } },
		{ "dgx-h100,remap-failed=3", NULL, "0000:3b:00.0", 3, 1, ERR_DEVICE,
		  { "GPU3 (0000:3b:00.0): ", "could not be remapped", "exchanged" } },
		{ "dgx-h100,remap-pending=3,uncorrected=3", NULL, "", 3, 1, ERR_DEVICE,
		  { "3 uncorrected memory errors", "--gpu-reset -i 3", "" } },
		{ "dgx-h100,prohibited=3", NULL, "", 3, 1, ERR_DEVICE, { "compute mode", "-c DEFAULT", "" } },
		{ "dgx-h100,prohibited=3", "5,3", "", 1, 1, ERR_DEVICE, { "device 1, GPU3", "", "" } },
		{ "dgx-h100,full=3", NULL, "0000:3b:00.0", 0, 24 * GIB, ERR_NOFIT,
		  { "1.0 GiB of its 80 GiB are free", "needs 24 GiB", "batch.micro" } },
		{ "dgx-h100,busy=3", NULL, "", 3, 60 * GIB, ERR_NOFIT, { "pid 4711, somebody1, 20 GiB", "59 GiB of its 80", "" } },
		{ "dgx-h100,full=3,crowd=3", NULL, "", 3, 60 * GIB, ERR_NOFIT,
		  { "(pid 4711, somebody1, 205 MiB; pid 4712, ", "; pid 4714, ", "; and more), lower" } },
		{ "dgx-h100", NULL, "0000:99:00.0", 3, 1, ERR_NOTFOUND, { "at 0000:99:00.0", "none of the 8 GPUs",
			"CUDA_VISIBLE_DEVICES" } },
		{ "dgx-h100", "0,1", "0000:3b:00.0", 3, 1, ERR_NOTFOUND, { "none of the 2 GPUs", "", "" } },
		{ "dgx-h100", "", "", 0, 1, ERR_NOTFOUND, { "none of the 0 GPUs", "", "" } },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e;
		if (rows[i].visible)
			setenv("CUDA_VISIBLE_DEVICES", rows[i].visible, 1);
		int rc = fly(rows[i].machine,
			     (struct preflight){ .cuda = true,
						 .device = rows[i].device,
						 .bus = rows[i].bus,
						 .memory = rows[i].memory,
						 .node_ranks = 1 },
			     &e);
		unsetenv("CUDA_VISIBLE_DEVICES");
		assert_int_equal(rc, -1);
		assert_int_equal(e.code, rows[i].code);
		for (int k = 0; k < 3; k++)
			if (!strstr(e.text, rows[i].says[k]))
				fail_msg("%s: \"%s\" lacks \"%s\"", rows[i].machine, e.text,
					 rows[i].says[k]);
	}
}

static void a_gpu_is_found_by_its_address_wherever_cuda_counts_it(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *visible, *bus;
		int device, ordinal;
	} rows[] = {
		{ NULL, "0000:3b:00.0", 3, 3 }, { "3", "0000:3b:00.0", 3, 0 }, { "5,3", "0000:3b:00.0", 1, 1 },
			{ "GPU-d", "0000:3b:00.0", 7, 0 },
		{ NULL, "", 3, 3 }, { "6,7", "", 3, 1 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct preflight p = { .cuda = true,
				       .device = rows[i].device,
				       .bus = rows[i].bus,
				       .memory = GIB,
				       .node_ranks = 1,
				       .node = "n7" };
		struct err e = ERR_INIT;
		setenv("NVML_DOUBLE", "dgx-h100", 1);
		if (rows[i].visible)
			setenv("CUDA_VISIBLE_DEVICES", rows[i].visible, 1);
		int rc = agent_preflight(&p, &e);
		unsetenv("CUDA_VISIBLE_DEVICES");
		assert_int_equal(rc, 0);
		assert_int_equal(p.ordinal, rows[i].ordinal);
	}
}

static void what_a_run_suffers_from_is_warned_of(void **state)
{
	(void)state;
	/* clang-format off */
	static const char *const rows[][2] = {
		{ "dgx-h100,brake=3", "n7: device 3, GPU3 (0000:3b:00.0): clocks are down: the power supply" },
			{ "dgx-h100,hot=3", "for heat" }, { "dgx-h100,narrow=3", "8 of 16 lanes" },
		{ "dgx-h100,uncorrected=3", "3 uncorrected" }, { "dgx-h100,init", "not checked before use" }, { "none", "not checked before use" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e;
		assert_int_equal(
			fly(rows[i][0],
			    (struct preflight){
				    .cuda = true, .device = 3, .memory = GIB, .node_ranks = 8 },
			    &e),
			0);
		if (!strstr(warnings, rows[i][1]))
			fail_msg("%s: warned of \"%s\"", rows[i][0], warnings);
	}
}

static void a_sound_gpu_is_taken_without_a_word(void **state)
{
	(void)state;
	struct err e;
	unsetenv("CUDA_DEVICE_ORDER");
	static const char *const machines[] = { "dgx-h100", "dgx-h100,mute",
						"dgx-h100,lost=2,hot=1,full=0",
						"dgx-h100,no-persistence,capped=3,ecc-off=3" };
	for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
		assert_int_equal(fly(machines[i],
				     (struct preflight){ .cuda = true,
							 .device = 3,
							 .memory = 70 * GIB,
							 .node_ranks = 8 },
				     &e),
				 0);
		assert_string_equal(warnings, "");
	}
	assert_string_equal(getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

static void memory_of_the_host_is_held_to_the_plan(void **state)
{
	(void)state;
	struct err e;
	assert_int_equal(fly("none",
			     (struct preflight){ .device = 0, .memory = 1e6, .node_ranks = 4 }, &e),
			 0);
	assert_string_equal(warnings, "");
	assert_int_equal(
		fly("none", (struct preflight){ .device = 0, .memory = 1e15, .node_ranks = 4 }, &e),
		-1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_non_null(strstr(e.text, "n7: "));
	assert_int_equal(
		fly("none",
		    (struct preflight){ .device = 0, .memory = 1e8, .node_ranks = 10000000 }, &e),
		0);
	assert_non_null(strstr(warnings, "10000000 ranks"));
	assert_int_equal(
		fly("none",
		    (struct preflight){ .device = 1, .memory = 1e8, .node_ranks = 10000000 }, &e),
		0);
	assert_string_equal(warnings, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gpu_that_cannot_be_trained_on_is_refused_by_name),
		cmocka_unit_test(a_gpu_is_found_by_its_address_wherever_cuda_counts_it),
		cmocka_unit_test(what_a_run_suffers_from_is_warned_of),
		cmocka_unit_test(a_sound_gpu_is_taken_without_a_word),
		cmocka_unit_test(memory_of_the_host_is_held_to_the_plan),
	};
	return cmocka_run_group_tests(tests, load_double, NULL);
}
