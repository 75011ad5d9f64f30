/*
 * place — measures how long placement takes on one core.
 *
 * usage: place
 *
 * Prints a line per case: the machine, the ranks, the maps evaluated, the seconds on one core, and
 * the map's cost relative to Slurm's block order.
 */
#include "plan/place/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double core_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct {
	const char *machine;
	struct layout l;
} cases[] = {
	{ "dgx-1:1", { .tp = 8, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 } },
	{ "dgx-1:8", { .tp = 4, .cp = 1, .dp = 8, .pp = 2, .ep = 1, .chunks = 1 } },
	{ "dgx-h100:128", { .tp = 8, .cp = 1, .dp = 8, .pp = 16, .ep = 1, .chunks = 1 } },
	{ "dgx-h100:2048", { .tp = 8, .cp = 1, .dp = 128, .pp = 16, .ep = 1, .chunks = 1 } },
	{ "dgx-h100:2048", { .tp = 4, .cp = 2, .dp = 128, .pp = 16, .ep = 8, .chunks = 1 } },
	{ "gb200-nvl72:4096", { .tp = 8, .cp = 1, .dp = 256, .pp = 8, .ep = 16, .chunks = 1 } },
	{ "dgx-h100:12500", { .tp = 8, .cp = 1, .dp = 780, .pp = 16, .ep = 1, .chunks = 1 } },
};

int main(void)
{
	struct traffic t = { 0 };
	/* tp and ep move most, replicas communicate once per step, stages move least */
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		t.ops[kind][0] = (struct traffic_op){ kind == GROUP_DP ? 1e9 : 64e6,
						      kind == GROUP_TP || kind == GROUP_EP ? 200
											   : 1 };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cluster c;
		struct placement p;
		struct err e = ERR_INIT;
		int world = layout_world(&cases[i].l);
		struct cluster_slot *slots = calloc((size_t)world, sizeof *slots);
		if (!slots || topo_cluster_open(cases[i].machine, 0, &c, &e)) {
			fprintf(stderr, "%s: %s\n", cases[i].machine, e.text);
			return 1;
		}
		double since = core_s();
		if (place_ranks(&c, &cases[i].l, &t, false, slots, &p, &e)) {
			fprintf(stderr, "%s: %s\n", cases[i].machine, e.text);
			return 1;
		}
		printf("%-18s %6d ranks  %5d maps  %7.3f s  cost %.3g of block's\n",
		       cases[i].machine, world, p.tried, core_s() - since,
		       p.cost.total / p.block.total);
		place_placement_free(&p);
		topo_cluster_free(&c);
		free(slots);
	}
	return 0;
}
