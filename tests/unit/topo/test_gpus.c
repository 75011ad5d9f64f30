#include "topo/gpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1024.0 * 1024 * 1024)

static void each_row_is_found_by_its_name_and_ids(void **state)
{
	(void)state;
	int n = 0;
	for (const struct gpu_model *m; (m = topo_gpu_at(n)) != NULL; n++) {
		assert_ptr_equal(topo_gpu_of_name(m->name), m);
		assert_true(m->ids[0] != 0 && m->ids[GPU_IDS - 1] == 0);
		for (int i = 0; m->ids[i]; i++)
			assert_ptr_equal(topo_gpu_of_pci(m->vendor, m->ids[i]), m);
	}
	assert_true(n > 40);
}

static void figures_are_consistent(void **state)
{
	(void)state;
	for (int i = 0; topo_gpu_at(i); i++) {
		const struct gpu_model *m = topo_gpu_at(i);
		assert_true(m->flops > 1e13 && m->flops < 1e16);
		assert_true(m->memory >= 16 * GIB && m->memory < 300 * GIB);
		assert_true(m->bandwidth > 2e11 && m->bandwidth < 1e13);
		assert_int_equal(m->lanes > 0, m->link != LINK_UNKNOWN);
		assert_true(m->lanes <= 18 && (m->lanes > 0) == (m->lane > 0));
		assert_int_equal(m->link == LINK_XGMI, m->vendor == PCI_AMD);
	}
}

static void drivers_names_are_understood(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		const char *name;
	} rows[] = {
		{ "Tesla P100-SXM2-16GB", "P100-SXM2-16GB" },
		{ "Tesla V100-SXM3-32GB-H", "V100-SXM3-32GB" },
		{ "Tesla V100-SXM2-16GB", "V100-SXM2-16GB" },
		{ "Tesla V100-SXM2-32GB", "V100-SXM2-32GB" },
		{ "Tesla V100-PCIE-32GB", "V100-PCIe-32GB" },
		{ "NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB" },
		{ "NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB" },
		{ "NVIDIA A100 80GB PCIe", "A100-PCIe-80GB" },
		{ "NVIDIA A10G", "A10G" },
		{ "NVIDIA A10", "A10" },
		{ "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB" },
		{ "NVIDIA H100 PCIe", "H100-PCIe-80GB" },
		{ "NVIDIA H800", "H800-SXM5-80GB" },
		{ "NVIDIA H200", "H200-SXM-141GB" },
		{ "NVIDIA H200 NVL", "H200-NVL-141GB" },
		{ "NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB" },
		{ "A100-SXM-80GB", "A100-SXM4-80GB" },
		{ "NVIDIA A100-SXM-64GB", NULL },
		{ "NVIDIA GH200 480GB", "GH200-96GB" },
		{ "NVIDIA GH200 144G HBM3e", "GH200-144GB" },
		{ "NVIDIA B300 SXM6 AC", "B300-SXM-288GB" },
		{ "NVIDIA GB300", "GB300-288GB" },
		{ "NVIDIA GB200", "GB200-186GB" },
		{ "NVIDIA B200", "B200-SXM-180GB" },
		{ "NVIDIA GB10", "GB10" },
		{ "NVIDIA L40S", "L40S" },
		{ "NVIDIA L4", "L4" },
		{ "Tesla T4", "T4" },
		{ "NVIDIA GeForce RTX 4090", "RTX-4090" },
		{ "AMD Instinct MI300X OAM", "MI300X" },
		{ "AMD Instinct MI250X / MI250", "MI250X" },
		{ "Quadro K620", NULL },
		{ "", NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct gpu_model *m = topo_gpu_of_driver_name(rows[i].text);
		if ((m != NULL) != (rows[i].name != NULL) || (m && strcmp(m->name, rows[i].name)))
			fail_msg("\"%s\" is taken for %s", rows[i].text, m ? m->name : "nothing");
	}
}

static void slurms_types_are_understood(void **state)
{
	(void)state;
	/* clang-format off */
	static const char *const rows[][2] = {
		{ "h100", "H100-SXM5-80GB" }, { "a10", "A10" }, { "l4", "L4" }, { "L40", "L40" }, { "mi250", "MI250" }, { "mi300", "MI300X" },
		{ "a100-pcie", "A100-PCIe-80GB" }, { "tesla_v100-sxm2-16gb", "V100-SXM2-16GB" }, { "nvidia_a100-sxm4-40gb", "A100-SXM4-40GB" },
		{ "rtx_3090", "RTX-3090" }, { "gh200", "GH200-96GB" }, { "", NULL }, { "gpu", NULL }, { "ib", NULL },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct gpu_model *m = topo_gpu_of_gres(rows[i][0]);
		if ((m != NULL) != (rows[i][1] != NULL) || (m && strcmp(m->name, rows[i][1])))
			fail_msg("\"%s\" is taken for %s", rows[i][0], m ? m->name : "nothing");
	}
}

static void an_architecture_determines_the_lanes(void **state)
{
	(void)state;
	assert_string_equal(topo_gpu_of_arch(PCI_NVIDIA, 90)->name, "H100-SXM5-80GB");
	assert_string_equal(topo_gpu_of_arch(PCI_AMD, 0x908)->name, "MI100");
	assert_float_equal(topo_gpu_of_arch(PCI_NVIDIA, 70)->lane, 25e9, 1);
	assert_null(topo_gpu_of_arch(PCI_AMD, 90));
	assert_null(topo_gpu_of_pci(0x8086, 0x20b0));
	assert_null(topo_gpu_of_name("h100-sxm5-80gb"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_row_is_found_by_its_name_and_ids),
		cmocka_unit_test(figures_are_consistent),
		cmocka_unit_test(drivers_names_are_understood),
		cmocka_unit_test(slurms_types_are_understood),
		cmocka_unit_test(an_architecture_determines_the_lanes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
