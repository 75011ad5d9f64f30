#include "topo/discover/internal.h"
#include "topo/internal.h"
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
	/* The host's own PCI devices must not be found. The library that reports them to hwloc also
	 * never frees its memory. */
	setenv("HWLOC_COMPONENTS", "-pci", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	return nvml_double_find(library);
}

static int reads(const char *machine, struct nvml_host *h, struct err *e)
{
	setenv("NVML_DOUBLE", machine, 1);
	return topo_nvml_read(library, h, e);
}

static void a_hybrid_cube_mesh_has_its_lanes(void **state)
{
	(void)state;
	struct nvml_host h;
	assert_int_equal(reads("dgx-1", &h, NULL), 0);
	assert_int_equal(h.n, 8);
	assert_string_equal(h.gpus[0].name, "Tesla V100-SXM2-32GB");
	assert_string_equal(h.gpus[7].bus, "0000:5e:00.0");
	assert_int_equal(h.gpus[0].arch, 70);
	assert_int_equal(h.gpus[0].vendor, 0x10de);
	assert_int_equal(h.gpus[0].id, 0x1db5);
	assert_true(h.gpus[3].memory == 32.0 * (1 << 30));
	int all = 0;
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < 8; j++) {
			assert_int_equal(h.lanes[8 * i + j], h.lanes[8 * j + i]);
			all += h.lanes[8 * i + j];
		}
	assert_int_equal(all, 8 * 6); /* every port is used */
	assert_int_equal(h.lanes[3], 2);
	assert_int_equal(h.lanes[7], 0);
	assert_int_equal(h.gpus[0].ports, 0);
	assert_int_equal(h.cut, 0);
	topo_nvml_free(&h);
}

static void ports_identify_a_switch(void **state)
{
	(void)state;
	static const struct {
		const char *machine;
		int gpus, ports;
	} rows[] = { { "dgx-h100", 8, 18 }, { "dgx-2", 16, 6 }, { "gb200", 4, 18 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct nvml_host h;
		assert_int_equal(reads(rows[i].machine, &h, NULL), 0);
		assert_int_equal(h.n, rows[i].gpus);
		for (int g = 0; g < h.n; g++)
			assert_int_equal(h.gpus[g].ports, rows[i].ports);
		topo_nvml_free(&h);
	}
}

static void cluster_and_clique_identify_a_fabric(void **state)
{
	(void)state;
	struct nvml_host a, b, c;
	assert_int_equal(reads("gb200", &a, NULL), 0);
	assert_int_equal(reads("gb200,clique=7", &b, NULL), 0);
	assert_int_equal(reads("dgx-h100", &c, NULL), 0);
	assert_string_equal(a.fabric, "abababababababababababababababab.1");
	assert_string_equal(b.fabric, "abababababababababababababababab.7");
	assert_string_equal(c.fabric, "");
	topo_nvml_free(&a);
	topo_nvml_free(&b);
	topo_nvml_free(&c);
}

static void links_that_are_down_do_not_count(void **state)
{
	(void)state;
	struct nvml_host h;
	assert_int_equal(reads("dgx-1,weak=0-3", &h, NULL), 0);
	assert_int_equal(h.lanes[3], 1);
	assert_int_equal(h.lanes[24], 1);
	assert_int_equal(h.gpus[0].down, 1);
	topo_nvml_free(&h);
	/* If one end of a link is down, there is no link either. */
	assert_int_equal(reads("dgx-1,one-end=0-3", &h, NULL), 0);
	assert_int_equal(h.lanes[3], 1);
	assert_int_equal(h.lanes[24], 1);
	topo_nvml_free(&h);
}

static void a_lost_gpu_leaves_the_others(void **state)
{
	(void)state;
	struct nvml_host h;
	assert_int_equal(reads("dgx-h100,lost=3", &h, NULL), 0);
	assert_int_equal(h.n, 7);
	assert_int_equal(h.lost, 1);
	assert_non_null(strstr(h.trouble, "GPU 3: GPU is lost"));
	assert_string_equal(h.gpus[3].bus, "0000:57:00.0");
	topo_nvml_free(&h);
}

static void peers_that_are_cut_off_are_counted(void **state)
{
	(void)state;
	struct nvml_host h;
	assert_int_equal(reads("pair,cut", &h, NULL), 0);
	assert_int_equal(h.cut, 6);
	topo_nvml_free(&h);
}

static void only_visible_gpus_are_kept(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *visible, *kept;
	} rows[] = {
		{ NULL, "01234567" }, { "0,3", "03" }, { "7", "7" }, { "3,0", "30" }, { "1,1,99,2", "1" }, { "4,5,6,7", "4567" },
		{ "GPU-b0000000-0000", "1" }, { "GPU-c,GPU-a", "20" }, { "GPU-,1", "" }, { "GPU-4711", "" }, { "MIG-4711", "" },
		{ "", "" }, { "0,", "0" }, { ",0", "" }, { "-1", "" }, { "2,-1,3", "2" }, { "NoDevFiles", "" }, { "none", "" },
		{ "1x", "" }, { "99999999999999999999", "" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct nvml_host all, h;
		char kept[16] = "";
		assert_int_equal(reads("dgx-1", &all, NULL), 0);
		assert_int_equal(reads("dgx-1", &h, NULL), 0);
		assert_int_equal(topo_nvml_keep(&h, rows[i].visible), *rows[i].kept ? 0 : -1);
		for (int g = 0; g < h.n; g++) {
			snprintf(kept + g, 2, "%d", h.gpus[g].index);
			for (int o = 0; o < h.n; o++)
				assert_int_equal(h.lanes[g * h.n + o],
						 all.lanes[h.gpus[g].index * 8 + h.gpus[o].index]);
		}
		assert_string_equal(kept, rows[i].kept);
		topo_nvml_free(&h);
		topo_nvml_free(&all);
	}
	struct nvml_host h;
	assert_int_equal(reads("dgx-1", &h, NULL), 0);
	assert_int_equal(topo_nvml_keep(&h, "8,9"), -1);
	topo_nvml_free(&h);
}

static void an_instance_names_its_gpu_and_ends_the_list(void **state)
{
	(void)state;
	static const struct {
		const char *visible;
		int n, gpu;
	} rows[] = {
		{ "MIG-d20", 1, 3 },
		{ "MIG-d20,0,1", 1, 3 },
		{ "0,MIG-d1,1", 2, 3 },
		{ "MIG-GPU-d0000000-0000/7/0", 1, 3 },
		{ "MIG-GPU-c0000000-0000/7/0", 0, 0 },
		{ "MIG-e", 0, 0 },
		{ "MIG-GPU-/", 0, 0 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct nvml_host h;
		assert_int_equal(reads("dgx-h100,mig=3", &h, NULL), 0);
		assert_true(h.gpus[3].mig && h.gpus[3].n_instances == 2 && !h.gpus[2].mig);
		topo_nvml_keep(&h, rows[i].visible);
		assert_int_equal(h.n, rows[i].n);
		if (h.n) {
			assert_int_equal(h.gpus[h.n - 1].index, rows[i].gpu);
			assert_true(h.gpus[h.n - 1].memory < 20e9 * 1.1);
		}
		topo_nvml_free(&h);
	}
}

static void port_speed_is_the_maximum_not_the_idle_speed(void **state)
{
	(void)state;
	static const struct {
		const char *machine;
		int pcie, nvlink;
	} rows[] = { { "dgx-1", 3, 2 },
		     { "dgx-h100", 5, 4 },
		     { "gb200", 5, 5 },
		     { "pair", 4, 3 },
		     { "dgx-h100,mute", 0, 0 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct nvml_host h;
		assert_int_equal(reads(rows[i].machine, &h, NULL), 0);
		if (rows[i].pcie)
			assert_int_equal(h.gpus[0].pcie_width, 16);
		assert_int_equal(h.gpus[0].pcie, rows[i].pcie);
		assert_int_equal(h.gpus[0].nvlink, rows[i].nvlink);
		topo_nvml_free(&h);
	}
}

static void failing_drivers_are_errors(void **state)
{
	(void)state;
	static const struct {
		const char *machine, *says;
		enum err_code code;
	} rows[] = {
		{ "dgx-h100,init", "start: fails (999)", ERR_UNSUPPORTED },
		{ "dgx-h100,count", "number of GPUs: Something (2)", ERR_UNSUPPORTED },
		{ "dgx-h100,many", "4294967295 GPUs", ERR_UNSUPPORTED },
		{ "none", "no GPU", ERR_NOTFOUND },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct nvml_host h;
		struct err e = ERR_INIT;
		assert_int_equal(reads(rows[i].machine, &h, &e), -1);
		assert_int_equal(e.code, rows[i].code);
		if (!strstr(e.text, rows[i].says))
			fail_msg("%s: %s", rows[i].machine, e.text);
	}
	struct nvml_host h;
	struct err e = ERR_INIT;
	assert_int_equal(topo_nvml_read("libno-such-library.so.1", &h, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	/* This library exists but is not NVML. */
	assert_int_equal(topo_nvml_read("libm.so.6", &h, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "nvmlInit_v2"));
}

static void drivers_that_report_nonsense_do_no_harm(void **state)
{
	(void)state;
	struct nvml_host h;
	assert_int_equal(reads("dgx-h100,endless", &h, NULL), 0);
	assert_int_equal(strlen(h.gpus[0].name), TOPO_NAME - 1);
	topo_nvml_free(&h);
	assert_int_equal(reads("strange,rude", &h, NULL), 0);
	assert_string_equal(h.gpus[0].name, "GPU_[2J_");
	topo_nvml_free(&h);
	assert_int_equal(reads("dgx-h100,wild", &h, NULL), 0);
	assert_int_equal(h.n, 8);
	assert_int_equal(h.gpus[0].arch, 0);
	assert_int_equal(h.gpus[0].ports, 0);
	for (int i = 0; i < 64; i++)
		assert_int_equal(h.lanes[i], 0);
	topo_nvml_free(&h);
}

static void gpus_become_the_slots_of_this_host(void **state)
{
	(void)state;
	struct node_kind k;
	char fabric[NVML_FABRIC];
	setenv("NVML_DOUBLE", "dgx-1", 1);
	assert_int_equal(topo_probe_kind(library, &k, fabric, NULL), 0);
	assert_int_equal(k.devices, 8);
	assert_string_equal(k.device, "V100-SXM2-32GB");
	assert_false(k.switched);
	assert_true(k.link_bandwidth == 50e9 && k.device_flops > 1e14 && k.net_bandwidth > 0);
	assert_int_equal(k.links[3].kind, LINK_NVLINK);
	assert_int_equal(k.links[3].lanes, 2);
	assert_true(k.links[3].bandwidth == 50e9 && k.links[1].bandwidth == 25e9);
	/* Links that hwloc does not show get an estimate and are reported as missing. */
	assert_int_equal(k.links[7].kind, LINK_UNKNOWN);
	assert_true(k.links[7].bandwidth > 0 && k.links[7].bandwidth < 25e9);
	assert_non_null(strstr(k.unsaid, "hwloc shows no such PCI devices"));
	topo_kind_free(&k);
	setenv("NVML_DOUBLE", "strange", 1);
	assert_int_equal(topo_probe_kind(library, &k, fabric, NULL), 0);
	assert_string_equal(k.device, "NVIDIA Quantum 9000");
	assert_non_null(strstr(k.unsaid, "compute rate and memory bandwidth"));
	topo_kind_free(&k);
}

static void without_gpus_the_cores_are_the_slots(void **state)
{
	(void)state;
	const struct host *host;
	struct node_kind k;
	char fabric[NVML_FABRIC];
	assert_int_equal(topo_host_get(&host, NULL), 0);
	assert_int_equal(topo_probe_kind("libno-such-library.so.1", &k, fabric, NULL), 0);
	assert_string_equal(k.device, "cpu");
	assert_int_equal(k.devices, host->n_cores);
	assert_string_equal(k.unsaid, "");
	topo_kind_free(&k);
	setenv("NVML_DOUBLE", "dgx-h100,init", 1);
	assert_int_equal(topo_probe_kind(library, &k, fabric, NULL), 0);
	assert_string_equal(k.device, "cpu");
	assert_non_null(strstr(k.unsaid, "GPUs: NVIDIA driver: start"));
	topo_kind_free(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hybrid_cube_mesh_has_its_lanes),
		cmocka_unit_test(ports_identify_a_switch),
		cmocka_unit_test(cluster_and_clique_identify_a_fabric),
		cmocka_unit_test(links_that_are_down_do_not_count),
		cmocka_unit_test(a_lost_gpu_leaves_the_others),
		cmocka_unit_test(peers_that_are_cut_off_are_counted),
		cmocka_unit_test(only_visible_gpus_are_kept),
		cmocka_unit_test(an_instance_names_its_gpu_and_ends_the_list),
		cmocka_unit_test(port_speed_is_the_maximum_not_the_idle_speed),
		cmocka_unit_test(failing_drivers_are_errors),
		cmocka_unit_test(drivers_that_report_nonsense_do_no_harm),
		cmocka_unit_test(gpus_become_the_slots_of_this_host),
		cmocka_unit_test(without_gpus_the_cores_are_the_slots),
	};
	return cmocka_run_group_tests(tests, find_double, NULL);
}
