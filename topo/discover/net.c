#include "topo/discover/internal.h"
#include "topo/internal.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ETHERNET_LATENCY   30e-6 /* TCP, kernel to kernel, one switch */
#define INFINIBAND_LATENCY 5e-6
#define ETHERNET_GUESS     1.25e9 /* 10 Gb/s, if no interface reports its speed */

/* The first number in a file; 0: there is none. */
static double read_number(const char *path)
{
	double v = 0;
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%lf", &v) != 1 || v < 0)
		v = 0;
	fclose(f);
	return v;
}

static double for_each_adapter(const char *pattern, double (*fold)(double, double))
{
	glob_t g;
	double v = 0;
	if (glob(pattern, 0, NULL, &g))
		return 0;
	for (size_t i = 0; i < g.gl_pathc; i++)
		v = fold(v, read_number(g.gl_pathv[i]));
	globfree(&g);
	return v;
}

static double sum_rates(double a, double b)
{
	return a + b;
}

static double fastest_rate(double a, double b)
{
	return a > b ? a : b;
}

void topo_net_of_host(double *bandwidth, double *latency)
{
	/* Rates of InfiniBand ports are in Gb/s, and all ports are used together. Speeds of
	 * Ethernet interfaces are in Mb/s, and one interface is used. */
	double gbits = for_each_adapter("/sys/class/infiniband/*/ports/*/rate", sum_rates);
	double mbits = for_each_adapter("/sys/class/net/*/speed", fastest_rate);
	*latency = gbits > 0 ? INFINIBAND_LATENCY : ETHERNET_LATENCY;
	*bandwidth = gbits > 0 ? gbits * 1e9 / 8 : mbits > 0 ? mbits * 1e6 / 8 : ETHERNET_GUESS;
}

double topo_net_of_adapter(const char *name, bool infiniband)
{
	char path[160];
	if (strpbrk(name, "/*?[]\\") || name[0] == '.')
		return 0;
	snprintf(path, sizeof path,
		 infiniband ? "/sys/class/infiniband/%s/ports/*/rate" : "/sys/class/net/%s/speed",
		 name);
	return for_each_adapter(path, sum_rates) * (infiniband ? 1e9 : 1e6) / 8;
}
