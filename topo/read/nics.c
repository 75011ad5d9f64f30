#include "topo/read/nics.h"

#include <stddef.h>

/* The highest speed in Gb/s that each model is sold with. Measurements show if a cable or board is
 * slower. Ids: the PCI ID repository. */
/* clang-format off */
static const struct {
	unsigned vendor, device;
	double gbits;
} models[] = {
	{ 0x15b3, 0x673c, 32 }, { 0x15b3, 0x6746, 32 },                           /* ConnectX-2, QDR */
	{ 0x15b3, 0x1003, 56 }, { 0x15b3, 0x1007, 56 }, { 0x15b3, 0x1011, 56 },   /* ConnectX-3, -3 Pro, Connect-IB */
	{ 0x15b3, 0x1013, 100 }, { 0x15b3, 0x1015, 50 },                          /* ConnectX-4, -4 Lx */
	{ 0x15b3, 0x1017, 100 }, { 0x15b3, 0x1019, 100 },                         /* ConnectX-5, -5 Ex */
	{ 0x15b3, 0x101b, 200 }, { 0x15b3, 0x101d, 200 }, { 0x15b3, 0x101f, 50 }, /* ConnectX-6, -6 Dx, -6 Lx */
	{ 0x15b3, 0x1021, 400 }, { 0x15b3, 0x1023, 800 },                         /* ConnectX-7, -8 */
	{ 0x15b3, 0xa2d6, 200 }, { 0x15b3, 0xa2dc, 400 },                         /* BlueField-2, -3 */
	{ 0x1d0f, 0xefa0, 100 }, { 0x1d0f, 0xefa1, 100 }, { 0x1d0f, 0xefa2, 200 }, { 0x1d0f, 0xefa3, 400 }, /* EFA */
	{ 0x8086, 0x10c9, 1 }, { 0x8086, 0x1521, 1 }, { 0x8086, 0x1533, 1 },      /* 82576, I350, I210 */
	{ 0x8086, 0x10fb, 10 }, { 0x8086, 0x1528, 10 }, { 0x8086, 0x1563, 10 }, { 0x8086, 0x1572, 10 }, /* 82599, X540, X550, X710 */
	{ 0x8086, 0x37d1, 1 }, { 0x8086, 0x37d2, 10 },                            /* X722 */
	{ 0x8086, 0x158a, 25 }, { 0x8086, 0x158b, 25 }, { 0x8086, 0x1592, 100 }, { 0x8086, 0x1593, 25 }, /* XXV710, E810 */
	{ 0x8086, 0x24f0, 100 }, { 0x8086, 0x24f1, 100 },                         /* Omni-Path 100 */
	{ 0x1077, 0x7322, 32 },                                                   /* QLogic QDR */
	{ 0x14e4, 0x1639, 1 }, { 0x14e4, 0x165f, 1 }, { 0x14e4, 0x1657, 1 },      /* BCM5709, BCM5720, BCM5719 */
	{ 0x14e4, 0x16d7, 25 }, { 0x14e4, 0x1750, 100 }, { 0x14e4, 0x1760, 400 }, /* BCM57414, BCM57508, BCM57608 */
};
/* clang-format on */

void topo_nic_figures(unsigned class, unsigned vendor, unsigned device, double pcie,
		      double *bandwidth, double *latency)
{
	*bandwidth = 0;
	for (size_t i = 0; i < sizeof models / sizeof *models; i++)
		if (models[i].vendor == vendor && models[i].device == device)
			*bandwidth = models[i].gbits * 1e9 / 8;
	if (*bandwidth > 0 && pcie > 0 && pcie < *bandwidth)
		*bandwidth = pcie;
	*latency = class == 0x0207 || class == 0x0c06 ? NIC_INFINIBAND_LATENCY
		   : vendor == 0x1d0f                 ? NIC_EFA_LATENCY
		   : vendor == 0x15b3                 ? NIC_INFINIBAND_LATENCY /* RoCE */
						      : NIC_ETHERNET_LATENCY;
}
