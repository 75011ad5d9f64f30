#include "plan/spec/speeds.h"

#include "plan/spec/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int speeds_read(const char *list, double least, double most, bool whole, double out[SPEEDS_MAX],
		const char **bad)
{
	int n = 0;
	if (!*list)
		return 0;
	for (const char *at = list;; at++) {
		char *end;
		double x = strtod(at, &end);
		*bad = at;
		/* strtod also accepts what nobody writes here: blanks, "nan", hexadecimal. */
		if (end == at || ((*at < '0' || *at > '9') && *at != '.') || at[1] == 'x' ||
		    at[1] == 'X' || (*end && *end != ','))
			return -1;
		if (!(x >= least && x <= most) || (whole && x != (double)(int)x) || n == SPEEDS_MAX)
			return -1;
		out[n++] = x;
		at = end;
		if (!*at)
			return n;
	}
}

/* The list of this text; a thread's last text is read only once, because plans ask for the speeds of
 * all ranks one by one. */
static const double *list_of(const char *text, int *n)
{
	static _Thread_local struct {
		char text[JOB_TEXT];
		double list[SPEEDS_MAX];
		int n;
	} last;
	const char *bad;
	if (*text && strcmp(text, last.text)) {
		snprintf(last.text, sizeof last.text, "%s", text);
		last.n = speeds_read(text, 0, 1e9, false, last.list, &bad);
	}
	*n = *text && last.n > 0 ? last.n : 0;
	return last.list;
}

int speeds_devices(const struct job *job)
{
	int n;
	list_of(job->launch.speeds, &n);
	if (n)
		return n;
	list_of(job->launch.threads, &n);
	return n > 1 ? n : 0; /* one number counts for every agent */
}

double speeds_rank(const struct job *job, int rank)
{
	int n;
	const double *list = list_of(job->launch.speeds, &n);
	if (!n)
		list = list_of(job->launch.threads, &n);
	return n > 1 && rank < n && list[rank] > 0 ? list[rank] : 1;
}

int speeds_threads(const struct job *job, int rank)
{
	int n;
	const double *list = list_of(job->launch.threads, &n);
	return n ? (int)list[rank < n ? rank : n - 1] : 0;
}

double speeds_holder(const struct job *job, const struct layout *l, int dp, int pp)
{
	double slowest = 0;
	if (!speeds_devices(job))
		return 1;
	for (int d = dp < 0 ? 0 : dp; d < (dp < 0 ? l->dp : dp + 1); d++)
		for (int i = 0; i < l->tp * l->cp; i++) {
			double speed = speeds_rank(job,
						   layout_rank(l, (struct coords){ .tp = i % l->tp,
										   .cp = i / l->tp,
										   .dp = d,
										   .pp = pp }));
			slowest = slowest > 0 && slowest < speed ? slowest : speed;
		}
	return slowest;
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
