#include "topo/presets.h"

#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

/*
 * Values that many rows share, and their sources.
 *   - Latency of a step of a collective: NCCL's tuning tables (src/graph/tuning.cc), rounded.
 *   - PCIe payload between devices: NCCL's constants for × 16 links, 12 GB/s in generation 3 and 24
 *     in generation 4 (src/graph/topo.h).
 *   - Order of devices, NUMA domains and NICs: `nvidia-smi topo -m` of such machines, as published
 *     (NVIDIA/nccl#1505: DGX A100; vllm#13855: DGX H100; NVIDIA/nccl-tests#78: DGX-2;
 *     NVIDIA/nccl#671: DGX-1; NVIDIA/k8s-test-infra#371: GB200).
 *   - Scalable units: NVIDIA's "DGX SuperPOD Reference Architecture" of the system. Up to 8 units
 *     have two levels of switches; more have three. No level is oversubscribed.
 */
#define IB(gbits) .nic_bandwidth = (gbits)*1e9 / 8, .nic_latency = 5e-6

static const struct topo_preset boxes[] = {
	{
		/* "DGX-1 With Tesla V100 System Architecture": 8 V100 in a hybrid cube mesh, 2 ×
		 * Xeon E5-2698 v4 (20 cores), 512 GB, 4 × EDR 100 Gb/s, each near two GPUs. Each of
		 * two groups of 4 GPUs is fully meshed, and two lanes connect every GPU with its
		 * opposite: six lanes per GPU. */
		.name = "dgx-1",
		.gpu = "V100-SXM2-32GB",
		.devices = 8,
		.cores = 40,
		.threads = 2,
		.numa = 2,
		.memory = 512 * GIB,
		.join = LINK_NVLINK,
		.homes = "00001111",
		.pcie = 12e9,
		.cross = 9e9,
		.lanes = "01122000"
			 "10210200"
			 "12020010"
			 "21200001"
			 "20000112"
			 "02001021"
			 "00101202"
			 "00012120",
		.nics = "mlx5_0 mlx5_1 mlx5_2 mlx5_3",
		.nearest = "00112233",
		.nic_link = LINK_PIX,
		IB(100),
	},
	{
		/* "DGX-2" data sheet: 16 V100 SXM3 on NVSwitches, 2 × Xeon 8168 (24 cores), 1.5 TB,
		 * 8 × EDR 100 Gb/s, each near two GPUs. */
		.name = "dgx-2",
		.gpu = "V100-SXM3-32GB",
		.devices = 16,
		.cores = 48,
		.threads = 2,
		.numa = 2,
		.memory = 1536 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "0000000011111111",
		.pcie = 12e9,
		.cross = 9e9,
		.nics = "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9",
		.nearest = "0011223344556677",
		.nic_link = LINK_PIX,
		IB(100),
	},
	{
		/* "DGX A100 System" data sheet: 8 A100 80 GB, 2 × EPYC 7742 (64 cores, four NUMA
		 * domains each), 2 TB, 8 × HDR 200 Gb/s for computing (four of twelve ports are for
		 * storage). SuperPOD: units of 20. */
		.name = "dgx-a100",
		.gpu = "A100-SXM4-80GB",
		.devices = 8,
		.cores = 128,
		.threads = 2,
		.numa = 8,
		.memory = 2048 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "33117755",
		.pcie = 24e9,
		.cross = 16e9,
		.nics = "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9",
		.nearest = "01234567",
		.nic_link = LINK_PXB,
		IB(200),
		.unit = 20,
		.group = 8,
		.rails = true,
	},
	{
		/* "DGX H100" data sheet: 8 H100 SXM5, 2 × Xeon 8480C (56 cores), 2 TB, 8 × NDR
		 * 400 Gb/s. SuperPOD: units of 32. */
		.name = "dgx-h100",
		.gpu = "H100-SXM5-80GB",
		.devices = 8,
		.cores = 112,
		.threads = 2,
		.numa = 2,
		.memory = 2048 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "00001111",
		.pcie = 48e9,
		.cross = 22e9,
		.nics = "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11",
		.nearest = "01234567",
		.nic_link = LINK_PXB,
		IB(400),
		.unit = 32,
		.group = 8,
		.rails = true,
	},
	{
		/* "DGX H200" data sheet: a DGX H100 with H200 GPUs. */
		.name = "dgx-h200",
		.gpu = "H200-SXM-141GB",
		.devices = 8,
		.cores = 112,
		.threads = 2,
		.numa = 2,
		.memory = 2048 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "00001111",
		.pcie = 48e9,
		.cross = 22e9,
		.nics = "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11",
		.nearest = "01234567",
		.nic_link = LINK_PXB,
		IB(400),
		.unit = 32,
		.group = 8,
		.rails = true,
	},
	{
		/* "DGX B200" data sheet: 8 B200, 2 × Xeon 8570 (56 cores), 2 TB, 8 × 400 Gb/s.
		 * SuperPOD: units of 32. */
		.name = "dgx-b200",
		.gpu = "B200-SXM-180GB",
		.devices = 8,
		.cores = 112,
		.threads = 2,
		.numa = 2,
		.memory = 2048 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "00001111",
		.pcie = 48e9,
		.cross = 22e9,
		.nics = "nic0 nic1 nic2 nic3 nic4 nic5 nic6 nic7",
		.nearest = "01234567",
		.nic_link = LINK_PXB,
		IB(400),
		.unit = 32,
		.group = 8,
		.rails = true,
	},
	{
		/* "DGX GB200" data sheet: a rack is one NVLink fabric of 72 GPUs in 18 trays; a
		 * tray has 4 GPUs, 2 Grace CPUs (72 cores, up to 480 GB each), 4 × 400 Gb/s. A node
		 * is a tray, a leaf is a rack; SuperPOD: units of 8 racks. */
		.name = "gb200-nvl72",
		.gpu = "GB200-186GB",
		.devices = 4,
		.cores = 144,
		.threads = 1,
		.numa = 2,
		.memory = 960 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "0011",
		.pcie = 48e9,
		.cross = 48e9,
		.nics = "nic0 nic1 nic2 nic3",
		.nearest = "0123",
		.nic_link = LINK_NODE,
		IB(400),
		.domain = 18,
		.unit = 18,
		.group = 8,
		.rails = true,
	},
	{
		/* A rented machine with one H200: an ordinary host (16 cores, 128 GiB) with 25 Gb/s
		 * Ethernet. */
		.name = "h200",
		.gpu = "H200-SXM-141GB",
		.devices = 1,
		.cores = 16,
		.threads = 1,
		.numa = 1,
		.memory = 128 * GIB,
		.homes = "0",
		.pcie = 48e9,
		.cross = 48e9,
		.nics = "eth0",
		.nearest = "0",
		.nic_link = LINK_PHB,
		.nic_bandwidth = 3.125e9,
		.nic_latency = 30e-6,
	},
	{
		/* Four A100 PCIe on PCIe 4.0 × 16: 31.5 GB/s by the specification, about 25 GB/s of
		 * payload between devices of one socket, less between sockets; one 200 Gb/s NIC for
		 * all four. */
		.name = "pcie-a100",
		.gpu = "A100-PCIe-80GB",
		.devices = 4,
		.cores = 64,
		.threads = 2,
		.numa = 2,
		.memory = 512 * GIB,
		.homes = "0011",
		.pcie = 25e9,
		.cross = 16e9,
		.nics = "mlx5_0",
		.nearest = "0000",
		.nic_link = LINK_NODE,
		.nic_bandwidth = 25e9,
		.nic_latency = 6e-6,
	},
	{
		/* Eight L40S, PCIe 4.0 × 16, no NVLink (through the host: about 20 GB/s, less
		 * between sockets), two 200 Gb/s NICs. */
		.name = "pcie-l40s",
		.gpu = "L40S",
		.devices = 8,
		.cores = 64,
		.threads = 2,
		.numa = 2,
		.memory = 1024 * GIB,
		.homes = "00001111",
		.pcie = 20e9,
		.cross = 16e9,
		.nics = "mlx5_0 mlx5_1",
		.nearest = "00001111",
		.nic_link = LINK_NODE,
		.nic_bandwidth = 25e9,
		.nic_latency = 6e-6,
	},
	{
		/* "Amazon EC2 P4 instances", p4d.24xlarge: 8 A100 40 GB, 2 × Xeon 8275CL (24
		 * cores), 1152 GiB, 4 EFA of 100 Gb/s, each behind a PCIe switch with two GPUs (the
		 * topology file of aws-ofi-nccl). EFA's latency: AWS's own 15 µs. */
		.name = "p4d",
		.gpu = "A100-SXM4-40GB",
		.devices = 8,
		.cores = 48,
		.threads = 2,
		.numa = 2,
		.memory = 1152 * GIB,
		.join = LINK_NVSWITCH,
		.homes = "00001111",
		.pcie = 12e9,
		.cross = 9e9,
		.nics = "efa0 efa1 efa2 efa3",
		.nearest = "00112233",
		.nic_link = LINK_PIX,
		.nic_bandwidth = 12.5e9,
		.nic_latency = 15e-6,
	},
	{
		/* "ND-MI300X-v5 series" of Azure: 8 MI300X, 96 cores of 4th generation Xeons, 1850
		 * GiB, 8 × 400 Gb/s; "Instinct MI300X Platform" data sheet: one link between any
		 * two. */
		.name = "mi300x",
		.gpu = "MI300X",
		.devices = 8,
		.cores = 96,
		.threads = 1,
		.numa = 2,
		.memory = 1850 * GIB,
		.join = LINK_XGMI,
		.homes = "00001111",
		.pcie = 48e9,
		.cross = 22e9,
		.nics = "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7",
		.nearest = "01234567",
		.nic_link = LINK_PXB,
		IB(400),
	},
};

enum { BOXES = sizeof boxes / sizeof *boxes };

const struct topo_preset *topo_preset_at(int i)
{
	return i >= 0 && i < BOXES ? &boxes[i] : NULL;
}

const struct topo_preset *topo_preset_named(const char *name, size_t len)
{
	for (int i = 0; i < BOXES; i++)
		if (strlen(boxes[i].name) == len && !memcmp(boxes[i].name, name, len))
			return &boxes[i];
	return NULL;
}
