/* The readers of machine descriptions, against the values that a person reads in the files. */
#include "tests/unit/topo/taken.h"

#include "topo/read/read.h"

#include "base/file.h"

#include <hwloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct expect {
	const char *file;
	int devices;
	const char *device;
	int numa, nics;
	int fabrics; /* groups of at least two devices that NVLink or xGMI joins */
	bool switched;
	/* link words from device 0 to device 1 and to the last, with lanes: "NVL2" */
	const char *first, *last;
	const char *nic, *far; /* nearest NIC of device 0 and of the last: "PIX mlx5_0" */
	int numa_first, numa_last;
	const char *cpus;   /* of device 0 */
	const char *unsaid; /* a text in the list of missing facts; NULL: the list is empty */
};

/* The files in ../shared/machines. */
/* clang-format off */
static const struct expect captured[] = {
	{ "hwloc-nvidiaDGX2.xml", 16, "V100-SXM3-32GB", 2, 0, 1, true, "NVS6", "NVS6", "-", "-", 0, 1, "0-1", "NVSwitches" },
	{ "hwloc-power8gpudistances.xml", 4, "P100-SXM2-16GB", 2, 0, 2, false, "NVL2", "SYS", "-", "-", 0, 1, "0-1,8-9,16-17,24-25",
	  "network adapters" },
	{ "hwloc-nvidia-dgx-gb10.xml", 20, "cpu", 1, 0, 0, false, NULL, NULL, "-", "-", 0, 0, "0", "without I/O devices" },
	{ "hwloc-24em64t-2n6c2t-pci.xml", 3, "GPU 10de:06d2", 2, 3, 0, false, "SYS", "SYS", "PHB mlx4_0", "SYS mlx4_0", 0, 1,
	  "0,2,4,6,8,10,12,14,16,18,20,22", "NVLink" },
	{ "hwloc-96em64t-4n4d3ca2co-pci.xml", 96, "cpu", 4, 8, 0, false, NULL, NULL, "NODE eth0", "NODE eth6", 0, 3, "0", NULL },
	{ "hwloc-64intel64-heteromem.xml", 16, "cpu", 8, 0, 0, false, NULL, NULL, "-", "-", 0, 3, "0,16,32,48", "without I/O devices" },
	{ "hwloc-fakeheterodistances.xml", 8, "cpu", 8, 0, 0, false, NULL, NULL, "-", "-", 0, 7, "0", "without I/O devices" },
	{ "nccl-azure-ndv2-topo.xml", 8, "V100-SXM2-32GB", 2, 1, 1, false, "NVL1", "SYS", "PHB NIC0", "SYS NIC0", 0, 1, "0-19", "cube mesh" },
	{ "nccl-azure-ndv4-topo.xml", 8, "A100-SXM4-40GB", 4, 8, 1, true, "NVS12", "NVS12", "PIX NIC0", "PIX NIC7", 0, 3, "0-23", "8 with PCIe 4.0 are taken for A100-SXM4-40GB" },
	{ "nccl-azure-ndv5-topo.xml", 8, "H100-SXM5-80GB", 2, 8, 1, true, "NVS18", "NVS18", "PIX NIC0", "PIX NIC7", 0, 1, "0-47", "NVSwitches" },
	{ "nccl-aws-p4d-24xl-topo.xml", 8, "A100-SXM4-40GB", 2, 4, 1, true, "NVS12", "NVS12", "PIX NIC0", "PIX NIC3", 0, 1, "0-23,48-71", "NVSwitches, as on boards of A100-SXM4-40GB" },
	{ "nccl-aws-g5.48xl-topo.xml", 8, "A10G", 2, 1, 0, false, "PHB", "SYS", "SYS NIC0", "PHB NIC0", 0, 1, "", "no class" },
	{ "nccl-rccl-topo_4p4h.xml", 16, "MI100", 2, 16, 4, false, "PXB", "PHB", "PIX mlx5_12", "PIX mlx5_21", 1, 1, "32-63,96-127", "memory" },
	{ "nccl-rccl-topo_8p6l_2nic.xml", 8, "MI100", 2, 2, 1, false, "XGMI1", "XGMI1", "PHB mlx5_0", "PHB mlx5_1", 0, 1, "0-23,48-71", "memory" },
	{ "nccl-rccl-topo_8p_940.xml", 8, "MI300X", 2, 8, 1, false, "XGMI1", "XGMI1", "PXB mlx5_0", "PXB mlx5_7", 0, 1, "0-55,112-167", "memory" },
	{ "nccl-rccl-topo_8p_pcie.xml", 8, "MI60", 1, 1, 0, false, "PXB", "PHB", "PXB mlx5_0", "PHB mlx5_0", 0, 0, "0-7,16-23", "memory" },
	{ "nvidia-smi-topo-2gpu-phb.txt", 2, "GPU", 1, 0, 0, false, "PHB", "PHB", "-", "-", 0, 0, "0-63", "which GPUs" },
};
/* clang-format on */

/* Our own files, in tests/machines. */
/* clang-format off */
static const struct expect own[] = {
	{ "hwloc-3.xml", 3, "A100-SXM4-80GB", 2, 2, 1, false, "NVL2", "NVL4", "PIX mlx5_0", "SYS mlx5_0", 0, 1, "0-3", NULL },
	{ "hwloc-1.xml", 1, "V100-SXM2-32GB", 2, 1, 0, false, NULL, NULL, "PHB eth0", "PHB eth0", 0, 0, "0-1", NULL },
	{ "nccl-dump.xml", 3, "A100-SXM4-80GB", 4, 4, 1, true, "NVS12", "NVS12", "PIX mlx5_0", "SYS mlx5_4", 0, 3, "0-15,32-47", "memory" },
	{ "nccl-xgmi.xml", 3, "MI250X", 1, 0, 1, false, "XGMI4", "XGMI1", "-", "-", 0, 0, "0-7", "network adapters" },
	{ "nccl-static.xml", 2, "GPU", 1, 1, 0, false, "PHB", "PHB", "PIX NIC0", "PHB NIC0", 0, 0, "0-7", "NVLink" },
	{ "nccl-trays.xml", 2, "GB200-186GB", 1, 0, 1, true, "NVS18", "NVS18", "-", "-", 0, 0, "0-63", "exact model" },
	{ "smi-old.txt", 4, "GPU", 2, 1, 1, false, "NVL2", "SYS", "PIX mlx5_0", "SYS mlx5_0", 0, 1, "0-19,40-59", "same cores" },
	{ "smi-named.txt", 3, "B200-SXM-180GB", 1, 1, 1, true, "NVS18", "NVS18", "PIX NIC0", "NODE NIC0", 0, 0, "0-55", "speeds" },
	{ "smi-dead.txt", 4, "GPU", 2, 4, 1, false, "NVS18", "NVS18", "PXB mlx5_0", "PXB mlx5_2", 0, 1, "0-55,112-167", "which GPUs" },
};
/* clang-format on */

static const char *link_text(const struct node_kind *k, int a, int b, char out[32])
{
	struct topo_link l = topo_cluster_link(k, a, b);
	if (l.lanes)
		snprintf(out, 32, "%s%d", topo_link_word(l.kind), l.lanes);
	else
		snprintf(out, 32, "%s", topo_link_word(l.kind));
	return out;
}

static const char *nic_text(const struct node_kind *k, int device, char out[96])
{
	const struct topo_device *d = &k->parts[device];
	if (d->nic < 0)
		return "-";
	snprintf(out, 96, "%s %s", topo_link_word(d->nic_link), k->nics[d->nic].name);
	return out;
}

/* The number of groups of two or more devices that direct links or switches join. */
static int fabrics_of(const struct node_kind *k)
{
	int n = k->devices, group[128], groups = 0;
	for (int i = 0; i < n; i++)
		group[i] = i;
	for (int i = 0; k->links && i < n; i++)
		for (int j = 0; j < n; j++)
			if (k->links[i * n + j].lanes && group[i] != group[j])
				for (int x = 0, from = group[j], to = group[i]; x < n; x++)
					group[x] = group[x] == from ? to : group[x];
	for (int g = 0; g < n; g++) {
		int members = 0;
		for (int i = 0; i < n; i++)
			members += group[i] == g;
		groups += members > 1;
	}
	return groups;
}

/* Checks what must hold for any file. */
static void hangs_together(const struct cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		assert_true(k->devices > 0 && k->numa > 0 && k->name[0]);
		for (int d = 0; d < k->devices; d++) {
			assert_in_range(k->parts[d].nic + 1, 0, k->n_nics);
			assert_in_range(k->parts[d].numa + 1, 0, k->numa);
		}
		for (int a = 0; k->links && a < k->devices; a++)
			for (int b = 0; b < k->devices; b++) {
				assert_int_equal(k->links[a * k->devices + b].kind == LINK_SELF,
						 a == b);
				assert_true(k->links[a * k->devices + b].bandwidth <=
					    k->link_bandwidth);
			}
	}
	assert_true(c->n_nodes > 0 && c->figures[0]);
}

static void is_as_expected(const char *path, const struct expect *x)
{
	struct cluster c;
	struct err e = ERR_INIT;
	char text[96];
	if (topo_cluster_open(path, 0, &c, &e))
		fail_msg("%s: %s", x->file, e.text);
	const struct node_kind *k = &c.kinds[0];
	print_message("%s: %d × %s\n", x->file, k->devices, k->device);
	hangs_together(&c);
	assert_int_equal(k->devices, x->devices);
	assert_string_equal(k->device, x->device);
	assert_int_equal(k->numa, x->numa);
	assert_int_equal(k->n_nics, x->nics);
	assert_int_equal(k->switched, x->switched);
	assert_int_equal(fabrics_of(k), x->fabrics);
	if (x->first) {
		assert_string_equal(link_text(k, 0, 1, text), x->first);
		assert_string_equal(link_text(k, 0, k->devices - 1, text), x->last);
	}
	assert_string_equal(nic_text(k, 0, text), x->nic);
	assert_string_equal(nic_text(k, k->devices - 1, text), x->far);
	assert_int_equal(k->parts[0].numa, x->numa_first);
	assert_int_equal(k->parts[k->devices - 1].numa, x->numa_last);
	assert_string_equal(k->parts[0].cpus, x->cpus);
	if (x->unsaid && !strstr(k->unsaid, x->unsaid))
		fail_msg("%s: \"%s\" is not in \"%s\"", x->file, x->unsaid, k->unsaid);
	if (!x->unsaid)
		assert_string_equal(k->unsaid, "");
	topo_cluster_free(&c);
}

static void captured_machines_are_read_right(void **state)
{
	(void)state;
	const char *folder = getenv("MUSTER_MACHINES");
	char path[512];
	snprintf(path, sizeof path, "%s/README.md", folder ? folder : "../shared/machines");
	if (access(path, R_OK)) {
		print_message("skipped: no captured machines in %s\n",
			      folder ? folder : "../shared/machines");
		skip();
	}
	for (size_t i = 0; i < sizeof captured / sizeof *captured; i++) {
		snprintf(path, sizeof path, "%s/%s", folder ? folder : "../shared/machines",
			 captured[i].file);
		is_as_expected(path, &captured[i]);
	}
}

static void our_own_machines_are_read_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		char path[128];
		snprintf(path, sizeof path, "tests/machines/%s", own[i].file);
		is_as_expected(path, &own[i]);
	}
}

static void bandwidths_are_those_of_the_links(void **state)
{
	(void)state;
	struct cluster c = opened("tests/machines/hwloc-3.xml");
	const struct node_kind *k = &c.kinds[0];
	assert_float_equal(topo_cluster_link(k, 0, 1).bandwidth, 50e9, 1);
	assert_float_equal(topo_cluster_link(k, 0, 2).bandwidth, 100e9, 1);
	assert_float_equal(k->link_bandwidth, 100e9, 1);
	/* Devices have the driver's numbers, not their order in the file. */
	assert_string_equal(k->parts[0].bus, "0000:14:00.0");
	assert_float_equal(k->memory, 2.0 * 1073741824, 1);
	assert_int_equal(k->cores, 4);
	/* The NIC has 200 Gb/s, but its PCIe link carries only 24. The 1 Gb/s NIC belongs to no
	 * device. */
	assert_float_equal(k->net_bandwidth * 3, 24e9, 1e8);
	topo_cluster_free(&c);
	c = opened("tests/machines/nccl-dump.xml");
	assert_float_equal(topo_cluster_link(&c.kinds[0], 0, 2).bandwidth, 300e9, 1);
	assert_string_equal(c.kinds[0].parts[0].bus, "0000:0f:00.0");
	topo_cluster_free(&c);
	c = opened("tests/machines/smi-named.txt"); /* 18 links of the fifth generation */
	assert_float_equal(c.kinds[0].link_bandwidth, 900e9, 1);
	assert_float_equal(c.kinds[0].device_flops, 2250e12, 1);
	topo_cluster_free(&c);
}

static void trays_in_one_dump_are_nodes_of_one_domain(void **state)
{
	(void)state;
	struct cluster c = opened("tests/machines/nccl-trays.xml");
	assert_int_equal(c.n_nodes, 2);
	assert_int_equal(c.n_kinds, 1);
	assert_int_equal(topo_cluster_devices(&c), 4);
	assert_true(topo_cluster_share_nvlink(&c, 0, 1));
	assert_float_equal(c.kinds[0].link_bandwidth, 900e9, 1);
	topo_cluster_free(&c);
}

static void a_file_of_one_node_may_be_taken_many_times(void **state)
{
	(void)state;
	struct cluster c = opened("tests/machines/hwloc-3.xml:12");
	assert_int_equal(c.n_nodes, 12);
	assert_int_equal(topo_cluster_devices(&c), 36);
	assert_string_equal(c.nodes[11].name, "node11");
	topo_cluster_free(&c);
	struct err e = ERR_INIT;
	assert_int_equal(topo_cluster_open("tests/machines/nccl-trays.xml:2", 0, &c, &e), -1);
	assert_non_null(strstr(e.text, "leave the number away"));
	static const char *const none[] = { "tests/machines/hwloc-3.xml:0",
					    "tests/machines/hwloc-3.xml:70000",
					    "tests/machines/hwloc-3.xml:", "hwloc-3.xml:4x",
					    "./it:0" };
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		assert_int_equal(topo_cluster_open(none[i], 0, &c, &e), -1);
		if (e.code != ERR_USAGE ||
		    !strstr(e.text, "not a number of nodes; give one from 1 to 65536"))
			fail_msg("%s: %s", none[i], e.text);
	}
	assert_int_equal(topo_cluster_open("./a:b/none.xml", 0, &c, &e), -1);
	assert_non_null(strstr(e.text, "./a:b/none.xml: cannot open"));
	assert_int_equal(topo_cluster_open("tests/machines/none.xml", 0, &c, &e), -1);
	assert_non_null(strstr(e.text, "tests/machines/none.xml"));
}

/* Compares hwloc's own view of machines that it synthesizes with our view of the XML that it writes
 * for them. */
static void hwlocs_synthetic_machines_are_read_as_hwloc_does(void **state)
{
	(void)state;
	static const char *const machines[] = { "pack:2 [numa] core:4 pu:2",
						"pack:2 die:2 [numa] l3:2 core:2 pu:1",
						"numa:4(indexes=2,0,3,1) core:3 pu:2",
						"core:7 pu:1",
						"pack:1 [numa] [numa] core:6 pu:2",
						"group:2 pack:2 [numa(memory=1GB)] core:16 pu:2" };
	static const unsigned long forms[] = { 0, HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V1 };
	for (size_t i = 0; i < 2 * sizeof machines / sizeof *machines; i++) {
		hwloc_topology_t t;
		char *xml;
		int len;
		struct cluster c;
		struct err e = ERR_INIT;
		assert_int_equal(hwloc_topology_init(&t), 0);
		assert_int_equal(hwloc_topology_set_synthetic(t, machines[i / 2]), 0);
		assert_int_equal(hwloc_topology_load(t), 0);
		assert_int_equal(hwloc_topology_export_xmlbuffer(t, &xml, &len, forms[i % 2]), 0);
		const struct topo_text in = { .file = machines[i / 2],
					      .text = xml,
					      .len = (size_t)len };
		if (topo_read_text(&in, &c, &e))
			fail_msg("%s: %s", machines[i / 2], e.text);
		const struct node_kind *k = &c.kinds[0];
		assert_int_equal(k->cores, hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE));
		assert_int_equal(k->numa, hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE));
		assert_float_equal(k->memory, (double)hwloc_get_root_obj(t)->total_memory, 1);
		for (int n = 0; n < k->devices; n++) {
			hwloc_obj_t core = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)n);
			char list[256];
			hwloc_bitmap_list_snprintf(list, sizeof list, core->cpuset);
			assert_string_equal(k->parts[n].cpus, list);
			assert_int_equal(k->parts[n].numa, hwloc_bitmap_first(core->nodeset));
		}
		topo_cluster_free(&c);
		hwloc_free_xmlbuffer(t, xml);
		hwloc_topology_destroy(t);
	}
}

static void a_gpu_without_cores_keeps_its_numa_domain(void **state)
{
	(void)state;
	struct cluster c = taken("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X "
				 "\tSYS\t44-51\t0\t\tN/A\nGPU1\tSYS\t X \t\t1\t\tN/A\n");
	assert_string_equal(c.kinds[0].parts[0].cpus, "44-51");
	assert_int_equal(c.kinds[0].parts[0].numa, 0);
	assert_string_equal(c.kinds[0].parts[1].cpus, "");
	assert_int_equal(c.kinds[0].parts[1].numa, 1);
	topo_cluster_free(&c);
}

static void a_link_table_distinguishes_mesh_and_switch(void **state)
{
	(void)state;
	char text[32];
	/* Four lanes to each of three peers: an A100 has that many, so the links are direct. */
	struct cluster c = taken("GPU0 GPU1 GPU2 GPU3 CPU Affinity\nGPU0 X NV4 NV4 NV4 0-3\nGPU1 "
				 "NV4 X NV4 NV4 0-3\nGPU2 NV4 NV4 X NV4 0-3\n"
				 "GPU3 NV4 NV4 NV4 X 0-3\n");
	assert_string_equal(link_text(&c.kinds[0], 0, 3, text), "NVL4");
	assert_false(c.kinds[0].switched);
	topo_cluster_free(&c);
	/* The lanes are more than any GPU has, but not every pair is joined. Pairs that the table
	 * does not join are not joined. */
	c = taken("GPU0 GPU1 GPU2 CPU Affinity\nGPU0 X NV12 NV12 0-3\nGPU1 NV12 X PIX 0-3\nGPU2 "
		  "NV12 PIX X 0-3\n");
	assert_string_equal(link_text(&c.kinds[0], 1, 2, text), "PIX");
	assert_string_equal(link_text(&c.kinds[0], 0, 1, text), "NVL12");
	topo_cluster_free(&c);
	/* Two boards of switches with no link between them. */
	c = taken("GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 CPU Affinity\nGPU0 X NV12 NV12 SYS SYS SYS "
		  "0\nGPU1 NV12 X NV12 SYS SYS SYS 0\n"
		  "GPU2 NV12 NV12 X SYS SYS SYS 0\nGPU3 SYS SYS SYS X NV12 NV12 1\nGPU4 SYS SYS "
		  "SYS NV12 X NV12 1\nGPU5 SYS SYS SYS NV12 NV12 X 1\n");
	assert_string_equal(link_text(&c.kinds[0], 0, 2, text), "NVS12");
	assert_string_equal(link_text(&c.kinds[0], 0, 3, text), "SYS");
	assert_int_equal(fabrics_of(&c.kinds[0]), 2);
	topo_cluster_free(&c);
}

/* hwloc before 2.10 gives 50 GB/s for links of 25 GB/s. */
static void links_that_old_hwloc_counts_twice_are_counted_once(void **state)
{
	(void)state;
	char text[32];
	struct cluster c = taken(
		"<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\"><object "
		"type=\"PU\" cpuset=\"0x1\"/>"
		"<object type=\"PCIDev\" gp_index=\"5\" pci_type=\"0302 [10de:20b2]\"/>"
		"<object type=\"PCIDev\" gp_index=\"6\" pci_type=\"0302 [10de:20b2]\"/>"
		"<object type=\"PCIDev\" gp_index=\"7\" pci_type=\"0680 [10de:1af1]\"/></object>"
		"<distances2hetero nbobjs=\"3\" name=\"NVLinkBandwidth\"><indexes>PCIDev:5 "
		"PCIDev:6 PCIDev:7</indexes>"
		"<u64values>0 0 600000 0 0 600000 600000 600000 "
		"0</u64values></distances2hetero></topology>");
	assert_string_equal(link_text(&c.kinds[0], 0, 1, text), "NVS12");
	assert_float_equal(c.kinds[0].link_bandwidth, 300e9, 1);
	topo_cluster_free(&c);
}

static void a_gpu_below_several_domains_is_next_to_none(void **state)
{
	(void)state;
	struct cluster c = taken(
		"<topology><object type=\"Machine\" cpuset=\"0x3\" nodeset=\"0x3\">"
		"<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\"/>"
		"<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" nodeset=\"0x2\"/>"
		"<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302 "
		"[10de:2330]\"/></object></topology>");
	assert_int_equal(c.kinds[0].parts[0].numa, -1);
	assert_string_equal(c.kinds[0].device, "H100-SXM5-80GB");
	assert_non_null(strstr(c.kinds[0].unsaid, "which NUMA domain"));
	topo_cluster_free(&c);
}

static void a_port_that_every_cpu_lists_counts_once(void **state)
{
	(void)state;
#define CPU(n) \
	"<cpu numaid=\"" n "\"><nic><net name=\"eth0\" speed=\"10000\"/></nic><pci busid=\"0" n \
	"\" class=\"0x0302\"><gpu dev=\"" n "\" sm=\"90\"/></pci></cpu>"
	struct cluster c = taken("<system>" CPU("0") CPU("1") "</system>");
	assert_int_equal(c.kinds[0].n_nics, 1);
	assert_float_equal(c.kinds[0].net_bandwidth, 1.25e9 / 2, 1);
	assert_int_equal(c.kinds[0].nics[0].numa, -1);
	assert_int_equal(c.kinds[0].parts[1].nic, 0);
	assert_non_null(strstr(c.kinds[0].unsaid, "where some network adapters are"));
	topo_cluster_free(&c);
}

static void gpus_are_known_by_their_architecture(void **state)
{
	(void)state;
	static const struct {
		const char *gpu, *device;
	} rows[] = { { "sm=\"90\"", "H100-SXM5-80GB" },
		     { "sm=\"104\" gcn=\"910\"", "MI250X" },
		     { "sm=\"228\" gcn=\"gfx940\"", "MI300X" },
		     { "sm=\"60\" gcn=\"906\"", "MI60" },
		     { "sm=\"50\"", "NVIDIA sm_50" },
		     { "sm=\"32\" gcn=\"gfx1100\"", "AMD gfx1100" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[256];
		snprintf(text, sizeof text,
			 "<system><cpu numaid=\"-1\"><pci busid=\"0\" class=\"0x03\"><gpu "
			 "dev=\"0\" %s/></pci></cpu></system>",
			 rows[i].gpu);
		struct cluster c = taken(text);
		assert_string_equal(c.kinds[0].device, rows[i].device);
		assert_int_equal(c.kinds[0].parts[0].numa, -1);
		topo_cluster_free(&c);
	}
}

/* A file for NCCL_TOPO_FILE: a processor and n GPUs on PCIe of this speed, with these attributes. */
static struct cluster static_file(const char *cpu, int n, const char *speed, const char *ids)
{
	struct buf text = BUF_INIT;
	buf_printf(&text, "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" %s>", cpu);
	for (int i = 0; i < n; i++)
		buf_printf(&text,
			   "<pci busid=\"%04d:00:00.0\" class=\"0x030200\" link_speed=\"%s\" "
			   "link_width=\"16\" %s/>",
			   i, speed, ids);
	buf_puts(&text, "</cpu></system>");
	struct cluster c = taken(buf_str(&text));
	buf_fini(&text);
	return c;
}

static void a_file_that_leaves_nvlink_to_the_driver_has_that_of_the_gpus_board(void **state)
{
	(void)state;
	static const char a100_40[] = "vendor=\"0x10de\" device=\"0x20b0\"",
			  a100_80[] = "vendor=\"0x10de\" device=\"0x20b2\"",
			  a100_pcie[] = "vendor=\"0x10de\" device=\"0x20b5\"",
			  v100[] = "vendor=\"0x10de\" device=\"0x1db5\"",
			  p100[] = "vendor=\"0x10de\" device=\"0x15f9\"",
			  gb200[] = "vendor=\"0x10de\" device=\"0x2941\"",
			  mi300x[] = "vendor=\"0x1002\" device=\"0x74a1\"",
			  t4[] = "vendor=\"0x10de\" device=\"0x1eb8\"";
	/* clang-format off */
	static const struct {
		int n;
		const char *speed, *ids, *device, *first, *last;
		double bandwidth; /* from the first to the second */
		const char *said, *unsaid; /* in the list; not in the list */
	} rows[] = {
		{ 8, "16.0 GT/s", a100_40, "A100-SXM4-40GB", "NVS12", "NVS12", 300e9, "NVSwitches, as on boards of A100-SXM4-40GB", "which GPUs" },
		{ 8, "16.0 GT/s", a100_80, "A100-SXM4-80GB", "NVS12", "NVS12", 300e9, "NVSwitches, as on boards of A100-SXM4-80GB", "which GPUs" },
		{ 4, "16.0 GT/s", a100_80, "A100-SXM4-80GB", "NVL4", "NVL4", 100e9, "4 links between any two GPUs are taken", "NVSwitch" },
		{ 2, "16.0 GT/s", a100_80, "A100-SXM4-80GB", "NVL4", "NVL4", 100e9, "4 links between any two GPUs are taken", "NVSwitch" },
		{ 4, "16.0 GT/s", gb200, "GB200-186GB", "NVS18", "NVS18", 900e9, "NVSwitches", "which GPUs" },
		{ 8, "8.0 GT/s", v100, "V100-SXM2-32GB", "NVL1", "PHB", 25e9, "hybrid cube mesh of boards of 8 V100-SXM2-32GB", "which GPUs" },
		{ 8, "8.0 GT/s", p100, "P100-SXM2-16GB", "NVL1", "PHB", 20e9, "hybrid cube mesh", "which GPUs" },
		{ 8, "32.0 GT/s", mi300x, "MI300X", "XGMI1", "XGMI1", 64e9, "xGMI: 1 link between any two GPUs is taken", "NVLink" },
		/* Boards with PCIe may have bridges, and the T4 has nothing. */
		{ 4, "16.0 GT/s", a100_pcie, "A100-PCIe-80GB", "PHB", "PHB", 24e9, "leaves to the driver", "taken" },
		{ 4, "8.0 GT/s", t4, "T4", "PHB", "PHB", 12e9, "cores", "NVLink" },
		/* Nothing is known but the number and the speed. */
		{ 8, "8.0 GT/s", "", "V100-SXM2-32GB", "NVL1", "PHB", 25e9, "8 with PCIe 3.0 are taken for V100-SXM2-32GB", "memory and rates" },
		{ 8, "16.0 GT/s PCIe", "", "A100-SXM4-40GB", "NVS12", "NVS12", 300e9, "8 with PCIe 4.0 are taken for A100-SXM4-40GB", "memory and rates" },
		{ 8, "32.0 GT/s PCIe", "", "H100-SXM5-80GB", "NVS18", "NVS18", 450e9, "8 with PCIe 5.0 are taken for H100-SXM5-80GB", "memory and rates" },
		{ 4, "32.0 GT/s PCIe", "", "GPU", "PHB", "PHB", 48e9, "which GPUs these are, their memory and rates; NVLink or xGMI links, which it leaves", "taken" },
		{ 8, "2.5 GT/s PCIe", "", "GPU", "PHB", "PHB", 3.05e9, "memory and rates", "taken" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c = static_file("", rows[i].n, rows[i].speed, rows[i].ids);
		const struct node_kind *k = &c.kinds[0];
		char text[96];
		print_message("%d × %s: %s\n", k->devices, k->device, k->unsaid);
		hangs_together(&c);
		assert_string_equal(k->device, rows[i].device);
		assert_string_equal(link_text(k, 0, 1, text), rows[i].first);
		assert_string_equal(link_text(k, 0, k->devices - 1, text), rows[i].last);
		assert_true(fabs(topo_cluster_link(k, 0, 1).bandwidth / rows[i].bandwidth - 1) <
			    0.03);
		assert_non_null(strstr(k->unsaid, rows[i].said));
		assert_null(strstr(k->unsaid, rows[i].unsaid));
		topo_cluster_free(&c);
	}
}

/* Some files name a faster PCIe than the processor has. */
static void unnamed_gpus_are_no_newer_than_their_processor(void **state)
{
	(void)state;
	static const struct {
		const char *cpu, *device;
	} rows[] = {
		{ "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\"", "V100-SXM2-32GB" },
		{ "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"106\"", "A100-SXM4-40GB" },
		{ "vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"1\"", "V100-SXM2-32GB" },
		{ "vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\"", "A100-SXM4-40GB" },
		{ "vendor=\"AuthenticAMD\" familyid=\"25\" modelid=\"1\"", "A100-SXM4-40GB" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c = static_file(rows[i].cpu, 8, "16.0 GT/s", "");
		assert_string_equal(c.kinds[0].device, rows[i].device);
		topo_cluster_free(&c);
	}
}

static void an_assumed_cube_mesh_is_that_of_the_preset(void **state)
{
	(void)state;
	struct cluster c = static_file("", 8, "8.0 GT/s", ""), preset;
	assert_int_equal(topo_cluster_open("dgx-1", 0, &preset, NULL), 0);
	for (int a = 0; a < 8; a++)
		for (int b = 0; b < 8; b++) {
			struct topo_link x = topo_cluster_link(&c.kinds[0], a, b),
					 y = topo_cluster_link(&preset.kinds[0], a, b);
			assert_int_equal(x.lanes, y.lanes);
			assert_int_equal(x.kind == LINK_NVLINK, y.kind == LINK_NVLINK);
		}
	topo_cluster_free(&c);
	topo_cluster_free(&preset);
}

/* As some virtual machines show their boards: the links of each GPU lead to itself. */
static void links_that_lead_nowhere_are_bridges_of_neighbours(void **state)
{
	(void)state;
	struct buf text = BUF_INIT;
	char word[96];
	buf_puts(&text, "<system version=\"1\">");
	for (int i = 0; i < 4; i++)
		buf_printf(&text,
			   "<cpu numaid=\"%d\"><pci busid=\"%04d:00:00.0\" class=\"0x030200\" "
			   "vendor=\"0x10de\" device=\"0x20b5\" link_speed=\"\" link_width=\"0\">"
			   "<gpu dev=\"%d\" sm=\"80\"><nvlink target=\"%04d:00:00.0\" "
			   "count=\"12\" tclass=\"0x030200\"/></gpu></pci></cpu>",
			   i, i, i, i);
	buf_puts(&text, "</system>");
	struct cluster c = taken(buf_str(&text));
	const struct node_kind *k = &c.kinds[0];
	assert_string_equal(k->device, "A100-PCIe-80GB");
	assert_string_equal(link_text(k, 0, 1, word), "NVL12");
	assert_string_equal(link_text(k, 2, 3, word), "NVL12");
	assert_string_equal(link_text(k, 1, 2, word), "SYS");
	assert_non_null(strstr(k->unsaid, "bridges of 12 links are taken to join"));
	assert_non_null(strstr(k->unsaid, "at their own GPU"));
	topo_cluster_free(&c);
	buf_fini(&text);
}

/* What trains is of one vendor. The display adapter that computes, too, is first in the file. */
static void gpus_of_two_vendors_are_not_one_kind(void **state)
{
	(void)state;
	struct cluster c = opened("tests/machines/hwloc-two.xml");
	const struct node_kind *k = &c.kinds[0];
	char word[96];
	hangs_together(&c);
	assert_string_equal(k->device, "V100-PCIe-16GB");
	assert_int_equal(k->devices, 2);
	assert_string_equal(k->parts[0].bus, "0000:12:00.0");
	assert_string_equal(k->parts[1].bus, "0000:81:00.0");
	assert_string_equal(link_text(k, 0, 1, word), "SYS");
	assert_string_equal(nic_text(k, 1, word), "PHB mlx5_0");
	assert_float_equal(k->device_memory, 16 * 1073741824.0, 1);
	assert_non_null(strstr(k->unsaid, "1 AMD GPU, which is left out"));
	topo_cluster_free(&c);
}

static void slots_of_a_machine_without_gpus_are_as_many_as_asked(void **state)
{
	(void)state;
	struct cluster c;
	hwloc_topology_t t;
	char *xml;
	int len;
	assert_int_equal(hwloc_topology_init(&t), 0);
	assert_int_equal(hwloc_topology_set_synthetic(t, "pack:2 [numa] core:4 pu:1"), 0);
	assert_int_equal(hwloc_topology_load(t), 0);
	assert_int_equal(hwloc_topology_export_xmlbuffer(t, &xml, &len, 0), 0);
	const struct topo_text in = { .file = "x", .text = xml, .len = (size_t)len, .devices = 2 };
	assert_int_equal(topo_read_text(&in, &c, NULL), 0);
	assert_int_equal(c.kinds[0].devices, 2);
	assert_int_equal(c.kinds[0].parts[0].numa, 0);
	assert_int_equal(c.kinds[0].parts[1].numa, 1);
	topo_cluster_free(&c);
	hwloc_free_xmlbuffer(t, xml);
	hwloc_topology_destroy(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(captured_machines_are_read_right),
		cmocka_unit_test(our_own_machines_are_read_right),
		cmocka_unit_test(
			a_file_that_leaves_nvlink_to_the_driver_has_that_of_the_gpus_board),
		cmocka_unit_test(unnamed_gpus_are_no_newer_than_their_processor),
		cmocka_unit_test(an_assumed_cube_mesh_is_that_of_the_preset),
		cmocka_unit_test(links_that_lead_nowhere_are_bridges_of_neighbours),
		cmocka_unit_test(gpus_of_two_vendors_are_not_one_kind),
		cmocka_unit_test(bandwidths_are_those_of_the_links),
		cmocka_unit_test(trays_in_one_dump_are_nodes_of_one_domain),
		cmocka_unit_test(a_file_of_one_node_may_be_taken_many_times),
		cmocka_unit_test(hwlocs_synthetic_machines_are_read_as_hwloc_does),
		cmocka_unit_test(a_gpu_without_cores_keeps_its_numa_domain),
		cmocka_unit_test(a_link_table_distinguishes_mesh_and_switch),
		cmocka_unit_test(links_that_old_hwloc_counts_twice_are_counted_once),
		cmocka_unit_test(a_gpu_below_several_domains_is_next_to_none),
		cmocka_unit_test(a_port_that_every_cpu_lists_counts_once),
		cmocka_unit_test(gpus_are_known_by_their_architecture),
		cmocka_unit_test(slots_of_a_machine_without_gpus_are_as_many_as_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
