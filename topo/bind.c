#include "topo/bind.h"

#include "topo/internal.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots that domain `numa` holds when none straddles two domains. */
static int domain_fits(const struct host *h, int numa, int threads)
{
	int cores = 0;
	for (int i = 0; i < h->n_cores; i++)
		cores += h->cores[i].numa == numa;
	return cores / threads;
}

/* The domain and the place in it of `slot`, when all slots fit without straddling: the
 * slots are dealt in blocks as even as the domains allow, so that memory bandwidth is shared
 * evenly and neighbouring ranks stay together. False when they do not fit so. */
static bool domain_place(const struct host *h, int slots, int slot, int threads, int *numa, int *place)
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
			share = left - room; /* what the later domains cannot hold */
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

int bind_on(const struct host *h, int slots, int slot, int threads, char *list, int size, struct err *e)
{
	if (threads < 1)
		threads = 1;
	if (slot < 0 || slot >= slots)
		return err_set(e, ERR_INTERNAL, "slot %d of %d: no such slot to bind", slot, slots);
	if ((long)slots * threads > h->n_cores) {
		list[0] = '\0';
		return 0;
	}
	int numa = -1, place = slot; /* -1: cores of whatever domain */
	domain_place(h, slots, slot, threads, &numa, &place);
	int seen = 0, used = 0;
	for (int i = 0; i < h->n_cores && used < size; i++) {
		const struct host_core *c = &h->cores[i];
		if (numa >= 0 && c->numa != numa)
			continue;
		if (seen >= place * threads && seen < (place + 1) * threads)
			used += snprintf(list + used, (size_t)(size - used), "%s%s", used ? "," : "", c->cpus);
		seen++;
	}
	if (used >= size)
		return err_set(e, ERR_INTERNAL, "slot %d: its cpu list is longer than %d bytes", slot, size);
	return 0;
}

int bind_cpus(int slots, int slot, int threads, char *list, int size, struct err *e)
{
	const struct host *h;
	return host_get(&h, e) ? -1 : bind_on(h, slots, slot, threads, list, size, e);
}

/* Reads digits at *at; -1 when there are none or they name no cpu. */
static int read_cpu(const char **at)
{
	int cpu = -1;
	while (**at >= '0' && **at <= '9') {
		cpu = (cpu < 0 ? 0 : cpu) * 10 + (**at - '0');
		if (cpu >= CPU_SETSIZE)
			return -1;
		++*at;
	}
	return cpu;
}

int bind_self(const char *list, struct err *e)
{
	if (!*list)
		return 0;
	cpu_set_t set;
	CPU_ZERO(&set);
	for (const char *at = list; *at;) {
		int lo = read_cpu(&at), hi = lo;
		if (lo >= 0 && *at == '-') {
			at++;
			hi = read_cpu(&at);
		}
		bool last = *at == '\0';
		if (lo < 0 || hi < lo || (!last && *at != ','))
			return err_set(e, ERR_USAGE, "cpu list \"%s\": not of the form 0-3,8", list);
		for (int cpu = lo; cpu <= hi; cpu++)
			CPU_SET(cpu, &set);
		at += !last;
	}
	if (sched_setaffinity(0, sizeof set, &set))
		return err_errno(e, ERR_UNSUPPORTED, "cannot bind to cpus %s", list);
	return 0;
}
