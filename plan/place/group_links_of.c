/* The links of the groups of a map. */
#include "plan/place/group_costs.h"
#include "plan/place/group_links.h"

/* So large that bandwidth, not latency, decides which group is the slowest. */
#define SAMPLE_BYTES (64.0 * 1024 * 1024)

int place_group_links_of(const struct cluster *c, const struct layout *l,
			 const struct cluster_slot *slots,
			 struct group_links group_links[GROUP_KINDS], struct err *e)
{
	struct group_costs *w;
	struct group_cost_sum sum;
	struct traffic t;
	if (place_group_costs_open(c, l, &w, e))
		return -1;
	place_traffic_even(SAMPLE_BYTES, &t);
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		place_group_costs_of_kind(w, slots, kind, &t, &group_links[kind], &sum);
	place_group_costs_close(w);
	return 0;
}
