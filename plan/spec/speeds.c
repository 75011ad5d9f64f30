#include "plan/spec/speeds.h"

#include "plan/spec/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number as strtod does, without what nobody writes in a list: signs, blanks, "nan",
 * hexadecimal. Returns its end; NULL: there is none. */
static const char *read_number(const char *at, double *out)
{
	char *end;
	bool begins = (*at >= '0' && *at <= '9') || *at == '.';
	*out = strtod(at, &end);
	return begins && end > at && at[1] != 'x' && at[1] != 'X' ? end : NULL;
}

/* Reads the count of an item, if there is one. Returns its end; NULL: it is invalid. */
static const char *read_count(const char *at, long *out)
{
	char *end = (char *)at;
	*out = 1;
	if (*at != '*')
		return at;
	if (at[1] >= '1' && at[1] <= '9')
		*out = strtol(at + 1, &end, 10);
	return end > at && *out <= SPEEDS_MAX ? end : NULL;
}

int speeds_read(const char *text, double least, double most, bool whole, struct speeds_list *out,
		const char **bad)
{
	int devices = 0;
	out->n = 0;
	for (const char *at = text; *text; at++) {
		double x;
		long count;
		const char *end = read_number(*bad = at, &x);
		if (!end || !(x >= least && x <= most) || (whole && x != (double)(int)x))
			return -1;
		end = read_count(end, &count);
		if (!end || (*end && *end != ',') || count > SPEEDS_MAX - devices ||
		    out->n == SPEEDS_ITEMS)
			return -1;
		devices += (int)count;
		out->items[out->n++] = (struct speeds_item){ x, devices };
		at = end;
		if (!*at)
			break;
	}
	return devices;
}

bool speeds_write(const int *numbers, const int *counts, int n, char out[JOB_TEXT])
{
	size_t used = 0;
	out[0] = '\0';
	for (int i = 0; i < n && used < JOB_TEXT; i++) {
		used += (size_t)snprintf(out + used, JOB_TEXT - used, "%s%d", i ? "," : "",
					 numbers[i]);
		if (counts[i] > 1 && used < JOB_TEXT)
			used += (size_t)snprintf(out + used, JOB_TEXT - used, "*%d", counts[i]);
	}
	return used < JOB_TEXT;
}

/* The list of this text, and the number of its devices; a thread's last text is read only once,
 * because plans ask for the speeds of all ranks one by one. */
static const struct speeds_list *list_of(const char *text, int *devices)
{
	static _Thread_local struct {
		char text[JOB_TEXT];
		struct speeds_list list;
		int devices;
	} last;
	const char *bad;
	if (*text && strcmp(text, last.text)) {
		snprintf(last.text, sizeof last.text, "%s", text);
		last.devices = speeds_read(text, 0, 1e9, false, &last.list, &bad);
	}
	*devices = *text && last.devices > 0 ? last.devices : 0;
	return &last.list;
}

/* The list that decides the speeds; *devices is 0 if there is none. */
static const struct speeds_list *speeds_of(const struct job *job, int *devices)
{
	const struct speeds_list *list = list_of(job->launch.speeds, devices);
	if (*devices)
		return list;
	list = list_of(job->launch.threads, devices);
	*devices = *devices > 1 ? *devices : 0; /* one number counts for every agent */
	return list;
}

static double speed_of(const struct speeds_item *i)
{
	return i->number > 0 ? i->number : 1;
}

/* The number of the list for a rank. Ranks after the last one have its number. */
static const struct speeds_item *item_at(const struct speeds_list *list, int rank)
{
	int lo = 0, hi = list->n - 1;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (rank < list->items[mid].end)
			hi = mid;
		else
			lo = mid + 1;
	}
	return &list->items[lo];
}

int speeds_devices(const struct job *job)
{
	int devices;
	speeds_of(job, &devices);
	return devices;
}

double speeds_rank(const struct job *job, int rank)
{
	int devices;
	const struct speeds_list *list = speeds_of(job, &devices);
	return rank < devices ? speed_of(item_at(list, rank)) : 1;
}

double speeds_fastest(const struct job *job)
{
	int devices;
	const struct speeds_list *list = speeds_of(job, &devices);
	double fastest = devices ? 0 : 1;
	for (int i = 0; devices && i < list->n; i++)
		fastest = fmax(fastest, speed_of(&list->items[i]));
	return fastest;
}

int speeds_threads(const struct job *job, int rank)
{
	int devices;
	const struct speeds_list *list = list_of(job->launch.threads, &devices);
	return devices ? (int)item_at(list, rank)->number : 0;
}

double speeds_holder(const struct job *job, const struct layout *l, int dp, int pp)
{
	int devices, first = layout_rank(l, (struct coords){ .dp = dp < 0 ? 0 : dp, .pp = pp });
	/* The devices of a holder have adjacent ranks, and so have those of all replicas. */
	int end = first + l->tp * l->cp * (dp < 0 ? l->dp : 1);
	const struct speeds_list *list = speeds_of(job, &devices);
	double slowest = INFINITY;
	if (!devices)
		return 1;
	for (const struct speeds_item *i = item_at(list, first);; i++) {
		slowest = fmin(slowest, speed_of(i));
		if (i->end >= end || i == &list->items[list->n - 1])
			return slowest;
	}
}

int speeds_stages(const struct job *job, const struct model_shape *m, const struct layout *l,
		  struct stage *stages, struct err *e)
{
	int n = layout_n_stages(l), rc;
	double *speed = calloc((size_t)n, sizeof *speed);
	if (!speed)
		return err_set(e, ERR_NOMEM,
			       "no memory for the speeds of %d stages; close other programs", n);
	for (int s = 0; s < n; s++) {
		int pp, chunk;
		layout_holder(l, s, &pp, &chunk);
		speed[s] = speeds_holder(job, l, -1, pp);
	}
	rc = layout_stages(m, n, job->parallel.stages, layout_bare_ends(job), speed, stages, e);
	free(speed);
	return rc;
}
