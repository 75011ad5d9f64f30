#include "libcomm/algorithms/hosts.h"

#include <stdlib.h>
#include <string.h>

static int allocate_arrays(struct hosts *h, int size, struct err *e)
{
	size_t n = (size_t)size + 1;
	h->of = calloc(n, sizeof *h->of);
	h->begin = calloc(n, sizeof *h->begin);
	h->ranks = calloc(n, sizeof *h->ranks);
	h->leader = calloc(n, sizeof *h->leader);
	h->number = calloc(n, sizeof *h->number);
	h->parts = calloc(n, sizeof *h->parts);
	h->part = calloc(n, sizeof *h->part);
	h->part_begin = calloc(n, sizeof *h->part_begin);
	bool all = h->of && h->begin && h->ranks && h->leader && h->number && h->parts && h->part &&
		   h->part_begin;
	for (int i = 0; i < 2; i++) {
		h->share[i] = calloc(n, sizeof *h->share[i]);
		h->owned[i] = calloc(n, sizeof *h->owned[i]);
		all = all && h->share[i] && h->owned[i];
	}
	return all ? 0 : err_set(e, ERR_NOMEM, "no memory for the hosts of %d ranks", size);
}

struct host_rank {
	int host, rank;
};

static int compare_host_ranks(const void *a, const void *b)
{
	const struct host_rank *x = a, *y = b;
	if (x->host != y->host)
		return x->host < y->host ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* of[rank] = the number of its host; hosts are numbered by their first ranks. */
static int number_hosts(struct hosts *h, const int *host, int size, struct err *e)
{
	struct host_rank *sorted = calloc((size_t)size, sizeof *sorted);
	if (!sorted)
		return err_set(e, ERR_NOMEM, "no memory for the hosts of %d ranks", size);
	for (int r = 0; r < size; r++)
		sorted[r] = (struct host_rank){ host[r], r };
	qsort(sorted, (size_t)size, sizeof *sorted, compare_host_ranks);
	for (int i = 0, first = 0; i < size; i++) {
		if (sorted[i].host != sorted[first].host)
			first = i;
		/* the host's first rank; its number follows below */
		h->of[sorted[i].rank] = sorted[first].rank;
	}
	free(sorted);
	for (int r = 0; r < size; r++)
		h->of[r] = h->of[r] == r ? h->n++ : h->of[h->of[r]];
	return 0;
}

/* Sorts items 0 to n - 1 by the hosts they are on. */
static void sort_by_host(int hosts, int n, const int *on, int *begin, int *items)
{
	for (int i = 0; i < n; i++)
		begin[on[i] + 1]++;
	for (int h = 0; h < hosts; h++)
		begin[h + 1] += begin[h];
	for (int i = 0; i < n; i++)
		items[begin[on[i]]++] = i;
	memmove(begin + 1, begin, (size_t)hosts * sizeof *begin);
	begin[0] = 0;
}

/* Rank i of a host with l ranks carries the blocks of ranks i, i + l, … of every other host. Hosts of
 * equal size carry equally much. */
static int count_attached(const struct hosts *h)
{
	int most = 0;
	for (int l = 2; l <= h->most; l++) {
		bool exists = false;
		int sum = -1; /* without the block of the host itself */
		for (int b = 0; b < h->n; b++) {
			exists |= hosts_size(h, b) == l;
			sum += (hosts_size(h, b) + l - 1) / l;
		}
		most = exists && sum > most ? sum : most;
	}
	return most;
}

/* --- Shares of the vector --------------------------------------------------------------------- */

/* The traffic of host a: the larger of the amounts that it sends and receives, if its ranks sum
 * `units` of all `unit` units of the vector. weight: of the host's parts, in elements; all: of all
 * hosts' parts. The host sends its parts of the units that others sum, and a copy of its own sums
 * to every other host. It receives the counterparts. */
static long count_traffic(const struct hosts *h, const long *weight, long all, int a, long units,
			  long unit)
{
	long out = weight[a] * (unit - units) + (h->n - 1) * units;
	long in = (all - weight[a]) * units + (unit - units);
	return out > in ? out : in;
}

/* The traffic of each host: with its units, and with one more. Kept, because a world of a thousand hosts
 * has ten thousand units, and each looks at every host. */
struct traffic {
	const long *weight;
	long all, unit, *now, *then;
};

static void set_traffic(const struct hosts *h, struct traffic *t, int a, int units)
{
	t->now[a] = count_traffic(h, t->weight, t->all, a, units, t->unit);
	t->then[a] = count_traffic(h, t->weight, t->all, a, units + 1, t->unit);
}

/* The host that gets the next unit, chosen so that the busiest host has the least traffic; among
 * equal ones, the host with the least traffic. */
static int choose_host(const struct hosts *h, const struct traffic *t)
{
	long worst = 0, second = 0, least = -1;
	int busiest = 0, best = 0;
	for (int a = 0; a < h->n; a++) {
		long now = t->now[a];
		if (now > worst) {
			second = worst;
			worst = now;
			busiest = a;
		} else if (now > second) {
			second = now;
		}
	}
	long best_worst = 0;
	for (int a = 0; a < h->n; a++) {
		long then = t->then[a], others = a == busiest ? second : worst;
		long max = then > others ? then : others;
		if (least < 0 || max < best_worst || (max == best_worst && then < least)) {
			best = a;
			best_worst = max;
			least = then;
		}
	}
	return best;
}

/* Gives out `units` units. arrays: room for two numbers per host. */
static void choose_shares(const struct hosts *h, const long *weight, long all, int units,
			  long *arrays, int *share)
{
	struct traffic t = { weight, all, units, arrays, arrays + h->n };
	for (int a = 0; a < h->n; a++)
		set_traffic(h, &t, a, share[a]);
	for (int i = 0; i < units; i++) {
		int a = choose_host(h, &t);
		set_traffic(h, &t, a, ++share[a]);
	}
}

/* Shares are equal if all hosts have the same weight of parts. Otherwise the traffic of the busiest
 * host decides. */
static int set_shares(struct hosts *h, int ratio, int *share, struct err *e)
{
	long *weight = calloc(3 * (size_t)h->n, sizeof *weight), all = 0;
	if (!weight)
		return err_set(e, ERR_NOMEM, "no memory for %d hosts", h->n);
	bool even = true;
	for (int a = 0; a < h->n; a++) {
		for (int i = h->part_begin[a]; i < h->part_begin[a + 1]; i++)
			weight[a] += h->parts[h->part[i]].count > 1 ? ratio : 1;
		all += weight[a];
		even &= weight[a] == weight[0];
	}
	for (int a = 0; a < h->n && even; a++)
		share[a]++;
	if (!even)
		choose_shares(h, weight, all, 8 * h->n, weight + h->n, share);
	for (int a = 0, sum = 0; a <= h->n; a++) {
		int mine = share[a];
		share[a] = sum;
		sum += mine;
	}
	free(weight);
	return 0;
}

size_t comm_hosts_share(const struct hosts *h, int ratio, size_t bytes, int host)
{
	const int *share = h->share[ratio - 1];
	size_t at = (bytes + 63) / 64 * (size_t)share[host] / (size_t)share[h->n] * 64;
	return at < bytes ? at : bytes;
}

static int fill_hosts(struct hosts *h, const int *host, int size, int rank, struct err *e)
{
	if (allocate_arrays(h, size, e) || number_hosts(h, host, size, e))
		return -1;
	h->here = h->of[rank];
	sort_by_host(h->n, size, h->of, h->begin, h->ranks);
	for (int a = 0; a < h->n; a++) {
		h->most = hosts_size(h, a) > h->most ? hosts_size(h, a) : h->most;
		h->leader[a] = h->ranks[h->begin[a]];
		for (int i = h->begin[a]; i < h->begin[a + 1]; i++)
			h->number[h->ranks[i]] = i - h->begin[a];
	}
	h->carried = count_attached(h);
	h->part_count = comm_tree_parts(h->of, size, h->parts);
	int *on = calloc((size_t)size, sizeof *on);
	if (!on)
		return err_set(e, ERR_NOMEM, "no memory for the hosts of %d ranks", size);
	for (int i = 0; i < h->part_count; i++)
		on[i] = h->of[h->parts[i].first];
	sort_by_host(h->n, h->part_count, on, h->part_begin, h->part);
	free(on);
	return set_shares(h, 1, h->share[0], e) || set_shares(h, 2, h->share[1], e) ? -1 : 0;
}

int comm_hosts_open(const int *host, int size, int rank, struct hosts **out, struct err *e)
{
	struct hosts *h = calloc(1, sizeof *h);
	if (!h)
		return err_set(e, ERR_NOMEM, "no memory for the hosts of %d ranks", size);
	if (fill_hosts(h, host, size, rank, e)) {
		comm_hosts_close(h);
		return -1;
	}
	*out = h;
	return 0;
}

void comm_hosts_close(struct hosts *h)
{
	if (!h)
		return;
	free(h->of);
	free(h->begin);
	free(h->ranks);
	free(h->leader);
	free(h->number);
	free(h->parts);
	free(h->part);
	free(h->part_begin);
	for (int i = 0; i < 2; i++) {
		free(h->share[i]);
		free(h->owned[i]);
	}
	free(h);
}
