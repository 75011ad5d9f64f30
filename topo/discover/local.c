/*
 * local: this host as a cluster of one node.
 *
 * Its values are estimates for comparing plans, not measurements. A run compares them with the
 * measured time of a step.
 *   - FLOP/s of a core: clock × floats in a vector × 2 (a fused multiply-add) × 2 such units. The
 *     clock is the base frequency if the kernel reports it, because all cores can hold it at once.
 *   - Memory bandwidth: 12 GB/s per core, which a few cores of any server reach, and at most
 *     100 GB/s per NUMA domain (half the channels of current sockets with DDR4-3200).
 *   - Between agents, through shared memory: a block is copied in and copied out, so the rate is
 *     half of what one core copies (5 GB/s). Waking a sleeping peer takes about 10 µs.
 */
#include "topo/host.h"
#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORE_BANDWIDTH   12e9
#define DOMAIN_BANDWIDTH 100e9
#define SHM_BANDWIDTH    5e9
#define SHM_LATENCY      10e-6
#define CLOCK_GUESS      2.5e9 /* if neither sysfs nor cpuinfo reports it */

/* Reads a sysfs file in kHz; returns Hz, or 0 if it does not exist. */
static double read_khz(const char *path)
{
	double khz = 0;
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%lf", &khz) != 1 || khz < 0)
		khz = 0;
	fclose(f);
	return khz * 1e3;
}

static double cpuinfo_clock(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	if (!f)
		return 0;
	char line[512];
	double mhz = 0;
	while (mhz <= 0 && fgets(line, sizeof line, f))
		if (sscanf(line, "cpu MHz : %lf", &mhz) != 1)
			mhz = 0;
	fclose(f);
	return mhz * 1e6;
}

static double core_clock(void)
{
	double hz = read_khz("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
	if (hz <= 0)
		hz = read_khz("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
	if (hz <= 0)
		hz = cpuinfo_clock();
	return hz > 0 ? hz : CLOCK_GUESS;
}

/* Single-precision operations that a core completes per cycle. */
static double flops_a_cycle(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f"))
		return 64;
	if (__builtin_cpu_supports("fma"))
		return 32;
	return __builtin_cpu_supports("avx") ? 16 : 8;
#else
	return 16; /* two 128-bit units */
#endif
}

int topo_kind_of_host(int devices, struct node_kind *out, struct err *e)
{
	const struct host *h;
	if (topo_host_get(&h, e))
		return -1;
	if (devices <= 0)
		devices = h->n_cores;
	double memory_rate = CORE_BANDWIDTH * h->n_cores;
	if (memory_rate > DOMAIN_BANDWIDTH * h->n_numa)
		memory_rate = DOMAIN_BANDWIDTH * h->n_numa;
	struct node_kind k = {
		.name = "local",
		.device = "cpu",
		.devices = devices,
		.cores = h->n_cores,
		.numa = h->n_numa,
		.memory = h->memory,
		.device_memory = h->memory / devices,
		.device_flops = h->n_cores * core_clock() * flops_a_cycle() / devices,
		.device_bandwidth = memory_rate / devices,
		.link_bandwidth = SHM_BANDWIDTH,
		.link_latency = SHM_LATENCY,
	};
	/* If there are more agents than cores, they share the cores for copies too. */
	if (devices > h->n_cores)
		k.link_bandwidth *= (double)h->n_cores / devices;
	topo_net_of_host(&k.net_bandwidth, &k.net_latency);
	k.net_bandwidth /= devices;
	*out = k;
	return 0;
}

int topo_cluster_local(int devices, struct cluster *out, struct err *e)
{
	struct cluster c;
	if (topo_cluster_alloc("local", 1, 1, &c, e))
		return -1;
	if (topo_kind_of_host(devices, &c.kinds[0], e)) {
		topo_cluster_free(&c);
		return -1;
	}
	if (gethostname(c.nodes[0].name, sizeof c.nodes[0].name - 1))
		snprintf(c.nodes[0].name, sizeof c.nodes[0].name, "localhost");
	*out = c;
	return 0;
}
