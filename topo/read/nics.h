/* nics — what an adapter can do, by its PCI ids. For this room alone. */
#ifndef MUSTER_TOPO_READ_NICS_H
#define MUSTER_TOPO_READ_NICS_H

/* Bytes/s of its ports together, at most what its PCIe link carries (`pcie`, 0: not told), and
 * seconds between two of its kind. A bandwidth of 0: not known. */
void topo_nic_figures(unsigned class, unsigned vendor, unsigned device, double pcie,
		      double *bandwidth, double *latency);

/* Seconds over a network of that sort. */
#define NIC_INFINIBAND_LATENCY 5e-6
#define NIC_EFA_LATENCY        15e-6
#define NIC_ETHERNET_LATENCY   30e-6

#endif
