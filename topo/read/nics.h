/* nics — figures of network adapters by PCI id. For topo/read/ only. */
#ifndef MUSTER_TOPO_READ_NICS_H
#define MUSTER_TOPO_READ_NICS_H

/* bandwidth: bytes/s of all ports together, limited by the adapter's PCIe link (`pcie`; 0: unknown);
 * 0: unknown. latency: seconds between two adapters of this kind. */
void topo_nic_figures(unsigned class, unsigned vendor, unsigned device, double pcie,
		      double *bandwidth, double *latency);

/* Latency of a kind of network, seconds. */
#define NIC_INFINIBAND_LATENCY 5e-6
#define NIC_EFA_LATENCY        15e-6
#define NIC_ETHERNET_LATENCY   30e-6

#endif
