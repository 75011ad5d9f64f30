#include "topo/gpus.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GIB (1024.0 * 1024 * 1024)

/*
 * Sources: the vendors' data sheets, which the comments name ("DS"); device ids: the PCI ID
 * repository. A data sheet's "GB" of HBM is about a GiB as the driver counts it. NVLink has 20 GB/s
 * per lane and direction in generation 1, 25 in generations 2 to 4, 50 in generation 5; bridges of
 * GDDR boards run at 14.0625 ("NVIDIA Ampere GA102 Architecture"). If several models share an
 * architecture, the most common one comes first, because topo_gpu_of_arch() returns it.
 */
/* clang-format off */
static const struct gpu_model models[] = {
	/* "Tesla P100" DS: 21.2 (SXM2), 18.7 (PCIe) TFLOPS fp16, 16 GB, 732 GB/s; NVLink 160
	 * GB/s both ways. */
	{ "P100-SXM2-16GB", "p100 sxm2 16gb", PCI_NVIDIA, { 0x15f9 }, 60, 21.2e12, 16 * GIB, 732e9, LINK_NVLINK, 4, 20e9, JOIN_CUBE },
	{ "P100-PCIe-16GB", "p100 pcie 16gb", PCI_NVIDIA, { 0x15f8 }, 60, 18.7e12, 16 * GIB, 732e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "Tesla V100" DS: 125 (SXM2), 112 (PCIe) TFLOPS fp16, 900 GB/s; NVLink 300 GB/s both
	 * ways. "DGX-2" DS: SXM3, 2 PFLOPS of 16. */
	{ "V100-SXM2-32GB", "v100 sxm2 32gb", PCI_NVIDIA, { 0x1db5 }, 70, 125e12, 32 * GIB, 900e9, LINK_NVLINK, 6, 25e9, JOIN_CUBE },
	{ "V100-SXM2-16GB", "v100 sxm2 16gb", PCI_NVIDIA, { 0x1db1, 0x1df5 }, 70, 125e12, 16 * GIB, 900e9, LINK_NVLINK, 6, 25e9, JOIN_CUBE },
	{ "V100-SXM3-32GB", "v100 sxm3 32gb", PCI_NVIDIA, { 0x1db8 }, 70, 125e12, 32 * GIB, 900e9, LINK_NVLINK, 6, 25e9, JOIN_ALWAYS_SWITCH },
	{ "V100-PCIe-16GB", "v100 pcie 16gb", PCI_NVIDIA, { 0x1db4 }, 70, 112e12, 16 * GIB, 900e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "V100-PCIe-32GB", "v100 pcie 32gb", PCI_NVIDIA, { 0x1db6 }, 70, 112e12, 32 * GIB, 900e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "V100S-PCIe-32GB", "v100s pcie", PCI_NVIDIA, { 0x1df6 }, 70, 130e12, 32 * GIB, 1134e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "T4" DS: 65 TFLOPS fp16, 16 GB, 320 GB/s. */
	{ "T4", "t4", PCI_NVIDIA, { 0x1eb8 }, 75, 65e12, 16 * GIB, 320e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "A100 Tensor Core GPU" DS: 312 TFLOPS; 40 GB 1555 GB/s; 80 GB 2039 (SXM), 1935 (PCIe);
	 * NVLink 600 GB/s both ways, on PCIe boards through bridges between two. */
	{ "A100-SXM4-80GB", "a100 sxm 80gb", PCI_NVIDIA, { 0x20b2 }, 80, 312e12, 80 * GIB, 2039e9, LINK_NVLINK, 12, 25e9, JOIN_SWITCH },
	{ "A100-SXM4-40GB", "a100 sxm 40gb", PCI_NVIDIA, { 0x20b0 }, 80, 312e12, 40 * GIB, 1555e9, LINK_NVLINK, 12, 25e9, JOIN_SWITCH },
	{ "A100-PCIe-80GB", "a100 pcie 80gb", PCI_NVIDIA, { 0x20b5 }, 80, 312e12, 80 * GIB, 1935e9, LINK_NVLINK, 12, 25e9, JOIN_BRIDGE },
	{ "A100-PCIe-40GB", "a100 pcie 40gb", PCI_NVIDIA, { 0x20f1 }, 80, 312e12, 40 * GIB, 1555e9, LINK_NVLINK, 12, 25e9, JOIN_BRIDGE },
	/* The A100 with NVLink of 400 GB/s both ways. */
	{ "A800-SXM4-80GB", "a800 sxm 80gb", PCI_NVIDIA, { 0x20f3 }, 80, 312e12, 80 * GIB, 2039e9, LINK_NVLINK, 8, 25e9, JOIN_SWITCH },
	{ "A800-PCIe-80GB", "a800 pcie 80gb", PCI_NVIDIA, { 0x20f5 }, 80, 312e12, 80 * GIB, 1935e9, LINK_NVLINK, 8, 25e9, JOIN_BRIDGE },
	/* "A30" DS: 165 TFLOPS, 24 GB, 933 GB/s, NVLink 200 GB/s both ways. */
	{ "A30", "a30", PCI_NVIDIA, { 0x20b7 }, 80, 165e12, 24 * GIB, 933e9, LINK_NVLINK, 4, 25e9, JOIN_BRIDGE },
	/* "A10" DS: 125 TFLOPS, 24 GB, 600 GB/s. The A10G of AWS: "EC2 G5": 70 TFLOPS dense.
	 * "A40" DS: 149.7, 48 GB, 696 GB/s. */
	{ "A10G", "a10g", PCI_NVIDIA, { 0x2237 }, 86, 70e12, 24 * GIB, 600e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "A10", "a10", PCI_NVIDIA, { 0x2236 }, 86, 125e12, 24 * GIB, 600e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "A40", "a40", PCI_NVIDIA, { 0x2235 }, 86, 149.7e12, 48 * GIB, 696e9, LINK_NVLINK, 4, 14.0625e9, JOIN_BRIDGE },
	/* "RTX A6000" DS: 48 GB, 768 GB/s; "GA102 Architecture": 154.8 TFLOPS, RTX 3090: 71, 24
	 * GB, 936 GB/s. */
	{ "RTX-A6000", "rtx a6000", PCI_NVIDIA, { 0x2230 }, 86, 154.8e12, 48 * GIB, 768e9, LINK_NVLINK, 4, 14.0625e9, JOIN_BRIDGE },
	{ "RTX-3090", "rtx 3090", PCI_NVIDIA, { 0x2204 }, 86, 71e12, 24 * GIB, 936e9, LINK_NVLINK, 4, 14.0625e9, JOIN_BRIDGE },
	/* "NVIDIA Ada GPU Architecture": RTX 4090 165 TFLOPS, 24 GB, 1008 GB/s. */
	{ "RTX-4090", "rtx 4090", PCI_NVIDIA, { 0x2684 }, 89, 165.2e12, 24 * GIB, 1008e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "L4" DS: 121 TFLOPS dense, 24 GB, 300 GB/s. "L40" DS: 181, 48 GB, 864. "L40S" DS: 362,
	 * 48 GB, 864. */
	{ "L40S", "l40s", PCI_NVIDIA, { 0x26b9 }, 89, 362e12, 48 * GIB, 864e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "L40", "l40", PCI_NVIDIA, { 0x26b5 }, 89, 181e12, 48 * GIB, 864e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	{ "L4", "l4", PCI_NVIDIA, { 0x27b8 }, 89, 121e12, 24 * GIB, 300e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "H100 Tensor Core GPU" DS, half of the rates with sparsity: SXM 989 TFLOPS, 80 GB, 3.35
	 * TB/s, NVLink 900 GB/s both ways; PCIe 756, 80 GB, 2 TB/s, bridges of 600; NVL 835, 94 GB,
	 * 3.9 TB/s. */
	{ "H100-SXM5-80GB", "h100 80gb hbm3", PCI_NVIDIA, { 0x2330 }, 90, 989e12, 80 * GIB, 3350e9, LINK_NVLINK, 18, 25e9, JOIN_SWITCH },
	{ "H100-PCIe-80GB", "h100 pcie", PCI_NVIDIA, { 0x2331 }, 90, 756e12, 80 * GIB, 2000e9, LINK_NVLINK, 12, 25e9, JOIN_BRIDGE },
	{ "H100-NVL-94GB", "h100 nvl", PCI_NVIDIA, { 0x2321 }, 90, 835e12, 94 * GIB, 3900e9, LINK_NVLINK, 12, 25e9, JOIN_BRIDGE },
	/* The H100 with NVLink of 400 GB/s both ways. */
	{ "H800-SXM5-80GB", "h800", PCI_NVIDIA, { 0x2324 }, 90, 989e12, 80 * GIB, 3350e9, LINK_NVLINK, 8, 25e9, JOIN_SWITCH },
	{ "H800-PCIe-80GB", "h800 pcie", PCI_NVIDIA, { 0x2322 }, 90, 756e12, 80 * GIB, 2000e9, LINK_NVLINK, 8, 25e9, JOIN_BRIDGE },
	/* "H20": 148 TFLOPS, 96 GB, 4 TB/s, NVLink 900 GB/s both ways. */
	{ "H20-96GB", "h20", PCI_NVIDIA, { 0x2329 }, 90, 148e12, 96 * GIB, 4000e9, LINK_NVLINK, 18, 25e9, JOIN_SWITCH },
	/* "H200 Tensor Core GPU" DS: 989 (SXM), 835 (NVL) TFLOPS, 4.8 TB/s, 141 GB: the driver
	 * shows 140 GiB, of which the runtime reserves one. */
	{ "H200-SXM-141GB", "h200", PCI_NVIDIA, { 0x2335 }, 90, 989e12, 139 * GIB, 4800e9, LINK_NVLINK, 18, 25e9, JOIN_SWITCH },
	{ "H200-NVL-141GB", "h200 nvl", PCI_NVIDIA, { 0x233b }, 90, 835e12, 139 * GIB, 4800e9, LINK_NVLINK, 18, 25e9, JOIN_BRIDGE },
	/* "GH200 Grace Hopper Superchip" DS: 990 TFLOPS; 96 GB, 4 TB/s or 144 GB, 4.9 TB/s; NVLink
	 * 900 GB/s both ways. The driver names the first by its CPU's memory, of 120 or 480 GB. */
	{ "GH200-96GB", "gh200", PCI_NVIDIA, { 0x2342, 0x2345 }, 90, 989e12, 96 * GIB, 4000e9, LINK_NVLINK, 18, 25e9, JOIN_MESH },
	{ "GH200-144GB", "gh200 144g", PCI_NVIDIA, { 0x2348 }, 90, 989e12, 144 * GIB, 4900e9, LINK_NVLINK, 18, 25e9, JOIN_MESH },
	/* "DGX B200" DS, of 8: 72 PFLOPS FP8 with sparsity, so 2.25 PFLOPS bf16 dense; 1440 GB,
	 * 64 TB/s; NVLink 14.4 TB/s both ways. */
	{ "B200-SXM-180GB", "b200", PCI_NVIDIA, { 0x2901 }, 100, 2250e12, 180 * GIB, 8000e9, LINK_NVLINK, 18, 50e9, JOIN_SWITCH },
	/* "GB200 NVL72" DS, of 72: 360 PFLOPS bf16 with sparsity, so 2.5 dense; 13.4 TB, 576
	 * TB/s; NVLink 130 TB/s both ways. */
	{ "GB200-186GB", "gb200", PCI_NVIDIA, { 0x2941 }, 100, 2500e12, 186 * GIB, 8000e9, LINK_NVLINK, 18, 50e9, JOIN_ALWAYS_SWITCH },
	/* "DGX B300" DS, of 8: 72 PFLOPS FP8 with sparsity, so 2.25 PFLOPS bf16 dense; 64 TB/s;
	 * NVLink 14.4 TB/s both ways. "GB300 NVL72" DS, of 72: 360 PFLOPS bf16 with sparsity, so
	 * 2.5 dense; 576 TB/s; NVLink 130 TB/s both ways. 288 GB; the driver shows 268, 277 GiB. */
	{ "B300-SXM-288GB", "b300", PCI_NVIDIA, { 0x3182 }, 103, 2250e12, 268 * GIB, 8000e9, LINK_NVLINK, 18, 50e9, JOIN_SWITCH },
	{ "GB300-288GB", "gb300", PCI_NVIDIA, { 0x31c2, 0x31c3 }, 103, 2500e12, 277 * GIB, 8000e9, LINK_NVLINK, 18, 50e9, JOIN_ALWAYS_SWITCH },
	/* "DGX Spark" DS: 1 PFLOPS FP4 with sparsity, so 125 TFLOPS bf16 dense; 128 GB shared
	 * with the CPU, 273 GB/s. */
	{ "GB10", "gb10", PCI_NVIDIA, { 0x2e12 }, 121, 125e12, 128 * GIB, 273e9, LINK_UNKNOWN, 0, 0, JOIN_BRIDGE },
	/* "Radeon Instinct MI60", "MI50" DS: 29.5, 26.5 TFLOPS fp16, 32, 16 GB, 1024 GB/s; two
	 * links, 184 GB/s both ways together. */
	{ "MI60", "mi60", PCI_AMD, { 0x66a1 }, 0x906, 29.5e12, 32 * GIB, 1024e9, LINK_XGMI, 2, 46e9, JOIN_BRIDGE },
	{ "MI50", "mi50", PCI_AMD, { 0x66a0 }, 0x906, 26.5e12, 16 * GIB, 1024e9, LINK_XGMI, 2, 46e9, JOIN_BRIDGE },
	/* "Instinct MI100" DS: 184.6 TFLOPS fp16 (bf16 92.3), 32 GB, 1228.8 GB/s; three links of
	 * 92 GB/s both ways. */
	{ "MI100", "mi100", PCI_AMD, { 0x738c, 0x738e }, 0x908, 184.6e12, 32 * GIB, 1228.8e9, LINK_XGMI, 3, 46e9, JOIN_BRIDGE },
	/* "Instinct MI200 series" DS; links of 100 GB/s both ways. An MI250 or MI250X is two
	 * devices; the values are those of one. */
	{ "MI250X", "mi250x", PCI_AMD, { 0x7408 }, 0x90a, 191.5e12, 64 * GIB, 1638.4e9, LINK_XGMI, 8, 50e9, JOIN_BRIDGE },
	{ "MI250", "mi250", PCI_AMD, { 0x740c }, 0x90a, 181e12, 64 * GIB, 1638.4e9, LINK_XGMI, 7, 50e9, JOIN_BRIDGE },
	{ "MI210", "mi210", PCI_AMD, { 0x740f }, 0x90a, 181e12, 64 * GIB, 1638.4e9, LINK_XGMI, 3, 50e9, JOIN_BRIDGE },
	/* "Instinct MI300X" DS: 1307.4 TFLOPS, 192 GB, 5.3 TB/s; seven links of 128 GB/s both ways.
	 * "MI300A" DS: 980.6, 128 GB. "MI325X" DS: 256 GB, 6 TB/s. */
	{ "MI300X", "mi300x", PCI_AMD, { 0x74a1, 0x74a9, 0x74b5, 0x74bd }, 0x942, 1307.4e12, 192 * GIB, 5300e9, LINK_XGMI, 7, 64e9, JOIN_MESH },
	{ "MI325X", "mi325x", PCI_AMD, { 0x74a5, 0x74b9 }, 0x942, 1307.4e12, 256 * GIB, 6000e9, LINK_XGMI, 7, 64e9, JOIN_MESH },
	{ "MI300A", "mi300a", PCI_AMD, { 0x74a0 }, 0x942, 980.6e12, 128 * GIB, 5300e9, LINK_XGMI, 6, 64e9, JOIN_MESH },
};
/* clang-format on */

enum { MODELS = sizeof models / sizeof *models };

const struct gpu_model *topo_gpu_at(int i)
{
	return i >= 0 && i < MODELS ? &models[i] : NULL;
}

const struct gpu_model *topo_gpu_of_name(const char *name)
{
	for (int i = 0; i < MODELS; i++)
		if (!strcmp(models[i].name, name))
			return &models[i];
	return NULL;
}

const struct gpu_model *topo_gpu_of_pci(int vendor, int device)
{
	for (int i = 0; i < MODELS; i++)
		for (int j = 0; j < GPU_IDS && models[i].ids[j]; j++)
			if (models[i].vendor == vendor && models[i].ids[j] == device)
				return &models[i];
	return NULL;
}

const struct gpu_model *topo_gpu_of_arch(int vendor, int arch)
{
	for (int i = 0; i < MODELS; i++)
		if (models[i].vendor == vendor && models[i].arch == arch)
			return &models[i];
	return NULL;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool part_of_a_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether `text` contains the word as a whole word: "A10" is not in "A100". A word that ends in a
 * letter may be followed by a number: "SXM4". */
static bool has_word(const char *text, const char *word, size_t len)
{
	for (const char *at = text; *at; at++)
		if (!strncasecmp(at, word, len) && (at == text || !part_of_a_word(at[-1])) &&
		    (!part_of_a_word(at[len]) || (is_digit(at[len]) && !is_digit(word[len - 1]))))
			return true;
	return false;
}

/* The number of words in the row if the text contains all of them; otherwise 0. */
static int matching_words(const char *text, const char *words)
{
	int n = 0;
	while (*words) {
		size_t len = strcspn(words, " ");
		if (!has_word(text, words, len))
			return 0;
		n++;
		words += len + (words[len] == ' ');
	}
	return n;
}

const struct gpu_model *topo_gpu_of_driver_name(const char *text)
{
	const struct gpu_model *best = NULL;
	int most = 0;
	for (int i = 0; i < MODELS; i++) {
		int n = matching_words(text, models[i].words);
		if (n > most) {
			most = n;
			best = &models[i];
		}
	}
	return best;
}

const struct gpu_model *topo_gpu_of_gres(const char *type)
{
	const struct gpu_model *called = topo_gpu_of_driver_name(type), *begun = NULL;
	size_t len = strlen(type);
	for (int i = 0; !called && len && i < MODELS; i++) {
		if (strncasecmp(models[i].name, type, len))
			continue;
		if (models[i].name[len] == '-')
			return &models[i];
		begun = begun ? begun : &models[i];
	}
	return called ? called : begun;
}

void topo_gpu_fill(const struct gpu_model *m, struct node_kind *k)
{
	snprintf(k->device, sizeof k->device, "%s", m->name);
	k->device_flops = m->flops;
	k->device_memory = m->memory;
	k->device_bandwidth = m->bandwidth;
}
