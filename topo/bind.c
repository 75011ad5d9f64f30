#include "topo/bind.h"

#include "topo/internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of slots that fit in domain `numa` if no slot spans two domains. */
static int domain_fits(const struct host *h, int numa, int threads)
{
	int cores = 0;
	for (int i = 0; i < h->n_cores; i++)
		cores += h->cores[i].numa == numa;
	return cores / threads;
}

/* Sets the domain of `slot` and its place there. Each domain gets a block of consecutive slots, and
 * the blocks are as equal in size as the domains allow. So slots share memory bandwidth evenly, and
 * neighbouring ranks stay together. False: some slot would have to span two domains. */
static bool domain_place(const struct host *h, int slots, int slot, int threads, int *numa,
			 int *place)
{
	int room = 0;
	for (int d = 0; d < h->n_numa; d++)
		room += domain_fits(h, d, threads);
	if (room < slots)
		return false;
	int left = slots, first = 0;
	for (int d = 0; d < h->n_numa; d++) {
		int fits = domain_fits(h, d, threads);
		room -= fits;
		int share = (left + h->n_numa - d - 1) / (h->n_numa - d);
		if (share < left - room)
			share = left - room; /* the later domains have no room for these */
		if (share > fits)
			share = fits;
		if (slot < first + share) {
			*numa = d;
			*place = slot - first;
			return true;
		}
		first += share;
		left -= share;
	}
	return false;
}

int topo_bind_on(const struct host *h, int slots, int slot, int threads, char *list, int size,
		 struct err *e)
{
	if (threads < 1)
		threads = 1;
	if (slot < 0 || slot >= slots)
		return err_set(e, ERR_INTERNAL, "slot %d of %d: no such slot to bind", slot, slots);
	if ((long)slots * threads > h->n_cores) {
		list[0] = '\0';
		return 0;
	}
	int numa = -1, place = slot; /* numa -1: cores of any domain */
	domain_place(h, slots, slot, threads, &numa, &place);
	int seen = 0, used = 0;
	for (int i = 0; i < h->n_cores && used < size; i++) {
		const struct host_core *c = &h->cores[i];
		if (numa >= 0 && c->numa != numa)
			continue;
		if (seen >= place * threads && seen < (place + 1) * threads)
			used += snprintf(list + used, (size_t)(size - used), "%s%s",
					 used ? "," : "", c->cpus);
		seen++;
	}
	if (used >= size)
		return err_set(e, ERR_INTERNAL, "slot %d: its cpu list is longer than %d bytes",
			       slot, size);
	return 0;
}

int topo_bind_cpus(int slots, int slot, int threads, char *list, int size, struct err *e)
{
	const struct host *h;
	return topo_host_get(&h, e) ? -1 : topo_bind_on(h, slots, slot, threads, list, size, e);
}

/* --- Binding next to a device --- */

enum { CPUS_MAX = 4096 };

/* Reads a kernel CPU list. Returns the number of CPUs; 0: the text is not a list. */
static int read_list(const char *text, int *out)
{
	int n = 0;
	for (const char *at = text; *at;) {
		char *end;
		long lo = strtol(at, &end, 10), hi = lo;
		if (end != at && *end == '-')
			hi = strtol(at = end + 1, &end, 10);
		if (end == at || lo < 0 || hi < lo || hi >= CPUS_MAX || (*end && *end != ','))
			return 0;
		for (long cpu = lo; cpu <= hi && n < CPUS_MAX; cpu++)
			out[n++] = (int)cpu;
		at = end + (*end == ',');
	}
	return n;
}

static void write_list(const int *cpus, int n, char *out, size_t size)
{
	size_t used = 0;
	out[0] = '\0';
	for (int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1; end++)
			continue;
		int more = end - i > 1 ? snprintf(out + used, size - used, "%s%d-%d",
						  used ? "," : "", cpus[i], cpus[end - 1])
				       : snprintf(out + used, size - used, "%s%d", used ? "," : "",
						  cpus[i]);
		if (more < 0 || (size_t)more >= size - used) {
			out[0] = '\0';
			return;
		}
		used += (size_t)more;
	}
}

/* Takes this share's part of each run of consecutive CPUs, because the second half of a list often
 * holds the sibling threads of the first half. */
static int take_part(const int *cpus, int n, int shares, int share, int *out)
{
	int taken = 0;
	for (int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1; end++)
			continue;
		int runs = end - i;
		for (int k = runs * share / shares; k < runs * (share + 1) / shares; k++)
			out[taken++] = cpus[i + k];
	}
	return taken;
}

static int shortest_run(const int *cpus, int n)
{
	int least = n;
	for (int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1; end++)
			continue;
		least = end - i < least ? end - i : least;
	}
	return least;
}

/* cpus, part: arrays of CPUS_MAX. */
static void share_near(const struct node_kind *k, int device, int *cpus, int *part, char *list,
		       size_t size)
{
	int shares = 0, share = 0, n, taken = 0;
	for (int i = 0; i < k->devices; i++)
		if (!strcmp(k->parts[i].cpus, k->parts[device].cpus)) {
			share += i < device;
			shares++;
		}
	n = read_list(k->parts[device].cpus, cpus);
	if (n >= shares && shortest_run(cpus, n) >= shares)
		taken = take_part(cpus, n, shares, share, part);
	else if (n >= shares) /* cores are not numbered by domain */
		for (int i = n * share / shares; i < n * (share + 1) / shares; i++)
			part[taken++] = cpus[i];
	if (taken)
		write_list(part, taken, list, size);
	else
		write_list(cpus, n, list, size);
}

void topo_bind_near(const struct node_kind *k, int device, char *list, size_t size)
{
	list[0] = '\0';
	if (!k->parts || device < 0 || device >= k->devices)
		return;
	/* Too large for a small stack. Without memory the process is not bound. */
	int *cpus = malloc(2 * CPUS_MAX * sizeof *cpus);
	if (cpus)
		share_near(k, device, cpus, cpus + CPUS_MAX, list, size);
	free(cpus);
}
